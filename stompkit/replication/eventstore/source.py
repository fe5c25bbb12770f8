"""A publisher that announces a session's changes before the commit."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from blinker import Signal
from sqlalchemy.orm import Session

from stompkit.replication.eventstore._keys import key_to_text
from stompkit.replication.eventstore.prepare import forget_session, session_id
from stompkit.replication.model.events import RowChange
from stompkit.replication.model.signals import call_receiver, row_signals, signal
from stompkit.replication.sources.session import sqlalchemy_pub

__all__ = [
    "SESSION_COMMIT",
    "SESSION_PREPARE",
    "SESSION_ROLLBACK",
    "SESSION_UNKNOWN",
    "keys_of",
    "sqlalchemy_es_pub",
]

_log: Final = logging.getLogger(__name__)

#: Sent with a session, and with ``event``, the keys of all rows that its transaction has changed
#: until now, as in ``{"users_write": [7]}``. It is sent inside the transaction, after each flush.
#: An exception of a receiver aborts the transaction.
SESSION_PREPARE: Final = signal("session_prepare")
#: Sent with a session that was committed, after the signals of its rows and of the changeset;
#: ``published`` is True if the receivers of the changeset have accepted it.
SESSION_COMMIT: Final = signal("session_commit")
#: Sent with a session that was rolled back after some of its changes were prepared.
SESSION_ROLLBACK: Final = signal("session_rollback")
#: Sent in place of the two above with a session whose commit has failed without an answer of the
#: database, as when the connection is lost: the changes may be committed.
SESSION_UNKNOWN: Final = signal("session_unknown")


def sqlalchemy_es_pub(
    session_factory: Any, tables: Iterable[str] | None = None, **options: Any
) -> sqlalchemy_pub:
    """Publish as ``sqlalchemy_pub`` does, together with the signals of the session.

    All changes of one outermost transaction have the same id, which is ``source.transaction`` of
    the changeset. :func:`~stompkit.replication.eventstore.prepare.session_id` returns it until
    after the commit or the rollback. ``options`` are those of ``sqlalchemy_pub``.
    """
    return sqlalchemy_pub(
        session_factory,
        tables,
        on_prepare=_prepare,
        on_commit=_commit,
        on_unpublished=_unpublished,
        on_rollback=_rollback,
        on_unknown=_unknown,
        **options,
    )


def keys_of(changes: Iterable[RowChange]) -> dict[str, list[Any]]:
    """Return the keys of changed rows by the names of their signals, with the schema if any.

    Keys are in the order of the changes, without duplicates.
    """
    event: dict[str, dict[str, Any]] = {}
    for change in changes:
        prefix = f"{change.schema}." if change.schema else ""
        for name, key in row_signals(change):
            event.setdefault(prefix + name, {}).setdefault(key_to_text(key), key)
    return {name: list(keys.values()) for name, keys in event.items()}


def _prepare(session: Session, changes: Sequence[RowChange]) -> None:
    session_id(session)
    event = keys_of(changes)
    for receiver in list(SESSION_PREPARE.receivers_for(session)):
        call_receiver(receiver, session, event=event)


def _commit(session: Session, changes: Sequence[RowChange]) -> None:
    _end(SESSION_COMMIT, session, published=True)


def _unpublished(session: Session, changes: Sequence[RowChange]) -> None:
    _end(SESSION_COMMIT, session, published=False)


def _rollback(session: Session, changes: Sequence[RowChange]) -> None:
    _end(SESSION_ROLLBACK, session)


def _unknown(session: Session, changes: Sequence[RowChange]) -> None:
    _end(SESSION_UNKNOWN, session)


def _end(announced: Signal, session: Session, **more: bool) -> None:
    """Send a signal; log its receivers' exceptions, because the transaction has ended."""
    try:
        for receiver in list(announced.receivers_for(session)):
            try:
                call_receiver(receiver, session, **more)
            except Exception:
                _log.exception("a receiver of %s has failed", announced)
    finally:
        forget_session(session)
