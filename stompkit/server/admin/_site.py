"""Connections of HTTP, and their limits."""

from __future__ import annotations

from typing import Any, Final, cast

from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime, ITCPTransport
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.resource import IResource
from twisted.web.server import Request, Site

from stompkit.server._admin_settings import AdminSettings

__all__ = ["AdminSite"]

_TOO_LARGE: Final = (
    b"HTTP/1.1 413 Content Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)


class _Request(Request):
    """A request whose body is bounded."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._body_bytes = 0

    def gotLength(self, length: int | None) -> None:
        """Refuse a body that says at once that it is too long."""
        super().gotLength(length)
        if length is not None:
            self._check(length)

    def handleContentChunk(self, data: bytes) -> None:
        """Take a part of the body, unless it gets too long."""
        self._body_bytes += len(data)
        if self._check(self._body_bytes):
            super().handleContentChunk(data)

    def _check(self, octets: int) -> bool:
        site = cast("AdminSite", self.channel.site)
        if octets <= site.settings.max_body_bytes:
            return True
        transport = self.channel.transport
        transport.write(_TOO_LARGE)
        transport.loseConnection()
        self.channel.is_done = True
        return False


class _Channel(HTTPChannel):
    """A connection that has to bring each request within a time."""

    site: AdminSite
    is_done = False
    _deadline: IDelayedCall | None = None

    def connectionMade(self) -> None:
        """Begin to wait for the first request."""
        super().connectionMade()
        self.site.channels.add(self)
        transport = self.transport
        if ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(True)

    def dataReceived(self, data: bytes) -> None:
        """Take octets, but none behind what was too long."""
        if self.is_done:
            return
        if self._deadline is None and not self._handlingRequest:
            timeout_s = self.site.settings.timeout_s
            self._deadline = self.site.clock.callLater(timeout_s, self._is_late)
        super().dataReceived(data)

    def allContentReceived(self) -> None:
        """Answer the request; its time has ended."""
        self._cancel()
        super().allContentReceived()

    def connectionLost(self, reason: Failure) -> None:
        """Forget the connection."""
        self._cancel()
        self.site.channels.discard(self)
        super().connectionLost(reason)

    def _is_late(self) -> None:
        self._deadline = None
        self.forceAbortClient()

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class AdminSite(Site):
    """Makes the connections, as many as may be at a time."""

    def __init__(self, resource: IResource, settings: AdminSettings, clock: IReactorTime) -> None:
        """Serve one resource, whatever the path."""
        super().__init__(resource, requestFactory=_Request, timeout=settings.timeout_s)
        self.settings = settings
        self.clock = clock
        self.channels: set[_Channel] = set()
        self.protocol = _Channel
        # Nobody is told of its requests: what comes with them is nobody else's business.
        self.noisy = False

    def buildProtocol(self, address: IAddress) -> Any:
        """A connection, unless there are too many."""
        if len(self.channels) >= self.settings.max_connections:
            return None
        return super().buildProtocol(address)

    def log(self, request: Request) -> None:
        """Write no log of accesses."""

    def close(self) -> None:
        """Cut all connections."""
        for channel in list(self.channels):
            channel.forceAbortClient()
