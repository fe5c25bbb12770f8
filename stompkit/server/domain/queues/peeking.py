"""Browse the messages of a queue in order, page by page, without changing it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import nsmallest
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
    which they were sent.
    """
    _Look(queue, after, limit, done, failed).go_on()


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
        self._in_flight = _in_flight(queue)
        self._sub_queues: list[tuple[SubQueue[MessageReference], int]] = []
        for sub_queue in [*queue.sub_queues, *queue.delays.sub_queues]:
            if sub_queue.index >= after[0]:
                self._sub_queues.append((sub_queue, after[1] if sub_queue.index == after[0] else 0))
        self._delayed_after = after[1] if after[0] == DELAYED else 0

    @property
    def _room(self) -> int:
        return self._limit - len(self._found)

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
        candidates: tuple[tuple[State, Iterable[MessageReference]], ...] = (
            ("ready", sub_queue.behind(after, self._room)),
            ("ready", sub_queue.back),
            ("in-flight", self._in_flight),
            ("expired", self._queue.overdue),
        )
        # Only a page of them is sorted: there can be as many as the queue may have.
        found = nsmallest(
            self._room,
            (
                (each.place, state, each)
                for state, entries in candidates
                for each in entries
                if each.sub_queue is sub_queue and each.place > after
            ),
            key=_place_of,
        )
        return [
            Seen(sub_queue.index, place, each.message, each.deliveries, state)
            for place, state, each in found
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


def _in_flight(queue: Queue) -> list[MessageReference]:
    if not queue.unsettled:
        return []
    connections = queue.host.broker.connections
    return [entry for each in connections for entry in each.ledger if entry.home is queue]


def _place_of(candidate: tuple[int, State, MessageReference]) -> int:
    return candidate[0]
