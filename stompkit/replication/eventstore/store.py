"""The event store: which rows have changed and when, optionally with full changesets."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Final, Literal, overload

import msgspec

from stompkit.replication.eventstore._keys import key_from_text, key_to_text
from stompkit.replication.model.events import Changeset, decode, encode

__all__ = ["DEFAULT_TTL_S", "EventStore", "Namespace", "life_s"]

_log: Final = logging.getLogger(__name__)

#: Default time to live in seconds: three days.
DEFAULT_TTL_S: Final = 259200

#: Namespace that separates the stores on a server. It is a name, or a function from a time, in
#: seconds since 1970, to a name, such as the day. The function must be deterministic.
Namespace = str | Callable[[float], str]


class EventStore(ABC):
    """Stores the last time of each kind of event, such as ``users_write``, for each key.

    With ``history`` it also stores whole changesets, in order and with their content, so that later
    changes do not overwrite them.

    Keys keep their types, such as numbers, text, UUIDs, or tuples of them. Times are in seconds
    since 1970, with fractions, and default to the server's time. All data expires ``ttl`` seconds
    after it was added, by the server's clock, independently of the event's time.

    A store is thread-safe.
    """

    #: Errors of a server that is unavailable, slow or failing.
    _problems: ClassVar[tuple[type[Exception], ...]]

    def __init__(
        self,
        namespace: Namespace,
        ttl: float | None = DEFAULT_TTL_S,
        *,
        strict: bool = False,
        history: bool = False,
    ) -> None:
        """Configure a store; with ``ttl`` ``None``, data never expires.

        If the server fails, methods that add to a store return ``False`` and log it; with
        ``strict`` they raise the driver's error. Methods that read always raise it. Raises
        ``ValueError`` for a ``ttl`` that is not above zero.
        """
        self._namespace = namespace
        self._ttl = life_s(ttl)
        self._strict = strict
        self._history = history
        self._closing: list[Callable[[], object]] = []

    @property
    def has_history(self) -> bool:
        """True if whole changesets are stored."""
        return self._history

    # The last time of each key.

    def add(self, event: str, pk: Any, ts: float | None = None, ttl: float | None = None) -> bool:
        """Record an event for a key, unless a later time is stored already.

        ``ts`` is the server's time by default, ``ttl`` that of the store. Raises ``ValueError`` for
        a key without a JSON form, and for a time before 1970.
        """
        return self.add_many([(event, pk)], ts, ttl)

    def add_many(
        self,
        events: Iterable[tuple[str, Any]],
        ts: float | None = None,
        ttl: float | None = None,
    ) -> bool:
        """Record several events, each with its key, in one operation; see :meth:`add`."""
        time = None if ts is None else _checked_time(ts)
        life = self._ttl if ttl is None else life_s(ttl)
        texts: dict[str, list[str]] = {}
        for event, pk in events:
            texts.setdefault(event, []).append(key_to_text(pk))
        if not texts:
            return True
        return self._try(f"{', '.join(texts)} not stored", self._add, texts, time, life)

    @overload
    def replay(
        self,
        event: str,
        ts: float = ...,
        end_ts: float | None = ...,
        with_ts: Literal[False] = ...,
    ) -> list[Any]: ...

    @overload
    def replay(
        self, event: str, ts: float = ..., end_ts: float | None = ..., *, with_ts: Literal[True]
    ) -> list[tuple[Any, float]]: ...

    @overload
    def replay(
        self, event: str, ts: float, end_ts: float | None, with_ts: Literal[True]
    ) -> list[tuple[Any, float]]: ...

    def replay(
        self,
        event: str,
        ts: float = 0,
        end_ts: float | None = None,
        with_ts: bool = False,  # noqa: FBT001, FBT002 - as Meepo has it
    ) -> list[Any] | list[tuple[Any, float]]:
        """Return the keys of an event from ``ts`` to ``end_ts``, both included.

        They are ordered by time. All namespaces are read. A key in several namespaces is returned
        once, with its latest time in the range. With ``with_ts`` each comes with its time.
        """
        end = math.inf if end_ts is None else float(end_ts)
        latest: dict[str, float] = {}
        for text, time in self._read(event, float(ts), end):
            latest[text] = max(time, latest.get(text, time))
        ordered = sorted((time, text) for text, time in latest.items())
        if with_ts:
            return [(key_from_text(text), time) for time, text in ordered]
        return [key_from_text(text) for _, text in ordered]

    def query(self, event: str, pk: Any, ts: float | None = None) -> float | None:
        """Return the last time of an event for a key; ``None`` if unknown.

        With ``ts``, only the namespace of that time is read, and only events at that time or later.
        """
        found = self._query(event, key_to_text(pk), ts)
        return None if found is None or (ts is not None and found < ts) else found

    @abstractmethod
    def clear(self, event: str, ts: float | None = None) -> int:
        """Delete all keys of an event, or with ``ts`` those in the namespace of that time.

        Returns their number. The history stays.
        """

    # The history.

    def append(self, changeset: Changeset, ts: float | None = None) -> bool:
        """Store a changeset with the time ``ts``, by default the server's time.

        A changeset whose ``id`` is already in the namespace is not stored again. Raises
        ``RuntimeError`` for a store without history, and ``InvalidValueError`` for values without a
        JSON form.
        """
        self._demand_history()
        time = None if ts is None else _checked_time(ts)
        body = encode(changeset)
        return self._try(
            f"changeset {changeset.id} not stored", self._append, changeset.id, body, time
        )

    def events(
        self, *, since: float = 0, until: float | None = None, table: str | None = None
    ) -> Iterator[tuple[float, Changeset]]:
        """Yield the changesets from ``since`` to ``until``, both included, with their times.

        They are ordered by time; those with equal times by insertion. With ``table``, as ``orders``
        or ``shop.orders``, they contain only the changes of that table, and changesets without any
        are skipped. Raises ``RuntimeError`` for a store without history.
        """
        self._demand_history()
        for time, body in self._bodies(float(since), math.inf if until is None else float(until)):
            changeset = decode(body)
            if table is not None:
                kept = tuple(each for each in changeset.changes if table in (each.table, each.name))
                if not kept:
                    continue
                changeset = msgspec.structs.replace(changeset, changes=kept)
            yield time, changeset

    # Upkeep.

    @abstractmethod
    def prune(self) -> int:
        """Remove expired data, which is no longer returned; return the number of items."""

    def on_close(self, callback: Callable[[], object]) -> None:
        """Call *callback* once when the store is closed, to stop its subscriptions."""
        self._closing.append(callback)

    def close(self) -> None:
        """Stop the store's subscriptions, and disconnect. The next use reconnects."""
        while self._closing:
            self._closing.pop()()
        self._disconnect()

    # Methods of the subclasses.

    @abstractmethod
    def _disconnect(self) -> None:
        """Disconnect from the server."""

    @abstractmethod
    def _add(self, events: dict[str, list[str]], ts: float | None, ttl: float) -> None:
        """Record the keys of each event."""

    @abstractmethod
    def _read(self, event: str, ts: float, end_ts: float) -> Iterable[tuple[str, float]]:
        """Return keys and times of this store's namespaces, in any order."""

    @abstractmethod
    def _query(self, event: str, text: str, ts: float | None) -> float | None:
        """Return the last time of a key."""

    @abstractmethod
    def _append(self, id: str, body: bytes, ts: float | None) -> None:
        """Store a changeset."""

    @abstractmethod
    def _bodies(self, since: float, until: float) -> Iterator[tuple[float, bytes]]:
        """Yield times and changesets, in order."""

    def _try(self, problem: str, write: Callable[..., None], *arguments: object) -> bool:
        try:
            write(*arguments)
        except self._problems as error:
            if self._strict:
                raise
            _log.error("%s: %s", problem, error)
            return False
        return True

    def _demand_history(self) -> None:
        if not self._history:
            raise RuntimeError("this store has no history: make it with history=True")

    def _name(self, ts: float) -> str:
        """Return the namespace of a time."""
        return self._namespace if isinstance(self._namespace, str) else self._namespace(ts)


def _checked_time(ts: float) -> float:
    time = float(ts)
    if not 0 <= time < math.inf:
        raise ValueError(f"{ts} is no time in seconds since 1970")
    return time


def life_s(ttl: float | None) -> float:
    """Return a time to live in seconds, infinity for ``None``; raises ``ValueError`` for 0."""
    if ttl is None:
        return math.inf
    if not ttl > 0:
        raise ValueError(f"a ttl is above zero seconds, and not {ttl}")
    # More than three centuries count as infinite, because Redis would refuse the number.
    return float(ttl) if ttl < 1e10 else math.inf
