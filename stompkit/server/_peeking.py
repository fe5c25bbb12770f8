"""A look at the messages of a queue, in their order, a page at a time; it changes nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple

from stompkit.server._entries import Entry
from stompkit.server._lanes import DELAYED, Lane
from stompkit.server._messages import Message
from stompkit.server._queues import Queue
from stompkit.server.interfaces import StoredMessage, StoreError

__all__ = ["Seen", "State", "peek"]

_PAGE_OCTETS: Final = 16 * 1024 * 1024

State = Literal["ready", "in-flight", "delayed"]


class Seen(NamedTuple):
    """A message where it stands: in the part ``lane`` of its queue, at ``place``."""

    lane: int
    place: int
    message: Message
    deliveries: int
    state: State


def peek(
    queue: Queue,
    after: tuple[int, int],
    limit: int,
    done: Callable[[list[Seen]], None],
    failed: Callable[[StoreError], None],
) -> None:
    """Call ``done`` with the first ``limit`` messages behind a lane and place, at once or later.

    Those that are delayed come last, in the order in which they were sent.
    """
    _Look(queue, after, limit, done, failed).go_on()


class _Look:
    """One page that is being put together."""

    def __init__(
        self,
        queue: Queue,
        after: tuple[int, int],
        limit: int,
        done: Callable[[list[Seen]], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        self._queue = queue
        self._limit = limit
        self._done = done
        self._failed = failed
        self._found: list[Seen] = []
        self._in_flight = _in_flight(queue)
        self._lanes: list[tuple[Lane, int]] = []
        for lane in [*queue.lanes, *queue.delays.lanes]:
            if lane.index >= after[0]:
                self._lanes.append((lane, after[1] if lane.index == after[0] else 0))
        self._delayed_after = after[1] if after[0] == DELAYED else 0

    @property
    def _room(self) -> int:
        return self._limit - len(self._found)

    def go_on(self) -> None:
        """Look at the next lane, until the page is full or there is none."""
        while self._lanes and self._room:
            lane, after = self._lanes.pop(0)
            if lane.index == DELAYED:
                self._read(lane, after, "delayed")
                return
            self._found += self._in_memory(lane, after)[: self._room]
            if self._room and lane.stored:
                self._read(lane, max(after, lane.seen), "ready")
                return
        if self._room:
            self._found += list(self._delayed())[: self._room]
        self._done(self._found)

    def _in_memory(self, lane: Lane, after: int) -> list[Seen]:
        first = bisect_right(lane.ready, after, key=_place)
        entries = list(islice(lane.ready, first, first + self._room))
        entries += [each for each in lane.back if each.place > after]
        seen = [
            Seen(lane.index, each.place, each.message, each.deliveries, "ready") for each in entries
        ]
        seen += [
            Seen(lane.index, each.place, each.message, each.deliveries, "in-flight")
            for each in self._in_flight
            if each.lane is lane and each.place > after
        ]
        return sorted(seen, key=lambda each: each.place)

    def _read(self, lane: Lane, after: int, state: State) -> None:
        journal = self._queue.host.broker.journal
        assert journal is not None  # only a store has what is not in memory

        def did(stored: Sequence[StoredMessage]) -> None:
            self._found += [
                Seen(lane.index, each.place, Message.from_store(each), each.deliveries, state)
                for each in stored
            ]
            self.go_on()

        journal.read(lane.number, after, self._room, _PAGE_OCTETS, did, self._failed)

    def _delayed(self) -> Iterator[Seen]:
        for _, place, what in self._queue.delays.waiting():
            if isinstance(what, Message) and place > self._delayed_after:
                yield Seen(DELAYED, place, what, 0, "delayed")


def _in_flight(queue: Queue) -> list[Entry]:
    if not queue.unsettled:
        return []
    connections = queue.host.broker.connections
    return [entry for each in connections for entry in each.ledger if entry.home is queue]


def _place(entry: Entry) -> int:
    return entry.place
