"""What a test is told when a broker does not do what its client was asked to wait for."""

from __future__ import annotations

from stompkit.frames import Frame

__all__ = [
    "BrokerSaidError",
    "ClientFailure",
    "ConnectionLost",
    "NothingReceived",
    "Refused",
    "UnexpectedMessage",
]


class ClientFailure(AssertionError):
    """The broker did not do what the client was asked to wait for.

    The message says what came instead, and shows the last frames of the connection. ``reason`` is
    its first line; ``frame`` is the frame that came instead, if one did.
    """

    frame: Frame | None

    def __init__(self, reason: str, trail: str = "", *, frame: Frame | None = None) -> None:
        """Compose the message from the reason and the lines that show the last frames."""
        super().__init__(f"{reason}\n{trail}" if trail else reason)
        self.reason = reason
        self.frame = frame


class Refused(ClientFailure):
    """CONNECT was not answered with a CONNECTED of a version that was offered."""


class BrokerSaidError(ClientFailure):
    """An ERROR frame came while something else was waited for; it is ``frame``."""

    frame: Frame


class NothingReceived(ClientFailure):
    """What was waited for did not come in time."""


class ConnectionLost(ClientFailure):
    """The broker ended the connection, or sent what nobody can read."""


class UnexpectedMessage(ClientFailure):
    """A MESSAGE came where none was expected; it is ``frame``."""

    frame: Frame
