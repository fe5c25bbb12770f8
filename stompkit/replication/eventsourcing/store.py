"""What an event store is: which rows have changed when, and, if wanted, how."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Final, Literal, overload

import msgspec

from stompkit.replication.events import Changeset, decode, encode
from stompkit.replication.eventsourcing._keys import key_from_text, key_to_text

__all__ = ["DEFAULT_TTL_S", "EventStore", "Namespace", "life_s"]

_log: Final = logging.getLogger(__name__)

#: Three days, in seconds.
DEFAULT_TTL_S: Final = 259200

#: What keeps stores apart that share a server: a name, or what gives one for a time, such as the
#: day of it, in seconds since 1970. It has to give the same name for the same time always.
Namespace = str | Callable[[float], str]


class EventStore(ABC):
    """For each kind of event, such as ``users_write``, the time when it last befell each key.

    With ``history`` it also keeps whole changesets, in their order and with what is in them, so
    that nothing is lost by what comes later.

    Keys come back as what they were, be it numbers, text, UUIDs, or tuples of them. Times are in
    seconds since 1970, with their fractions, and the server's where none is given. Everything is
    kept for ``ttl`` seconds after it was added, by the server's clock, too, whatever time it was
    added with.

    A store can be used by several threads.
    """

    #: What a server that is away, slow or in trouble fails with.
    _problems: ClassVar[tuple[type[Exception], ...]]

    def __init__(
        self,
        namespace: Namespace,
        ttl: float | None = DEFAULT_TTL_S,
        *,
        strict: bool = False,
        history: bool = False,
    ) -> None:
        """Describe a store; ``ttl`` ``None`` is for ever.

        What adds to a store gives ``False`` where its server fails, and logs it; with ``strict`` it
        raises what the driver does. What reads always raises it. Raises ``ValueError`` for a
        ``ttl`` that is not above zero.
        """
        self._namespace = namespace
        self._ttl = life_s(ttl)
        self._strict = strict
        self._history = history
        self._closing: list[Callable[[], object]] = []

    @property
    def has_history(self) -> bool:
        """Whether whole changesets are kept."""
        return self._history

    # The last time of each key.

    def add(self, event: str, pk: Any, ts: float | None = None, ttl: float | None = None) -> bool:
        """Note that an event has befallen a key, unless a later time is known already.

        ``ts`` is the server's time by default, ``ttl`` that of the store. Raises ``ValueError``
        for a key that has no form in JSON, and for a time before 1970.
        """
        return self.add_many([(event, pk)], ts, ttl)

    def add_many(
        self,
        events: Iterable[tuple[str, Any]],
        ts: float | None = None,
        ttl: float | None = None,
    ) -> bool:
        """Note several events, each with its key, in one go; see :meth:`add`."""
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
        """The keys that an event has befallen from ``ts`` to ``end_ts``, both included.

        They are in the order of time. All namespaces are looked at; a key that several know is
        given once, with the latest time in question. With ``with_ts`` each comes with its time.
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
        """When an event has last befallen a key; ``None`` where that is not known.

        With ``ts``, only the namespace of that time is asked, and only for what has happened then
        or later.
        """
        found = self._query(event, key_to_text(pk), ts)
        return None if found is None or (ts is not None and found < ts) else found

    @abstractmethod
    def clear(self, event: str, ts: float | None = None) -> int:
        """Forget all keys of an event, or with ``ts`` those in the namespace of that time.

        Gives how many there were. The history stays.
        """

    # The history.

    def append(self, changeset: Changeset, ts: float | None = None) -> bool:
        """Keep a changeset as what happened at ``ts``, the server's time by default.

        One whose ``id`` the namespace has already is not kept once more. Raises
        ``RuntimeError`` for a store without history, and ``ValueProblem`` for values that have no
        form in JSON.
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
        """The changesets from ``since`` to ``until``, both included, with their times.

        They are in the order of time, and of equal times in that in which they were added. With
        ``table``, as ``orders`` or ``shop.orders``, they come with the changes of that table only,
        and without those that have none. Raises ``RuntimeError`` for a store without history.
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
        """Remove what is past its ``ttl``, which nothing gives any more; gives how much it was."""

    def on_close(self, callback: Callable[[], object]) -> None:
        """Call this once when the store is closed: what feeds it ends with it."""
        self._closing.append(callback)

    def close(self) -> None:
        """End what feeds the store, and disconnect. It connects again when it is used."""
        while self._closing:
            self._closing.pop()()
        self._disconnect()

    # What the kinds of stores do.

    @abstractmethod
    def _disconnect(self) -> None:
        """Disconnect from the server."""

    @abstractmethod
    def _add(self, events: dict[str, list[str]], ts: float | None, ttl: float) -> None:
        """Note the keys of each event."""

    @abstractmethod
    def _read(self, event: str, ts: float, end_ts: float) -> Iterable[tuple[str, float]]:
        """Keys and times of this store's namespaces, in any order."""

    @abstractmethod
    def _query(self, event: str, text: str, ts: float | None) -> float | None:
        """The last time of a key."""

    @abstractmethod
    def _append(self, id: str, body: bytes, ts: float | None) -> None:
        """Keep a changeset."""

    @abstractmethod
    def _bodies(self, since: float, until: float) -> Iterator[tuple[float, bytes]]:
        """Times and changesets, in order."""

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
        """The namespace of a time."""
        return self._namespace if isinstance(self._namespace, str) else self._namespace(ts)


def _checked_time(ts: float) -> float:
    time = float(ts)
    if not 0 <= time < math.inf:
        raise ValueError(f"{ts} is no time in seconds since 1970")
    return time


def life_s(ttl: float | None) -> float:
    """A time to live in seconds, infinity for ``None``; raises ``ValueError`` for none at all."""
    if ttl is None:
        return math.inf
    if not ttl > 0:
        raise ValueError(f"a ttl is above zero seconds, and not {ttl}")
    # What is longer than three centuries is for ever; Redis would refuse it.
    return float(ttl) if ttl < 1e10 else math.inf
