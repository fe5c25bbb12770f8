"""The used part of Twisted's request class, which has no types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress

__all__ = ["HttpRequest"]


class HttpRequest(Protocol):
    """An HTTP request and its response."""

    method: bytes
    path: bytes
    args: Mapping[bytes, list[bytes]]
    content: BinaryIO

    def getClientAddress(self) -> IAddress:
        """Return the address of the client."""

    def isSecure(self) -> bool:
        """Return True for TLS."""

    def getHeader(self, name: bytes) -> bytes | None:
        """Return a header of the request."""

    def setHeader(self, name: str, value: str) -> None:
        """Set a header of the response."""

    def setResponseCode(self, code: int) -> None:
        """Set the status of the response."""

    def write(self, data: bytes) -> None:
        """Send bytes of the body."""

    def finish(self) -> None:
        """End the response."""

    def notifyFinish(self) -> Deferred[None]:
        """Return a Deferred that fires when the response or the connection has ended."""

    def registerProducer(self, producer: object, streaming: bool) -> None:  # noqa: FBT001 (Twisted's)
        """Register the producer to pause when the buffer is full."""

    def unregisterProducer(self) -> Any:
        """Unregister the producer."""
