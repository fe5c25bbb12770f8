"""The contract of a stream transport."""

from __future__ import annotations

from typing import Protocol

from twisted.internet.interfaces import IAddress

__all__ = ["StreamTransport"]


class StreamTransport(Protocol):
    """The methods used of a stream transport, TCP or TLS."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def writeSequence(self, data: list[bytes]) -> None:
        """Send pieces, in order."""

    def loseConnection(self) -> None:
        """Close after everything is sent."""

    def abortConnection(self) -> None:
        """Close at once."""

    def loseWriteConnection(self) -> None:
        """Close the sending half."""

    def pauseProducing(self) -> None:
        """Stop reading."""

    def resumeProducing(self) -> None:
        """Resume reading."""

    def registerProducer(self, producer: object, streaming: bool) -> None:  # noqa: FBT001 (Twisted's)
        """Register the producer to pause when the buffer is full."""

    def unregisterProducer(self) -> None:
        """Unregister the producer."""

    def getPeer(self) -> IAddress:
        """Return the address of the peer."""
