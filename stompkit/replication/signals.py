"""Signals: how a program hears, while it runs, of what a publisher has found.

The names are Meepo's. For each changed row of a table ``T``:

``T_write``, ``T_update``, ``T_delete``
    sent with the row's key: the value of the one column that it has, a tuple in the order of the
    key's columns, or ``None`` for a table without a key. A row that a snapshot has found is a
    write. An update that changes the key is a delete of the old key and a write of the new one,
    so that whoever keeps rows by their keys keeps the right ones.
``T_write_raw``, ``T_update_raw``, ``T_delete_raw``
    sent with the :class:`~stompkit.replication.events.RowChange`, or with what the publisher says.

Where a publisher qualifies its signals there are ``S.T_write`` and so on, too, for tables of a
schema ``S``. After the rows of a transaction comes :data:`CHANGESET`, with all of them.

``mysql_binlog_pos``
    sent by ``mysql_pub`` with ``file:position`` where a transaction has ended, and ``gtid``.
``session_prepare``, ``session_commit``, ``session_rollback``
    sent by ``sqlalchemy_es_pub`` with the session; :func:`for_factory` tells sessions apart.

A receiver takes what is sent as its first argument, and those of the keywords that it names. It is
called in the thread of the publisher, and has to be held by somebody: signals refer to their
receivers weakly, unless they are connected with ``weak=False``.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Final

from blinker import Namespace, Signal

from stompkit.replication.events import Changeset, RowChange
from stompkit.replication.values import Row

__all__ = [
    "CHANGESET",
    "Raw",
    "call_receiver",
    "emit",
    "for_factory",
    "key_of",
    "row_signals",
    "signal",
]

_log: Final = logging.getLogger(__name__)
_NAMESPACE: Final = Namespace()

#: What is sent with the raw signal of a change, given its action as in the signal's name.
Raw = Callable[[RowChange], object]


def signal(name: str) -> Signal:
    """The signal of that name; the same one for the same name."""
    return _NAMESPACE.signal(name)


#: Sent with each :class:`~stompkit.replication.events.Changeset`. A receiver that takes it to where
#: it is to be kept may return a ``concurrent.futures.Future``, which is done when it is kept there:
#: until then a publisher that can be resumed resumes before this changeset.
CHANGESET: Final = signal("changeset")


def key_of(key: Row) -> Any:
    """A key as signals have it: a value, a tuple of several, or ``None`` for no key."""
    values = tuple(key.values())
    return values[0] if len(values) == 1 else values or None


def row_signals(change: RowChange) -> Iterator[tuple[str, Any]]:
    """The names, such as ``users_write``, and the keys of a change's signals."""
    match change.action:
        case "write" | "read":
            yield f"{change.table}_write", key_of(change.key)
        case "update" if change.old_key is not None:
            yield f"{change.table}_delete", key_of(change.old_key)
            yield f"{change.table}_write", key_of(change.key)
        case "update" | "delete":
            yield f"{change.table}_{change.action}", key_of(change.key)


def emit(
    changeset: Changeset,
    *,
    raw: Raw | None = None,
    qualified: bool = True,
    changesets: Signal = CHANGESET,
) -> list[Future[Any]]:
    """Send the signals of a changeset; gives the futures of those who take it somewhere.

    ``changesets`` is the publisher's own signal for changesets, if it has one: its receivers come
    first, and hear of no other publisher; then come those of :data:`CHANGESET`, who hear all.

    ``raw`` makes what is sent with the raw signals: by default the change itself. An exception of
    a receiver of rows is logged, and keeps nobody else from hearing. Raises what a receiver of
    changesets raises, when all of them have been called.
    """
    # Names that nobody listens to are not even made. Other threads may make signals meanwhile.
    known = _NAMESPACE.copy()
    heard = {name for name, each in known.items() if each.receivers and each is not CHANGESET}
    if heard:
        for change in changeset.changes:
            _emit_row(change, raw, heard, qualified=qualified)
    futures: list[Future[Any]] = []
    problem: Exception | None = None
    signals = [CHANGESET] if changesets is CHANGESET else [changesets, CHANGESET]
    for receiver in [each for one in signals for each in one.receivers_for(changeset)]:
        try:
            given = receiver(changeset)
        except Exception as error:
            problem = error
        else:
            if isinstance(given, Future):
                futures.append(given)
    if problem is not None:
        raise problem
    return futures


def _emit_row(change: RowChange, raw: Raw | None, heard: set[str], *, qualified: bool) -> None:
    prefixes = ("", f"{change.schema}.") if qualified and change.schema else ("",)
    for name, key in row_signals(change):
        for prefix in prefixes:
            if prefix + name in heard:
                _send(prefix + name, key)
    if change.action in ("truncate", "schema"):
        return
    action = "write" if change.action == "read" else change.action
    for prefix in prefixes:
        name = f"{prefix}{change.table}_{action}_raw"
        # The payload is made for somebody only.
        if name in heard:
            _send(name, change if raw is None else raw(change))


def _send(name: str, payload: object) -> None:
    # One by one, since blinker stops at the first exception.
    for receiver in list(_NAMESPACE[name].receivers_for(payload)):
        try:
            receiver(payload)
        except Exception:
            _log.exception("a receiver of the signal %s has failed", name)


# Receivers.


def call_receiver(receiver: Callable[..., Any], sender: object, **more: object) -> Any:
    """Call a receiver with what is sent, and with those of the keywords that it takes.

    Receivers that were written for Meepo take one argument. Raises what the receiver raises.
    """
    return receiver(sender, **{name: more[name] for name in _keywords(receiver, *more)})


def _keywords(receiver: Callable[..., Any], *names: str) -> list[str]:
    """Which of these keywords a function takes; all where that can't be known."""
    try:
        parameters = inspect.signature(receiver).parameters
    except (TypeError, ValueError):
        return list(names)
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return list(names)
    positional = [
        each
        for each in parameters.values()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    # The first one is what is sent, whatever it is called.
    taken = {each.name for each in positional[1:] if each.kind is each.POSITIONAL_OR_KEYWORD}
    taken |= {each.name for each in parameters.values() if each.kind is each.KEYWORD_ONLY}
    return [name for name in names if name in taken]


# Sessions.


def for_factory(receiver: Callable[..., Any], factory: object) -> Callable[..., Any]:
    """A receiver that hears only of sessions that ``factory`` has made.

    ``factory`` is what a publisher was given: a ``sessionmaker``, a ``scoped_session``, a class of
    sessions, or one session. The receiver that is given back has to be held, too.
    """
    owners = tuple(_owners(factory))

    def receive(session: object, **more: object) -> object:
        if not any(_is_of(session, owner) for owner in owners):
            return None
        return call_receiver(receiver, session, **more)

    return receive


def _owners(factory: object) -> Iterable[object]:
    """Classes of the sessions that it makes, or the session that it is."""
    # A scoped_session holds a sessionmaker; that makes sessions of a class of its own.
    maker = getattr(factory, "session_factory", factory)
    kind = getattr(maker, "class_", maker)
    # An AsyncSession, and who makes it, stands for the session that it has inside.
    given = getattr(maker, "kw", {}).get("sync_session_class")
    yield given or getattr(kind, "sync_session_class", kind)


def _is_of(session: object, owner: object) -> bool:
    return isinstance(session, owner) if isinstance(owner, type) else session is owner
