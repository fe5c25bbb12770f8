"""What a client can report: the broker's refusals, its own bounds, and lost connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from twisted.python.failure import Failure

from stompkit.frames import Frame

__all__ = [
    "AttemptTimeout",
    "BrokerError",
    "BufferFull",
    "ClientClosed",
    "ClientError",
    "ConnectFailed",
    "ConnectionGone",
    "LoginRefused",
    "PeerSilent",
    "QueueOverflow",
    "StaleAcknowledgement",
    "SubscriptionEnded",
    "TransactionLost",
    "ignore_gone",
]


class ClientError(Exception):
    """Whatever a client reports that is not a mistake in the use of its methods."""


class BrokerError(ClientError):
    """The broker answered with ERROR.

    ``message`` is the ``message`` header of the frame, ``headers`` are all of its headers, and
    ``body`` is its body. What a broker refuses is not sent again.
    """

    def __init__(self, message: str, headers: Mapping[str, str], body: bytes) -> None:
        """Keep the parts of the frame."""
        super().__init__(message)
        self.message = message
        self.headers = dict(headers)
        self.body = body

    @classmethod
    def of(cls, frame: Frame) -> Self:
        """Make the exception for an ERROR frame, which need not have a message."""
        message = frame.headers.get("message", "the broker gives no reason")
        return cls(message, frame.headers, frame.body)


class LoginRefused(BrokerError):
    """The broker answered CONNECT with ERROR; the client does not try again."""


class ConnectFailed(ClientError):
    """As many attempts to connect as the policy allows have failed in a row.

    ``attempts`` is their number, ``reason`` why the last of them failed.
    """

    def __init__(self, attempts: int, reason: Exception) -> None:
        """Keep the number of attempts and the last reason."""
        super().__init__(f"{attempts} attempts to connect failed; the last: {reason}")
        self.attempts = attempts
        self.reason = reason


class AttemptTimeout(ClientError):
    """Neither a connection nor CONNECTED came in time; the next host is tried."""


class PeerSilent(ClientError):
    """The broker promised heart-beats, and has sent nothing for too long."""


class ClientClosed(ClientError):
    """The client was disconnected, or has given up, before this was done.

    ``reason`` is the error for which it has given up, or ``None`` after ``disconnect``.
    """

    def __init__(self, reason: Exception | None = None) -> None:
        """Keep the reason."""
        why = f"has given up: {reason}" if reason is not None else "is disconnected"
        super().__init__(f"the client {why}")
        self.reason = reason


class BufferFull(ClientError):
    """There is no room for another message in the buffer; it has not been taken."""


class StaleAcknowledgement(ClientError):
    """A transaction can't settle this message: it has no claim on it any more.

    The message came over an earlier connection, or it has been settled already.
    """


class TransactionLost(ClientError):
    """The connection was lost before the broker confirmed the transaction.

    ``outcome_unknown`` is false where COMMIT was not sent: the broker has dropped all of it. It
    is true where COMMIT was sent: the broker has done all of it, or nothing. ``reason`` says
    what became of the connection.
    """

    def __init__(self, *, outcome_unknown: bool, reason: Exception | None) -> None:
        """Keep whether it may have been done after all."""
        what = (
            "nobody knows whether it was committed" if outcome_unknown else "it was not committed"
        )
        super().__init__(f"the connection was lost within the transaction, and {what}")
        self.outcome_unknown = outcome_unknown
        self.reason = reason


class SubscriptionEnded(ClientError):
    """There will be no more messages from this subscription.

    ``reason`` is the error that ended it, or ``None`` after ``unsubscribe`` or ``disconnect``.
    """

    def __init__(self, reason: Exception | None) -> None:
        """Keep the reason."""
        super().__init__("the subscription has ended" + (f": {reason}" if reason else ""))
        self.reason = reason


class QueueOverflow(ClientError):
    """Far more messages came than are read from a subscription, and could not be held back."""


class ConnectionGone(ClientError):
    """A frame that belongs to one connection can't be sent on it, or won't be answered any more.

    Internal: what users see is made of it. ``written`` says whether the frame was sent, and
    ``reason`` what became of the connection, if there was one.
    """

    def __init__(self, *, written: bool, reason: Exception | None = None) -> None:
        """Keep whether the frame was sent."""
        super().__init__("the connection is gone")
        self.written = written
        self.reason = reason


def ignore_gone(failure: Failure) -> None:
    """An errback for what the end of a connection does by itself."""
    if not isinstance(failure.value, ConnectionGone):
        failure.raiseException()
