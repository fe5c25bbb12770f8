"""HTTP connections with limits, for servers of Twisted."""

# mypy: disable-error-code="no-untyped-call"
# Most of Twisted's HTTP code has no types.

from __future__ import annotations

from typing import Any, Final, cast

from twisted.internet.interfaces import (
    IAddress,
    IReactorTime,
    ITCPTransport,
    ITransport,
)
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.resource import IResource
from twisted.web.server import Request, Site

from stompkit._common.peers import Clock, PeerDeadline, has_unread

__all__ = ["LimitedSite"]

_MOST_HEAD_BYTES: Final = 96 * 1024
#: First byte of a client that speaks TLS.
_TLS: Final = b"\x16"


class _Request(Request):
    """A request with a size-limited body that is never parsed as a form."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._body_bytes = 0
        self._content_types: list[bytes] = []

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Pass the request on without its content type, so that Twisted does not parse a form.

        Twisted's form parser fails on a content type that contains a line end.
        """
        headers = self.requestHeaders
        self._content_types = list(headers.getRawHeaders(b"content-type") or ())
        headers.removeHeader(b"content-type")
        super().requestReceived(command, path, version)

    def process(self) -> None:
        """Answer the request, with all its headers."""
        if self._content_types:
            self.requestHeaders.setRawHeaders(b"content-type", self._content_types)
        super().process()

    def gotLength(self, length: int | None) -> None:
        """Refuse a request whose declared length is too large."""
        super().gotLength(length)
        if length is not None:
            self._check(length)

    def handleContentChunk(self, data: bytes) -> None:
        """Add a part of the body, unless it becomes too large."""
        self._body_bytes += len(data)
        if self._check(self._body_bytes):
            super().handleContentChunk(data)

    def _check(self, octets: int) -> bool:
        channel = cast("_Channel", self.channel)
        if octets > channel.site.max_body_bytes:
            channel.refuse(channel.site.refusal)
            # A file, if the body is large or of unknown length.
            if self.content is not None:
                self.content.close()
        return not channel.is_over


class _Channel(HTTPChannel):
    """A connection that must send each request within a time limit."""

    site: LimitedSite
    # The longest names, with each character as a dozen of %XX, must fit into a query.
    totalHeadersSize = _MOST_HEAD_BYTES
    MAX_LENGTH = _MOST_HEAD_BYTES

    def __init__(self) -> None:
        super().__init__()
        #: True if no more input is accepted from the client.
        self.is_over = False
        self._has_input = False
        self._deadline: PeerDeadline | None = None

    def connectionMade(self) -> None:
        """Start to wait for the first request."""
        super().connectionMade()
        self.site.channels.add(self)
        transport = self.transport
        if ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(True)

    def dataReceived(self, data: bytes) -> None:
        """Process bytes, and start the time limit of a new request."""
        if self.is_over:
            return
        if data[:1] == _TLS and not self._has_input:
            # The client waits for an answer of TLS.
            self.is_over = True
            cast("ITransport", self.transport).loseConnection()
            return
        self._has_input = True
        if self._deadline is None and not self._handlingRequest:
            timeout_s = self.site.timeout_s
            clock = cast("Clock", self.site.clock)
            self._deadline = PeerDeadline(clock, lambda: has_unread(self.transport), self._is_late)
            self._deadline.start(timeout_s)
        super().dataReceived(data)

    def allContentReceived(self) -> None:
        """Stop the time limit, and answer the request."""
        self._cancel()
        if not self.is_over:
            super().allContentReceived()

    def refuse(self, answer: bytes) -> None:
        """Write a last response and close, once."""
        if self.is_over:
            return
        self.is_over = True
        transport = cast("ITransport", self.transport)
        transport.write(answer)
        transport.loseConnection()

    def timeoutConnection(self) -> None:
        """Close an idle connection, unless a request has just arrived."""
        if has_unread(self.transport):
            self.resetTimeout()
        else:
            super().timeoutConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Remove the connection."""
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


class LimitedSite(Site):
    """Creates the connections, up to a maximum number."""

    # HTTP/2 is never negotiated.
    protocol = _Channel  # type: ignore[assignment]  # a factory, says Twisted
    noisy = False

    def __init__(
        self,
        resource: IResource,
        clock: IReactorTime,
        *,
        refusal: bytes,
        max_body_bytes: int,
        max_connections: int,
        timeout_s: float,
    ) -> None:
        """Serve one resource, whatever the path.

        ``refusal`` is the response to a request with more than ``max_body_bytes``. A request has to
        be there within ``timeout_s`` seconds, and an idle connection has to send one.
        """
        super().__init__(resource, requestFactory=_Request, timeout=timeout_s, reactor=clock)
        self.clock = clock
        self.refusal = refusal
        self.max_body_bytes = max_body_bytes
        self.max_connections = max_connections
        self.timeout_s = timeout_s
        self.channels: set[_Channel] = set()

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Return a connection, or None if there are too many."""
        if len(self.channels) >= self.max_connections:
            return None
        return super().buildProtocol(addr)

    def log(self, request: object) -> None:
        """Write no access log: requests may contain private data."""

    def close(self) -> None:
        """Abort all connections."""
        for channel in list(self.channels):
            channel.forceAbortClient()
