"""Signals: in-process notifications of the changes that a publisher finds.

The names are Meepo's. For each changed row of a table ``T``:

``T_write``, ``T_update``, ``T_delete``
    sent with the row's key: the value of its single column, a tuple in the order of the key's
    columns, or ``None`` for a table without a key. A row that a snapshot has found is a write.
    An update that changes the key is a delete of the old key and a write of the new one. Receivers
    that store rows by key therefore stay correct.
``T_write_raw``, ``T_update_raw``, ``T_delete_raw``
    sent with the :class:`~stompkit.replication.RowChange`, or with the publisher's payload.

If a publisher qualifies its signals, there are also ``S.T_write`` and so on, for tables of a
schema ``S``. After the rows of a transaction, :data:`CHANGESET` is sent, with all of them.

``mysql_binlog_pos``
    sent by ``mysql_pub`` at the end of a transaction with ``file:position``, and ``gtid``.
``session_prepare``, ``session_commit``, ``session_rollback``, ``session_unknown``
    sent by ``sqlalchemy_es_pub`` with the session; :func:`for_factory` filters sessions.

A receiver takes the payload as its first argument, and any of the keywords that it names. It is
called in the publisher's thread. Signals hold weak references to receivers, unless they are
connected with ``weak=False``, so the caller must keep a reference.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Final

from blinker import ANY, NamedSignal, Signal

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.values import Row

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
#: All signals by name.
_SIGNALS: Final[dict[str, NamedSignal]] = {}

#: Function that makes the payload of a raw signal from a change.
Raw = Callable[[RowChange], object]


class _Heard:
    """The signals that have receivers, or had some."""

    def __init__(self) -> None:
        """Start without signals."""
        self._signals: dict[str, NamedSignal] = {}
        self._lock = threading.RLock()

    def add(self, heard: NamedSignal, connect: Callable[[], Any]) -> Any:
        """Connect a receiver to a signal by the function, and return what it returns."""
        with self._lock:
            self._signals[heard.name] = heard
            return connect()

    def __bool__(self) -> bool:
        """Return True if one of the signals still has a receiver."""
        if not self._signals:
            return False
        with self._lock:
            if any(each.receivers for each in self._signals.values()):
                return True
            # Signals hold receivers weakly, so nobody tells when the last one is gone.
            self._signals.clear()
        return False


_HEARD: Final = _Heard()


class _RowSignal(NamedSignal):
    """A signal of which it is known if it may have receivers."""

    def connect(self, receiver: Any, sender: Any = ANY, weak: bool = True) -> Any:  # noqa: FBT001, FBT002
        """Connect a receiver, as the class above does."""
        connect = super().connect
        return _HEARD.add(self, lambda: connect(receiver, sender, weak))


def signal(name: str) -> Signal:
    """Return the signal of that name; the same object for the same name."""
    # Threads that ask for a new name at once get the same object, too.
    return _SIGNALS.get(name) or _SIGNALS.setdefault(name, _RowSignal(name))


#: Sent with each :class:`~stompkit.replication.model.events.Changeset`. A receiver that stores it
#: elsewhere may return a ``concurrent.futures.Future``, which is done when it is stored. Until
#: then, a resumable publisher resumes before this changeset.
CHANGESET: Final[Signal] = _SIGNALS.setdefault("changeset", NamedSignal("changeset"))


def key_of(key: Row) -> Any:
    """Return a key as signals carry it: a value, a tuple of several, or ``None`` for no key."""
    values = tuple(key.values())
    return values[0] if len(values) == 1 else values or None


def row_signals(change: RowChange) -> Iterator[tuple[str, Any]]:
    """Yield the names, such as ``users_write``, and the keys of a change's signals."""
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
    """Send the signals of a changeset; return the futures of its receivers.

    ``changesets`` is the publisher's own signal for changesets, if it has one. Its receivers are
    called first, and receive from no other publisher. Then the receivers of :data:`CHANGESET` are
    called, which receive from all publishers.

    ``raw`` makes the payload of the raw signals: by default the change itself. An exception of a
    row receiver is logged, and the other receivers are still called. An exception of a changeset
    receiver is raised when all of them have been called.
    """
    # The signals of other tables are not looked at: there may be several for each table.
    if _HEARD:
        for change in changeset.changes:
            _emit_row(change, raw, qualified=qualified)
    futures: list[Future[Any]] = []
    problem: Exception | None = None
    receivers = list(changesets.receivers_for(changeset)) if changesets.receivers else []
    if changesets is not CHANGESET and CHANGESET.receivers:
        receivers += CHANGESET.receivers_for(changeset)
    for receiver in receivers:
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


