"""Events of the message store."""

from __future__ import annotations

from twisted.python.failure import Failure

from stompkit.server.log.event import log_event

__all__ = [
    "hosts_not_configured",
    "store_call_failed",
    "store_change_dropped",
    "store_close_failed",
    "store_empty_failed",
    "store_failed",
    "store_log_failed",
    "store_log_kept",
    "store_log_missing",
    "store_read_failed",
    "store_recovered",
    "store_sync_failed",
    "store_without_sync",
]


@log_event(
    "warning",
    "the store has messages or durable subscriptions of {hosts}, which [broker] hosts does not"
    " have: they are kept, but clients cannot reach them",
)
def hosts_not_configured(*, hosts: str) -> None:
    """Virtual hosts were renamed or removed, or introduced for a store without them."""


@log_event("error", "the store has failed: {error}")
def store_failed(*, error: str) -> None:
    """The store has rejected changes; clients get an ERROR until it works again."""


@log_event("info", "the store works again")
def store_recovered() -> None:
    """The store accepts changes again after a failure."""


@log_event("error", "the store cannot be read: {error}")
def store_read_failed(*, error: str) -> None:
    """Messages of a queue cannot be read from the store."""


@log_event("error", "the store cannot sync: {error}")
def store_sync_failed(*, error: str) -> None:
    """Changes are written, but may not be on the disk yet; the broker tries again."""


@log_event("error", "the store cannot be emptied: {error}")
def store_empty_failed(*, error: str) -> None:
    """A reset of the broker could not delete the content of the store."""


@log_event("error", "the store was not closed properly: {error}")
def store_close_failed(*, error: str) -> None:
    """The last changes may not be on the disk."""


@log_event("error", "a call of the store failed unexpectedly")
def store_call_failed(*, failure: Failure) -> None:
    """A defect of the store; the broker treats it as a failure of the store."""


@log_event("error", "a change in the log of the store is invalid and was dropped: {error}")
def store_change_dropped(*, error: str) -> None:
    """A damaged change, which would block all others, was removed from the store's log."""


@log_event("warning", "the changes in the log of the store stay there: {error}")
def store_log_kept(*, error: str) -> None:
    """Changes cannot be moved from the store's log to its database, since the disk is full."""


@log_event("warning", "the store works without its log, which cannot be opened: {error}")
def store_log_missing(*, error: str) -> None:
    """The store writes each change directly to its database, which is slower."""


@log_event("warning", "the log of the store cannot be written: {error}")
def store_log_failed(*, error: str) -> None:
    """A change was not added to the store's log, and goes directly to its database."""


@log_event(
    "warning",
    "{store} does not sync at each commit: innodb_flush_log_at_trx_commit of the server is"
    " {value}, not 1",
)
def store_without_sync(*, store: str, value: str) -> None:
    """A database can lose messages for which senders have a receipt."""
