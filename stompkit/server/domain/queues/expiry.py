"""Expiry of a queue's messages."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from math import inf
from typing import Final

from stompkit.server.domain.deliveries import MessageReference
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues.base import QueueBase
from stompkit.server.domain.queues.overdue import Overdue
from stompkit.server.domain.scheduling.alarm import Alarm
from stompkit.server.domain.sub_queue import SubQueue
from stompkit.server.interfaces import StoredMessage, StoreError

__all__ = ["Expiry"]

#: Delay in seconds before messages for which the dead letters had no room are retried, unless room
#: is reported earlier.
_RETRY_S: Final = 30.0
#: Minimum interval in seconds between two expiry runs, so that each is worthwhile. It does not
#: apply while senders wait for room.
_PAUSE_S: Final = 0.1
#: Maximum number of messages that expire in one cycle.
_MOST_EXPIRED: Final = 100
#: Number of messages, and of their bytes, read at a time to find expired ones. The next scan waits
#: for a multiple of the scan's duration, and after a failed one for some seconds.
_PAGE_MESSAGES: Final = 250
_PAGE_OCTETS: Final = 4 * 1024 * 1024
_REST: Final = 10
_FAILED_REST_S: Final = 1.0
#: Number of stale heap entries tolerated in addition to the number of waiting messages.
_FEW: Final = 64
#: Seconds that are not waited for: less than timers can tell apart.
_SLACK_S: Final = 0.001


class Expiry:
    """Drops or dead-letters messages when they expire.

    Senders that wait for room, and consumers that wait for stored messages, are then served again.
    """

    def __init__(self, queue: QueueBase) -> None:
        """Start empty."""
        self._queue = queue
        #: Expiry times with sub-queue indices and places: no message is kept alive. Stale ones are
        #: skipped when they come due.
        self._heap: list[tuple[float, int, int]] = []
        #: Expired messages for which the dead letters had no room.
        self.overdue = Overdue()
        self._alarm: Alarm | None = None
        #: True if the dead letters had no room for messages that are only in the store.
        self._awaits_room = False
        #: Until when nothing is retried, since the store has failed. The room that a dead letter
        #: leaves when it fails must not be a reason to try the next one.
        self._rests_until = 0.0
        #: Sub-queues being read.
        self._scans: set[SubQueue[MessageReference]] = set()
        #: Number of messages that deliveries may still expire before others are served.
        self._turns = _MOST_EXPIRED

    def has_turn(self) -> bool:
        """Return True if a delivery that meets an expired message may expire it in this iteration.

        Otherwise the queue is touched in the next one: very many can expire at the same time.
        """
        if not self._turns:
            return False
        self._turns -= 1
        if not self._turns:
            self._queue.host.scheduler.later(0.0, self._renew_turns)
        return True

    def _renew_turns(self) -> None:
        self._turns = _MOST_EXPIRED
        self._queue.host.scheduler.touch(self._queue)

    def expect(self, entry: MessageReference) -> None:
        """Record the expiry time of a message in memory."""
        sub_queue = entry.sub_queue
        assert sub_queue is not None  # every entry of a queue has one
        expires = entry.message.expires
        heapq.heappush(self._heap, (expires, sub_queue.index, entry.place))
        if len(self._heap) > 2 * self._most_waiting + _FEW:
            self._forget_those_that_left()
        self._wake_at(expires)

    @property
    def _most_waiting(self) -> int:
        return sum(
            len(sub_queue.ready) + len(sub_queue.back) for sub_queue in self._queue.sub_queues
        )

    def _forget_those_that_left(self) -> None:
        self._heap = [
            (entry.message.expires, sub_queue.index, entry.place)
            for sub_queue in self._queue.sub_queues
            for entries in (sub_queue.ready, sub_queue.back)
            for entry in entries
            if entry.message.expires
        ]
        heapq.heapify(self._heap)

    def _wake_at(self, when: float) -> None:
        if self._alarm is None:
            self._alarm = Alarm(self._queue.host.scheduler, self._on_time, is_wall=True)
        self._alarm.set(when)

    def _on_time(self) -> None:
        now = self._queue.host.scheduler.wall
        due: list[tuple[int, int]] = []
        while self._heap and self._heap[0][0] <= now and len(due) < _MOST_EXPIRED:
            _, index, place = heapq.heappop(self._heap)
            due.append((index, place))
        # In queue order, among those that expire at the same time.
        for index, place in sorted(due):
            self._expire_at(index, place, can_load=True)
        self.retry_overdue()
        if self._queue.blocked:
            self.look_in_store()
        if self._heap:
            first = self._heap[0][0]
            is_awaited = first <= now or self._queue.blocked
            self._wake_at(first if is_awaited else max(first, now + _PAUSE_S))

    def expire_next(self) -> bool:
        """Expire the next message that is due; return True if another one may make room.

        Where the dead letters have no room for one, none of the others is tried. It does not read
        from the store, since it is called within other operations.
        """
        if self.overdue:
            return self._retry_first()
        heap, now = self._heap, self._queue.host.scheduler.wall
        if not heap or heap[0][0] > now:
            return False
        _, index, place = heapq.heappop(heap)
        self._expire_at(index, place, can_load=False)
        return not self.overdue

    def _expire_at(self, index: int, place: int, *, can_load: bool) -> None:
        entry = self._take_out(index, place, can_load=can_load)
        if entry is not None:
            self.expire(entry)

    def _take_out(self, index: int, place: int, *, can_load: bool) -> MessageReference | None:
        """Remove a message from its sub-queue, if it still waits there."""
        for sub_queue in self._queue.sub_queues:
            if sub_queue.index == index:
                break
        else:
            return None
        if sub_queue.back:
            sub_queue.restore()
        entry = _at(sub_queue, place)
        if entry is not None:
            sub_queue.window_octets -= entry.message.size
            if can_load:
                self._queue.refill(sub_queue)
            self._queue.host.scheduler.touch(self._queue)
        return entry

    # Messages only in the store.

    def expect_stored(self, sub_queue: SubQueue[MessageReference], expires: float) -> None:
        """Record the expiry time of a message that is only in the store."""
        sub_queue.stored_expires = min(sub_queue.stored_expires, expires)
        if self._queue.blocked:
            self._wake_at(expires)

    def put_off_stored(self, sub_queue: SubQueue[MessageReference], expires: float) -> None:
        """Record the expiry time of a message that the store could not remove."""
        rests_until = self._rest(_FAILED_REST_S)
        sub_queue.scan_at = max(sub_queue.scan_at, rests_until)
        self.expect_stored(sub_queue, expires)

    def look_in_store(self) -> bool:
        """Drop expired messages that are only in the store, for a sender that waits for room.

        Return True if the store is being read for that; waiting senders are resumed at the end.
        """
        for sub_queue in self._queue.sub_queues:
            if self._next_scan(sub_queue) <= self._queue.host.scheduler.wall:
                self._scan(sub_queue)
            # A store may have answered at once, when the sender did not wait yet.
            when = self._next_scan(sub_queue)
            if when < inf:
                self._wake_at(when)
        return bool(self._scans)

    def _next_scan(self, sub_queue: SubQueue[MessageReference]) -> float:
        """Return when to read a sub-queue; infinite if it is being read, or nothing expires."""
        if not sub_queue.stored or sub_queue.is_loading:
            return inf
        scheduler = self._queue.host.scheduler
        at, wait_s = sub_queue.stored_expires, sub_queue.scan_at - scheduler.now
        return max(at, scheduler.wall + wait_s) if wait_s > _SLACK_S else at

    def _scan(self, sub_queue: SubQueue[MessageReference]) -> None:
        """Read a sub-queue from the end of its window; nothing else is loaded meanwhile."""
        broker = self._queue.host.broker
        commit_queue = broker.scheduler.commit_queue
        began = broker.scheduler.now
        earliest, after = inf, sub_queue.seen
        self._scans.add(sub_queue)
        sub_queue.is_loading = True
        sub_queue.stored_expires = inf

        def did(stored: Sequence[StoredMessage]) -> None:
            nonlocal earliest, after
            for each in stored:
                after = each.place
                if not 0 < each.expires_ms <= broker.scheduler.wall * 1000:
                    if each.expires_ms:
                        earliest = min(earliest, each.expires_ms / 1000)
                elif not self._expire_stored(sub_queue, each):
                    # There is no room for the others, either.
                    earliest = 0.0
                    end(_RETRY_S)
                    return
            if stored:
                read()
            else:
                end(_REST * max(0.0, broker.scheduler.now - began))

        def failed(_: StoreError) -> None:
            nonlocal earliest
            earliest = 0.0
            end(_FAILED_REST_S)

        def read() -> None:
            commit_queue.read(sub_queue.number, after, _PAGE_MESSAGES, _PAGE_OCTETS, did, failed)

        def end(rest_s: float) -> None:
            sub_queue.stored_expires = min(sub_queue.stored_expires, earliest)
            sub_queue.scan_at = broker.scheduler.now + rest_s
            self._scans.discard(sub_queue)
            self._queue.loaded(sub_queue)

        read()

    def _expire_stored(self, sub_queue: SubQueue[MessageReference], stored: StoredMessage) -> bool:
        """Apply the expiry policy to a message behind the window; return False if it stays there.

        It is not overdue then: it would be loaded once more.
        """
        if not self._remove(self._read(sub_queue, stored)):
            self._awaits_room = True
            self._queue.host.await_dead_letters(self._queue)
            return False
        sub_queue.take_stored(1, stored.size)
        return True

    def expire_read(self, sub_queue: SubQueue[MessageReference], stored: StoredMessage) -> None:
        """Apply the expiry policy to an expired message read into the window."""
        self.expire(self._read(sub_queue, stored))

    def _read(
        self, sub_queue: SubQueue[MessageReference], stored: StoredMessage
    ) -> MessageReference:
        entry = MessageReference(Message.from_store(stored), self._queue, stored.place)
        entry.deliveries = stored.deliveries
        entry.sub_queue = sub_queue
        return entry

    # Handling of expired messages.

    def expire(self, entry: MessageReference) -> None:
        """Apply the expiry policy to an expired message in memory."""
        if not self._remove(entry):
            self.overdue.append(entry)
            self._await_room()

    def put_off(self, entry: MessageReference) -> None:
        """Keep an expired message for later; no consumer receives it any more."""
        self.overdue.append(entry)
        self._rest(_RETRY_S)
        self._wake_at(self._queue.host.scheduler.wall + _RETRY_S)

    def _rest(self, duration_s: float) -> float:
        """Retry nothing for a while; return until when."""
        now = self._queue.host.scheduler.now
        self._rests_until = max(self._rests_until, now + duration_s)
        return self._rests_until

    @property
    def _rests_s(self) -> float:
        """Remaining seconds without retries; 0 if they are over."""
        wait_s = self._rests_until - self._queue.host.scheduler.now
        return wait_s if wait_s > _SLACK_S else 0.0

    def _await_room(self) -> None:
        self._wake_at(self._queue.host.scheduler.wall + _RETRY_S)
        self._queue.host.await_dead_letters(self._queue)

    def _remove(self, entry: MessageReference) -> bool:
        """Drop or dead-letter an expired message; return False if there is no room for that."""
        queue = self._queue
        if queue.policy.expired == "discard":
            queue.lost += 1
            queue.settled(entry)
        elif not queue.host.move_to_dead_letters(entry, "expired"):
            return False
        queue.expired += 1
        return True

    def room_made(self) -> None:
        """Retry messages for which the dead letters had no room, in memory and in the store."""
        self.retry_overdue()
        if self._awaits_room and not self._rests_s:
            self._awaits_room = False
            for sub_queue in self._queue.sub_queues:
                sub_queue.scan_at = 0.0
            if self._queue.blocked:
                self.look_in_store()

    def retry_overdue(self) -> None:
        """Retry messages for which the dead letters had no room; most of many in later cycles."""
        for _ in range(_MOST_EXPIRED):
            if not self._retry_first():
                return
        if self.overdue:
            self._wake_at(self._queue.host.scheduler.wall)

    def _retry_first(self) -> bool:
        """Retry the oldest one; return False if there is none, or still no room for it."""
        if self._rests_s:
            if self.overdue:
                self._wake_at(self._queue.host.scheduler.wall + self._rests_s)
            return False
        entry = self.overdue.popleft()
        if entry is None:
            return False
        if not self._remove(entry):
            self.overdue.put_back(0, [entry])
            self._await_room()
            return False
        return True

    def clear(self) -> None:
        """Cancel everything: the queue is being removed."""
        self._heap.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            # It refers back.
            self._alarm = None


def _at(sub_queue: SubQueue[MessageReference], place: int) -> MessageReference | None:
    """Remove and return the message at a place of the window, if it is there."""
    ready = sub_queue.ready
    if ready and ready[0].place == place:
        return ready.popleft()
    index = bisect_left(ready, place, key=_place)
    if index == len(ready) or ready[index].place != place:
        return None
    entry = ready[index]
    del ready[index]
    return entry


def _place(entry: MessageReference) -> int:
    return entry.place