def has_receivers() -> bool:
    """Return True if a signal of the process has receivers: of a row, or of all publishers."""
    return bool(CHANGESET.receivers) or bool(_HEARD)


def _emit_row(change: RowChange, raw: Raw | None, *, qualified: bool) -> None:
    prefixes = ("", f"{change.schema}.") if qualified and change.schema else ("",)
    for name, key in row_signals(change):
        for prefix in prefixes:
            if _is_heard(prefix + name):
                _send(prefix + name, key)
    if change.action in ("truncate", "schema"):
        return
    action = "write" if change.action == "read" else change.action
    for prefix in prefixes:
        name = f"{prefix}{change.table}_{action}_raw"
        # The payload is made only if there is a receiver.
        if _is_heard(name):
            _send(name, change if raw is None else raw(change))


def _is_heard(name: str) -> bool:
    """Return True if the signal has receivers; one that nobody has asked for is not made."""
    known = _SIGNALS.get(name)
    return known is not None and bool(known.receivers)


def _send(name: str, payload: object) -> None:
    # One by one, since blinker stops at the first exception.
    for receiver in list(_SIGNALS[name].receivers_for(payload)):
        try:
            receiver(payload)
        except Exception:
            _log.exception("a receiver of the signal %s has failed", name)


# Receivers.


def call_receiver(receiver: Callable[..., Any], sender: object, **more: object) -> Any:
    """Call a receiver with the payload, and with those of the keywords that it takes.

    Receivers that were written for Meepo take one argument. Raises the errors of the receiver.
    """
    return receiver(sender, **{name: more[name] for name in _keywords(receiver, *more)})


def _keywords(receiver: Callable[..., Any], *names: str) -> list[str]:
    """Return those of the keywords that a function takes; all if the signature is unknown."""
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
    # The first parameter is the payload, whatever its name.
    taken = {each.name for each in positional[1:] if each.kind is each.POSITIONAL_OR_KEYWORD}
    taken |= {each.name for each in parameters.values() if each.kind is each.KEYWORD_ONLY}
    return [name for name in names if name in taken]


# Sessions.


def for_factory(receiver: Callable[..., Any], factory: object) -> Callable[..., Any]:
    """Return a receiver that accepts only sessions that ``factory`` has made.

    ``factory`` is the publisher's argument: a ``sessionmaker``, a ``scoped_session``, a class of
    sessions, or one session. The caller must also keep a reference to the returned receiver.
    """
    owners = tuple(_owners(factory))

    def receive(session: object, **more: object) -> object:
        if not any(_is_of(session, owner) for owner in owners):
            return None
        return call_receiver(receiver, session, **more)

    return receive


def _owners(factory: object) -> Iterable[object]:
    """Return the classes of the sessions that it makes, or the session that it is."""
    # A scoped_session holds a sessionmaker, which makes sessions of its own subclass.
    maker = getattr(factory, "session_factory", factory)
    kind = getattr(maker, "class_", maker)
    # For an AsyncSession or its factory, use the synchronous session inside.
    given = getattr(maker, "kw", {}).get("sync_session_class")
    yield given or getattr(kind, "sync_session_class", kind)


def _is_of(session: object, owner: object) -> bool:
    return isinstance(session, owner) if isinstance(owner, type) else session is owner
