"""Events of the admin HTTP interface: changes by operators."""

from __future__ import annotations

from twisted.python.failure import Failure

from stompkit.server.log.event import log_event

__all__ = [
    "admin_error",
    "change_refused",
    "connection_closed",
    "destination_deleted",
    "durable_deleted",
    "durable_handed_over",
    "letters_retried",
    "message_published",
    "messages_deleted",
    "messages_moved",
    "messages_purged",
    "queue_paused",
    "queue_resumed",
    "token_refused",
]


@log_event("info", "{destination!a} was paused[ by {peer}]")
def queue_paused(*, host: str, destination: str, peer: str = "") -> None:
    """An operator has stopped the deliveries of a queue."""


@log_event("info", "{destination!a} was resumed[ by {peer}]")
def queue_resumed(*, host: str, destination: str, peer: str = "") -> None:
    """An operator has resumed the deliveries of a queue."""


@log_event("info", "{count} messages of {destination!a} were purged[ by {peer}]")
def messages_purged(*, host: str, destination: str, count: int, peer: str = "") -> None:
    """An operator has deleted the waiting messages of a queue."""


@log_event("info", "{count} messages of {destination!a} were deleted[ by {peer}]")
def messages_deleted(*, host: str, destination: str, count: int, peer: str = "") -> None:
    """An operator has deleted selected messages of a queue."""


@log_event("info", "{count} messages of {destination!a} were moved to {target!a}[ by {peer}]")
def messages_moved(*, host: str, destination: str, target: str, count: int, peer: str = "") -> None:
    """An operator has moved messages from one queue to another."""


@log_event("info", "{count} dead letters of {destination!a} were retried[ by {peer}]")
def letters_retried(*, host: str, destination: str, count: int, peer: str = "") -> None:
    """An operator has returned dead letters to their original queues."""


@log_event("info", "a message to {destination!a} was published[ by {peer}]")
def message_published(*, host: str, destination: str, peer: str = "") -> None:
    """An operator has sent a message."""


@log_event("info", "{destination!a} was deleted[ by {peer}]")
def destination_deleted(*, host: str, destination: str, peer: str = "") -> None:
    """An operator has deleted a destination and its messages."""


@log_event("info", "the durable subscription {destination!a} was deleted[ by {peer}]")
def durable_deleted(*, host: str, destination: str, peer: str = "") -> None:
    """An operator has deleted a durable subscription and its messages."""


@log_event(
    "info", "the durable subscription {destination!a} was handed over[ to {user!a}][ by {peer}]"
)
def durable_handed_over(*, host: str, destination: str, user: str, peer: str = "") -> None:
    """An operator has given a durable subscription to a user; empty is its next user."""


@log_event("warning", "the operation {operation} was refused[ to {peer}]: {reason}")
def change_refused(*, operation: str, code: str, reason: str, peer: str = "") -> None:
    """A change was refused because its sender may only read, or is a page of another site."""


@log_event("warning", "a request[ of {peer}] for the admin API was refused: its token is wrong")
def token_refused(*, peer: str = "") -> None:
    """A request with a wrong token was refused; a program may use the token of before."""


@log_event("info", "connection {connection} of {client} was closed[ by {peer}]")
def connection_closed(*, connection: str, client: str, user: str = "", peer: str = "") -> None:
    """An operator has closed the connection of a client, whose user is ``user``."""


@log_event("error", "a request of the admin interface failed")
def admin_error(*, failure: Failure) -> None:
    """A defect of the broker; the operator gets the status 500."""
