"""Messages of a destination that are not due yet."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

from stompkit.server.domain.deliveries import MessageReference
from stompkit.server.domain.destinations import Destination
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.messages import Message
from stompkit.server.domain.scheduling.alarm import Alarm
from stompkit.server.domain.sub_queue import DELAYED, SubQueue
from stompkit.server.interfaces import Remove, StoredMessage, StoreError

__all__ = ["Delays"]

#: Number of messages read at a time when a queue is opened; only their due times are kept.
_PAGE_MESSAGES: Final = 1_000
_PAGE_OCTETS: Final = 16 * 1024 * 1024
#: Maximum number of messages moved at a time, which limits memory and retries.
_MOST_MOVED: Final = 100
#: Number of stale heap entries tolerated in addition to the number of waiting messages.
_FEW: Final = 64
#: Delay in seconds before a failed read or move of messages is retried.
_RETRY_S: Final = 1.0
#: Seconds that are not waited for: less than timers can tell apart.
_SLACK_S: Final = 0.001
#: Marks the references of delayed messages in memory.
_IN_MEMORY: Final[SubQueue[MessageReference]] = SubQueue(DELAYED)


class Delays:
    """Puts messages into their queue when they are due, in the order of their due times.

    A message that expires before enters its queue then, which drops it or makes it a dead letter.
    Delayed messages of a persistent queue are in a separate lane of the store; only their due times
    and places are in memory. Each leaves the lane in the write batch that puts it into its queue,
    and keeps waiting if that fails. Removal takes no longer than insertion.
    """

    def __init__(self, queue: Destination) -> None:
        """Start empty."""
        self._queue = queue
        #: Waiting messages by place: due times, with messages that are not in the store, and
        #: references whose move failed.
        self._waiting: dict[int, tuple[float, Message | MessageReference | None]] = {}
        #: Due times and places; stale ones are skipped when they reach the front.
        self._heap: list[tuple[float, int]] = []
        #: Places of messages in memory, by their identifiers.
        self._places: dict[str, int] = {}
        #: Number of bytes of messages in memory.
        self.octets = 0
        #: Due times and places of messages being moved; the number of reads in progress follows.
        self.moving: dict[Message, tuple[float, int]] = {}
        self._reads = 0
        self._retry_at = 0.0
        self._sub_queue: SubQueue[MessageReference] | None = None
        self._alarm: Alarm | None = None
        self._last = 0
        #: Number of messages on their way into the store, to wait there, and of those in memory
        #: whose write batch is on its way.
        self.incoming = 0
        self.incoming_octets = 0

    def __len__(self) -> int:
        """Return the number of waiting messages."""
        return len(self._waiting)

    @property
    def is_empty(self) -> bool:
        """Return True if no message is waiting or on its way to wait."""
        return not (self._waiting or self.incoming)

    @property
    def is_done(self) -> bool:
        """Return True if nothing is expected of it: no message, and no answer of the store."""
        return self.is_empty and not (self.moving or self._reads)

    @property
    def sub_queues(self) -> Sequence[SubQueue[MessageReference]]:
        """The lane in the store, if there is one."""
        return [] if self._sub_queue is None else [self._sub_queue]

    def in_memory(self, after: int, most: int) -> list[tuple[int, Message]]:
        """Return the first messages in memory with places above ``after``, by place."""
        places = (
            place
            for place, (_, what) in self._waiting.items()
            if place > after and isinstance(what, Message)
        )
        found = []
        for place in heapq.nsmallest(most, places):
            what = self._waiting[place][1]
            assert isinstance(what, Message)  # others were left out
            found.append((place, what))
        return found

    def _add(self, due: float, place: int, what: Message | MessageReference | None) -> None:
        self._waiting[place] = (due, what)
        if isinstance(what, Message):
            self._places[what.id] = place
            self.octets += what.size
        heapq.heappush(self._heap, (due, place))

    def _take(self, place: int) -> tuple[float, Message | MessageReference | None]:
        """Remove a waiting message."""
        due, what = self._waiting.pop(place)
        if isinstance(what, Message):
            self._places.pop(what.id, None)
            self.octets -= what.size
        if len(self._heap) > 2 * len(self._waiting) + _FEW:
            self._heap = [(due, place) for place, (due, _) in self._waiting.items()]
            heapq.heapify(self._heap)
        return due, what

    def _first(self) -> tuple[float, int] | None:
        """Return the due time and place of the next message."""
        heap = self._heap
        while heap:
            if heap[0][1] in self._waiting:
                return heap[0]
            heapq.heappop(heap)
        return None

    def restore(self, sub_queue: SubQueue[MessageReference]) -> None:
        """Restore the waiting messages from the store, while the broker is being opened."""
        self._sub_queue = sub_queue
        store = self._queue.host.broker.store
        assert store is not None  # the lane comes from it
        after = 0
        while stored := store.read(sub_queue.number, after, _PAGE_MESSAGES, _PAGE_OCTETS):
            for each in stored:
                after = each.place
                self._add(_leaves_at(each.due_ms / 1000, each.expires_ms / 1000), each.place, None)
        self._arm()

    def put(self, message: Message) -> None:
        """Keep a message until it is due."""
        queue = self._queue
        if not queue.is_persistent:
            self._last += 1
            self._add(_leaves_at(message.due, message.expires), self._last, message)
            self._arm()
            return
        sub_queue = self._sub_queue
        if sub_queue is None:
            sub_queue = self._sub_queue = SubQueue(DELAYED)
        sub_queue.last_place += 1
        entry = MessageReference(message, queue, sub_queue.last_place)
        entry.sub_queue = sub_queue
        self.incoming += 1
        self.incoming_octets += message.size
        queue.keep(sub_queue, entry)

    def arriving(self, message: Message) -> MessageReference:
        """Return a reference to a message that will wait in memory after :meth:`kept` is called."""
        self._last += 1
        entry = MessageReference(message, self._queue, self._last)
        entry.sub_queue = _IN_MEMORY
        self.incoming += 1
        self.incoming_octets += message.size
        return entry

    def arrived(self, size: int) -> None:
        """Remove a message from the count of those on their way into the store."""
        self.incoming -= 1
        self.incoming_octets -= size

    def check(self, message: Message) -> None:
        """Raise :class:`RefusedError` for a message with too long a delay."""
        broker = self._queue.host.broker
        if message.due > broker.scheduler.wall + broker.config.max_delay_s:
            raise RefusedError(
                f"delay too long: at most {broker.config.max_delay_s:g} seconds", "bad-header"
            )

    def check_room(self, messages: int) -> None:
        """Raise :class:`RefusedError` if there is no room for that many more delayed messages."""
        most = self._queue.host.broker.config.max_delayed
        waiting = len(self._waiting) + self.incoming
        if waiting + messages > most:
            raise RefusedError(
                f"{self._queue.name} has {waiting} delayed messages already: at most {most}",
                "queue-full",
            )

    # For inspecting delayed messages and making them due early.

    @property
    def first(self) -> tuple[float, int, Message | None] | None:
        """Return the due time, the place and, if in memory, the message that is due next."""
        first = self._first()
        if first is None:
            return None
        due, place = first
        what = self._waiting[place][1]
        return due, place, what.message if isinstance(what, MessageReference) else what

    def find(self, message_id: str) -> tuple[float, int, Message] | None:
        """Return the due time, place and message of an identifier, if it waits in memory."""
        place = self._places.get(message_id)
        if place is None:
            return None
        due, what = self._waiting[place]
        assert isinstance(what, Message)  # only these have their places noted
        return due, place, what

    def due_at(self, place: int) -> float | None:
        """Return the due time of the message at a place, if it still waits."""
        found = self._waiting.get(place)
        return None if found is None or isinstance(found[1], MessageReference) else found[0]

    def hurry(self, place: int, message: Message) -> None:
        """Put the message at a place into its queue now."""
        due, _ = self._take(place)
        if self._queue.is_persistent:
            self._move(due, place, message)
        else:
            message.due = 0.0
            self._queue.enqueue(message)
        self._queue.host.scheduler.touch(self._queue)

    def drop(self, place: int) -> None:
        """Remove the message at a place; the queue forgets it."""
        self._take(place)

    def kept(self, entry: MessageReference) -> None:
        """Start waiting with a message that is stored, or whose write batch is."""
        message = entry.message
        leaves_at = _leaves_at(message.due, message.expires)
        self._add(leaves_at, entry.place, None if self._queue.is_persistent else message)
        self._arm()

    def put_off(self, entry: MessageReference, error: StoreError | None) -> bool:
        """Record the result of a move, if it is one; return True if the message keeps waiting."""
        moving = self.moving.pop(entry.message, None)
        if moving is None:
            return False
        if error is None:
            self._arm()
            return False
        # A store that lost its connection may have moved it after all. Repeating the move to the
        # same place is correct in both cases.
        self._again(*moving, entry)
        return True

    def clear(self) -> None:
        """Forget all messages in memory."""
        self._waiting.clear()
        self._places.clear()
        self._heap.clear()
        self.octets = 0
        if self._alarm is not None:
            self._alarm.cancel()
            # It refers back.
            self._alarm = None

    def _arm(self) -> None:
        """Set the alarm to the next due time."""
        first = self._first()
        if first is None or self._reads or self.moving:
            return
        if self._alarm is None:
            self._alarm = Alarm(self._queue.host.scheduler, self._on_time, is_wall=True)
        scheduler = self._queue.host.scheduler
        wait_s = max(0.0, self._retry_at - scheduler.now)
        self._alarm.set(max(first[0], scheduler.wall + wait_s))

    def _on_time(self) -> None:
        scheduler = self._queue.host.scheduler
        now = scheduler.wall
        ripe: list[tuple[float, int, Message | MessageReference | None]] = []
        # Until the last moves are complete, no later message may overtake them.
        if scheduler.now >= self._retry_at - _SLACK_S and not (self._reads or self.moving):
            while len(ripe) < _MOST_MOVED:
                first = self._first()
                if first is None or first[0] > now:
                    break
                ripe.append((*first, self._take(first[1])[1]))
        for due, place, what in ripe:
            if what is None:
                self._fetch(due, place)
            elif isinstance(what, Message):
                what.due = 0.0
                self._queue.enqueue(what)
                self._queue.host.scheduler.touch(self._queue)
            else:
                self._move(due, place, what)
        self._arm()

    def _again(self, due: float, place: int, entry: MessageReference | None) -> None:
        """Keep a message waiting for a retry; messages that come due meanwhile wait, too."""
        self._add(due, place, entry)
        self._retry_at = self._queue.host.scheduler.clock.seconds() + _RETRY_S
        self._arm()

    def _fetch(self, due: float, place: int) -> None:
        sub_queue, commit_queue = self._sub_queue, self._queue.host.scheduler.commit_queue
        assert sub_queue is not None  # the message is in the store
        self._reads += 1

        def did(stored: Sequence[StoredMessage]) -> None:
            self._reads -= 1
            for each in stored:
                if each.place == place:
                    self._move(due, place, Message.from_store(each))
            self._arm()

        def failed(_: StoreError) -> None:
            self._reads -= 1
            self._again(due, place, None)

        commit_queue.read(sub_queue.number, place - 1, 1, 1, did, failed)

    def _move(self, due: float, place: int, what: Message | MessageReference) -> None:
        """Move a message into its queue in a separate write batch; a reference is retried."""
        queue, sub_queue = self._queue, self._sub_queue
        commit_queue = queue.host.scheduler.commit_queue
        assert sub_queue is not None  # the message is in the store
        commit_queue.record(Remove(sub_queue.number, place))
        if isinstance(what, Message):
            what.due = 0.0
            self.moving[what] = (due, place)
            queue.enqueue(what)
        else:
            assert what.sub_queue is not None  # every entry of a queue has one
            self.moving[what.message] = (due, place)
            queue.keep(what.sub_queue, what)
        commit_queue.cut()


def _leaves_at(due: float, expires: float) -> float:
    """Return when a delayed message moves on: when it is due, or at its expiry if that is first."""
    return min(due, expires) if expires else due
