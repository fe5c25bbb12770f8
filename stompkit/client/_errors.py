"""Errors of a client: refusals by the broker, exceeded limits, and lost connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

from twisted.python.failure import Failure

from stompkit.frames import Frame

__all__ = [
    "AttemptTimeoutError",
    "BrokerError",
    "BufferFullError",
    "ClientClosedError",
    "ClientError",
    "ConnectFailedError",
    "ConnectionGoneError",
    "LoginRefusedError",
    "PeerSilentError",
    "QueueOverflowError",
    "StaleAcknowledgementError",
    "SubscriptionEndedError",
    "TransactionLostError",
    "ignore_gone",
]


#: Codes of a stompkit broker that end any connection, and say nothing about the login.
_TEMPORARY: Final = frozenset(
    {
        "closed-by-operator",
        "heart-beat-timeout",
        "login-timeout",
        "not-active",
        "shutting-down",
        "slow-reader",
        "too-many-connections",
    }
)


class ClientError(Exception):
    """Base class of the errors that a client reports, except incorrect calls of its methods."""


class BrokerError(ClientError):
    """The broker answered with ERROR.

    ``message`` is the ``message`` header of the frame, ``headers`` are all of its headers, and
    ``body`` is its body. A refused frame is not resent.
    """

    def __init__(self, message: str, headers: Mapping[str, str], body: bytes) -> None:
        """Store the parts of the frame."""
        super().__init__(message)
        self.message = message
        self.headers = dict(headers)
        self.body = body

    @classmethod
    def of(cls, frame: Frame) -> Self:
        """Create the exception for an ERROR frame, with or without a ``message`` header."""
        message = frame.headers.get("message", "the broker gives no reason")
        return cls(message, frame.headers, frame.body)

    @property
    def is_temporary(self) -> bool:
        """True if the code says that the broker ends the connection for another reason."""
        return self.headers.get("stompkit-code") in _TEMPORARY


class LoginRefusedError(BrokerError):
    """The broker answered CONNECT with ERROR.

    The client does not try this host again, unless the refusal is temporary.
    """


class ConnectFailedError(ClientError):
    """The maximum number of consecutive attempts to connect has failed.

    ``attempts`` is that number; ``reason`` is the error of the last attempt.
    """

    def __init__(self, attempts: int, reason: Exception) -> None:
        """Store the number of attempts and the last error."""
        super().__init__(f"{attempts} attempts to connect failed; the last: {reason}")
        self.attempts = attempts
        self.reason = reason


class AttemptTimeoutError(ClientError):
    """A connection or CONNECTED did not arrive in time; the next host is tried."""


class PeerSilentError(ClientError):
    """The broker agreed to send heart-beats, and has sent nothing for too long."""


class ClientClosedError(ClientError):
    """The client was disconnected, or gave up, before the operation completed.

    ``reason`` is the error that made it give up, or ``None`` after ``disconnect``.
    """

    def __init__(self, reason: Exception | None = None) -> None:
        """Store the reason."""
        why = f"has given up: {reason}" if reason is not None else "is disconnected"
        super().__init__(f"the client {why}")
        self.reason = reason


class BufferFullError(ClientError):
    """The send buffer is full; the message was not accepted."""


class StaleAcknowledgementError(ClientError):
    """A transaction cannot settle this message.

    The message was received on an earlier connection, or is settled already.
    """


class TransactionLostError(ClientError):
    """The connection was lost before the broker confirmed the transaction.

    ``outcome_unknown`` is false if COMMIT was not sent: the broker has rolled back the transaction.
    It is true if COMMIT was sent: the broker has applied all of it, or nothing. ``reason`` is the
    error that ended the connection.
    """

    def __init__(self, *, outcome_unknown: bool, reason: Exception | None) -> None:
        """Store whether the transaction may have been committed."""
        what = (
            "nobody knows whether it was committed" if outcome_unknown else "it was not committed"
        )
        super().__init__(f"the connection was lost within the transaction, and {what}")
        self.outcome_unknown = outcome_unknown
        self.reason = reason


class SubscriptionEndedError(ClientError):
    """The subscription delivers no more messages.

    ``reason`` is the error that ended it, or ``None`` after ``unsubscribe`` or ``disconnect``.
    """

    def __init__(self, reason: Exception | None) -> None:
        """Store the reason."""
        super().__init__("the subscription has ended" + (f": {reason}" if reason else ""))
        self.reason = reason


class QueueOverflowError(ClientError):
    """The queue of a subscription exceeded its limits while reading could not be paused."""


class ConnectionGoneError(ClientError):
    """A frame bound to a lost connection cannot be sent, or receives no answer any more.

    Internal: the public errors are created from it. ``written`` is true if the frame was sent;
    ``reason`` is the error that ended the connection, if there was one. ``is_suspect`` is true if
    that is an ERROR of the broker that names no frame, and this frame is the first unanswered one.
    """

    def __init__(
        self, *, written: bool, reason: Exception | None = None, is_suspect: bool = False
    ) -> None:
        """Store whether the frame was sent, and whether it can be the reason."""
        super().__init__("the connection is gone")
        self.written = written
        self.reason = reason
        self.is_suspect = is_suspect


def ignore_gone(failure: Failure) -> None:
    """Ignore :class:`ConnectionGoneError`, as an errback; raise other errors again."""
    if not isinstance(failure.value, ConnectionGoneError):
        failure.raiseException()
