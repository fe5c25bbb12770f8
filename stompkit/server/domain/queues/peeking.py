"""Browse the messages of a queue in order, page by page, without changing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import nsmallest
from itertools import chain, islice
from typing import Final, Literal, NamedTuple

from mypy_extensions import mypyc_attr

from stompkit.server.domain.deliveries import MessageReference
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.sub_queue import DELAYED, SubQueue
from stompkit.server.interfaces import StoredMessage, StoreError

__all__ = ["Page", "Seen", "State", "peek"]

#: Maximum number of bytes read from the store for a page, except for its last message. A page can
#: therefore be shorter than requested without being the last one.
_PAGE_OCTETS: Final = 16 * 1024 * 1024

#: Number of messages that are not in order, with consumers or expired, examined before others are
#: served.
_MOST_EXAMINED: Final = 5_000

#: Expired messages wait for room among the dead letters.
State = Literal["ready", "in-flight", "delayed", "expired"]


class Seen(NamedTuple):
    """A message and its position: the index ``sub_queue`` of its sub-queue, and its ``place``."""

    sub_queue: int
    place: int
    message: Message
    deliveries: int
    state: State


# A native class cannot derive from a list.
@mypyc_attr(native_class=False)
class Page(list[Seen]):
    """Messages in order, and if more may follow."""

    #: True at the end of the queue. The length of a page does not show that: short pages can be
    #: followed by others, and full ones can be last.
    is_last = False


def peek(
    queue: Queue,
    after: tuple[int, int],
    limit: int,
    done: Callable[[Page], None],
    failed: Callable[[StoreError], None],
) -> None:
    """Call ``done`` with up to ``limit`` messages after a sub-queue and place, at once or later.

    There are fewer if they would take too much memory. Delayed messages come last, in the order in
    which they were sent. If consumers have very many, these are searched in parts. A message that
    is settled meanwhile can be shown, and one that is delivered can be missing.
    """
    _Look(queue, after, limit, done, failed).search()


class _Look:
    """One page under construction."""

    def __init__(
        self,
        queue: Queue,
        after: tuple[int, int],
        limit: int,
        done: Callable[[Page], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        self._queue = queue
        self._limit = limit
        self._done = done
        self._failed = failed
        self._found = Page()
        self._octets_left = _PAGE_OCTETS
        self._after = after
        #: Messages that are in no order, as far as they are not examined yet.
        self._unordered = _unordered(queue)
        #: Those that the page may need of the examined ones, in order.
        self._nearest: list[tuple[State, MessageReference]] = []
        self._sub_queues: list[tuple[SubQueue[MessageReference], int]] = []
        for sub_queue in [*queue.sub_queues, *queue.delays.sub_queues]:
            if sub_queue.index >= after[0]:
                self._sub_queues.append((sub_queue, after[1] if sub_queue.index == after[0] else 0))
        self._delayed_after = after[1] if after[0] == DELAYED else 0

    @property
    def _room(self) -> int:
        return self._limit - len(self._found)

    def search(self) -> None:
        """Examine messages that are in no order, in parts; then read the others."""
        some = list(islice(self._unordered, _MOST_EXAMINED))
        home, after = self._queue, self._after
        found = [each for each in some if each[1].home is home and _position(each) > after]
        # Only a page of them is sorted: there can be as many as the queue may have.
        self._nearest = nsmallest(self._limit, chain(self._nearest, found), key=_position)
        if len(some) == _MOST_EXAMINED:
            self._queue.host.scheduler.later(0.0, self.search)
        else:
            self.go_on()

    def go_on(self) -> None:
        """Read the next sub-queue, until the page is full or there is none."""
        while self._sub_queues and self._room:
            sub_queue, after = self._sub_queues.pop(0)
            if sub_queue.index == DELAYED:
                self._read(sub_queue, after, "delayed")
                return
            self._found += self._in_memory(sub_queue, after)
            if self._room and sub_queue.stored:
                self._read(sub_queue, max(after, sub_queue.seen), "ready")
                return
        if self._room:
            self._found += self._delayed()
        self._found.is_last = self._room > 0
        self._done(self._found)

    def _in_memory(self, sub_queue: SubQueue[MessageReference], after: int) -> list[Seen]:
        found: dict[int, tuple[State, MessageReference]] = {
            each.place: ("ready", each)
            for each in chain(sub_queue.behind(after, self._room), sub_queue.back)
            if each.place > after
        }
        # Some of these may have been returned since, and be among the others.
        found |= {each[1].place: each for each in self._nearest if each[1].sub_queue is sub_queue}
        return [
            Seen(sub_queue.index, each.place, each.message, each.deliveries, state)
            for state, each in nsmallest(self._room, found.values(), key=_position)
        ]

    def _read(self, sub_queue: SubQueue[MessageReference], after: int, state: State) -> None:
        commit_queue = self._queue.host.scheduler.commit_queue

        def did(stored: Sequence[StoredMessage]) -> None:
            self._found += [
                Seen(sub_queue.index, each.place, Message.from_store(each), each.deliveries, state)
                for each in stored
            ]
            self._octets_left -= sum(each.size for each in stored)
            if not stored or not self._room:
                self.go_on()
            elif self._octets_left > 0:
                # A read has a separate size limit, so that a short result does not mean the end.
                self._read(sub_queue, stored[-1].place, state)
            else:
                self._done(self._found)

        commit_queue.read(sub_queue.number, after, self._room, self._octets_left, did, self._failed)

    def _delayed(self) -> list[Seen]:
        waiting = self._queue.delays.in_memory(self._delayed_after, self._room)
        return [Seen(DELAYED, place, message, 0, "delayed") for place, message in waiting]


def _unordered(queue: Queue) -> Iterator[tuple[State, MessageReference]]:
    """Yield messages with consumers, also those of other queues, and expired ones."""
    if queue.unsettled:
        for connection in list(queue.host.broker.connections):
            for entry in list(connection.ledger):
                yield "in-flight", entry
    for entry in list(queue.overdue):
        yield "expired", entry


def _position(candidate: tuple[State, MessageReference]) -> tuple[int, int]:
    _, entry = candidate
    return (-1 if entry.sub_queue is None else entry.sub_queue.index), entry.place
