"""Errors raised when a broker does not do what a client waits for."""

from __future__ import annotations

from stompkit.frames import Frame

__all__ = [
    "BrokerSaidError",
    "ClientFailureError",
    "ConnectionLostError",
    "NothingReceivedError",
    "RefusedError",
    "UnexpectedMessageError",
]


class ClientFailureError(AssertionError):
    """The broker did not do what the client waited for.

    The message says what came instead, and shows the last frames of the connection. ``reason`` is
    its first line; ``frame`` is the frame that came instead, if one did.
    """

    frame: Frame | None

    def __init__(self, reason: str, trail: str = "", *, frame: Frame | None = None) -> None:
        """Compose the message from the reason and the lines that show the last frames."""
        super().__init__(f"{reason}\n{trail}" if trail else reason)
        self.reason = reason
        self.frame = frame


class RefusedError(ClientFailureError):
    """CONNECT was not answered with a CONNECTED of a version that was offered."""


class BrokerSaidError(ClientFailureError):
    """An ERROR frame came while the client waited for something else; ``frame`` holds it."""

    frame: Frame


class NothingReceivedError(ClientFailureError):
    """The awaited frame or event did not come before the timeout."""


class ConnectionLostError(ClientFailureError):
    """The broker closed the connection, or sent bytes that cannot be parsed."""


class UnexpectedMessageError(ClientFailureError):
    """A MESSAGE came where none was expected; it is ``frame``."""

    frame: Frame
