"""Messages of a queue whose time has passed."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Final

from stompkit.server.domain.alarm import Alarm
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues.references import MessageReference
from stompkit.server.domain.queues.sub_queue import SubQueue
from stompkit.server.interfaces import StoredMessage, StoreError

if TYPE_CHECKING:
    from stompkit.server.domain.queues.queue import Queue

__all__ = ["Expiry"]

#: Seconds until messages are tried again that the dead letters had no room for, if nobody says
#: before that there is some.
_RETRY_S: Final = 30.0
#: Seconds between two looks at what has expired, so that each look is worth its while; where
#: somebody waits for room there are none.
_PAUSE_S: Final = 0.1
#: Messages that are expired in one turn.
_MOST_EXPIRED: Final = 100
#: Messages, and octets of them, that are read at a time to find those that have expired; and how
#: many times as long as that took it is not done again.
_PAGE_MESSAGES: Final = 250
_PAGE_OCTETS: Final = 4 * 1024 * 1024
_REST: Final = 10
#: Places noted of messages that have left before their time, beside those of messages there.
_FEW: Final = 64


class Expiry:
    """Drops or dead-letters messages in memory when their time has passed.

    Whoever waits for room, or for what is behind them in the store, is looked at again then.
    """

    def __init__(self, queue: Queue) -> None:
        """Begin with nothing that expires."""
        self._queue = queue
        #: Times, with the indices of lanes and places there: no message is kept alive. What has
        #: left its place before its time is noticed when that comes.
        self._heap: list[tuple[float, int, int]] = []
        #: Expired messages that the dead letters had no room for.
        self.overdue: list[MessageReference] = []
        self._alarm: Alarm | None = None
        #: Lanes that are being read.
        self._scans: set[SubQueue] = set()

    def expect(self, entry: MessageReference) -> None:
        """Note when a message that waits in memory will expire."""
        lane = entry.lane
        assert lane is not None  # every entry of a queue has one
        expires = entry.message.expires
        heapq.heappush(self._heap, (expires, lane.index, entry.place))
        if len(self._heap) > 2 * self._most_waiting + _FEW:
            self._forget_those_that_left()
        self._wake_at(expires)

    @property
    def _most_waiting(self) -> int:
        return sum(len(lane.ready) + len(lane.back) for lane in self._queue.lanes)

    def _forget_those_that_left(self) -> None:
        self._heap = [
            (entry.message.expires, lane.index, entry.place)
            for lane in self._queue.lanes
            for entries in (lane.ready, lane.back)
            for entry in entries
            if entry.message.expires
        ]
        heapq.heapify(self._heap)

    def _wake_at(self, when: float) -> None:
        if self._alarm is None:
            self._alarm = Alarm(self._queue.host.broker, self._on_time)
        self._alarm.set(when)

    def _on_time(self) -> None:
        now = self._queue.host.broker.now
        due: list[tuple[int, int]] = []
        while self._heap and self._heap[0][0] <= now and len(due) < _MOST_EXPIRED:
            _, index, place = heapq.heappop(self._heap)
            due.append((index, place))
        # In their order in the queue, as far as they are noticed together.
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
        """End the message that has expired first, if one has; says whether to look further.

        Reads nothing of the store: it is called in the middle of other things.
        """
        heap, now = self._heap, self._queue.host.broker.now
        if not heap or heap[0][0] > now:
            return False
        _, index, place = heapq.heappop(heap)
        self._expire_at(index, place, can_load=False)
        return True

    def _expire_at(self, index: int, place: int, *, can_load: bool) -> None:
        entry = self._take_out(index, place, can_load=can_load)
        if entry is not None:
            self.expire(entry)

    def _take_out(self, index: int, place: int, *, can_load: bool) -> MessageReference | None:
        """Take a message out of its lane, if it still waits there."""
        for lane in self._queue.lanes:
            if lane.index == index:
                break
        else:
            return None
        if lane.back:
            lane.restore()
        entry = _at(lane, place)
        if entry is not None:
            lane.window_octets -= entry.message.size
            if can_load:
                self._queue.refill(lane)
            self._queue.host.broker.touch(self._queue)
        return entry

    # What is only in the store.

    def expect_stored(self, lane: SubQueue, expires: float) -> None:
        """Note when a message that is only in the store will expire."""
        lane.stored_expires = min(lane.stored_expires, expires)
        if self._queue.blocked:
            self._wake_at(expires)

    def look_in_store(self) -> bool:
        """Drop what has expired in the store only, for somebody who waits for room.

        Says whether something is being read for that; whoever waits is let in at the end.
        """
        now = self._queue.host.broker.now
        for lane in self._queue.lanes:
            if lane.stored and lane.stored_expires < inf and not lane.is_loading:
                at = max(lane.stored_expires, lane.scan_at)
                if at <= now:
                    self._scan(lane)
                else:
                    self._wake_at(at)
        return bool(self._scans)

    def _scan(self, lane: SubQueue) -> None:
        """Read a lane from behind its window to its end; nothing else is loaded meanwhile."""
        broker = self._queue.host.broker
        journal = broker.journal
        assert journal is not None  # only a store has what is not in memory
        began = broker.now
        earliest, after = inf, lane.seen
        self._scans.add(lane)
        lane.is_loading = True
        lane.stored_expires = inf

        def did(stored: Sequence[StoredMessage]) -> None:
            nonlocal earliest, after
            for each in stored:
                after = each.place
                if 0 < each.expires_ms <= broker.now * 1000:
                    self._expire_stored(lane, each)
                elif each.expires_ms:
                    earliest = min(earliest, each.expires_ms / 1000)
            if stored:
                read()
            else:
                end()

        def failed(_: StoreError) -> None:
            nonlocal earliest
            earliest = 0.0
            end()

        def read() -> None:
            assert journal is not None  # as above
            journal.read(lane.number, after, _PAGE_MESSAGES, _PAGE_OCTETS, did, failed)

        def end() -> None:
            lane.stored_expires = min(lane.stored_expires, earliest)
            lane.scan_at = broker.now + _REST * max(0.0, broker.now - began)
            self._scans.discard(lane)
            self._queue.loaded(lane)

        read()

    def _expire_stored(self, lane: SubQueue, stored: StoredMessage) -> None:
        lane.take_stored(1, stored.size)
        self.expire_read(lane, stored)

    def expire_read(self, lane: SubQueue, stored: StoredMessage) -> None:
        """Do with an expired message that was read from the store what the policy says."""
        entry = MessageReference(Message.from_store(stored), self._queue, stored.place)
        entry.deliveries = stored.deliveries
        entry.lane = lane
        self.expire(entry)

    # What becomes of it.

    def next_overdue(self) -> MessageReference | None:
        """The first of these, which waits no more; ``None`` if there are none."""
        return self.overdue.pop(0) if self.overdue else None

    def expire(self, entry: MessageReference) -> None:
        """Do with an expired message what the policy says."""
        queue = self._queue
        if queue.policy.expired == "discard":
            queue.expired += 1
            queue.lost += 1
            queue.settled(entry)
        elif queue.host.bury(entry, "expired"):
            queue.expired += 1
        else:
            # Nobody gets it any more.
            self.overdue.append(entry)
            queue.host.await_dead_letters(queue)
            self._wake_at(queue.host.broker.now + _RETRY_S)

    def retry_overdue(self) -> None:
        """Look whether there is room by now for those that the dead letters had none for."""
        overdue = self.take_overdue()
        for index, entry in enumerate(overdue):
            self.expire(entry)
            if self.overdue:
                # There is none, or no more.
                self.overdue += overdue[index + 1 :]
                break

    def take_overdue(self) -> list[MessageReference]:
        """The expired messages that wait for room in the dead letters, which wait no more."""
        overdue, self.overdue = self.overdue, []
        return overdue

    def clear(self) -> None:
        """Expect nothing any more: the queue is being removed."""
        self._heap.clear()
        if self._alarm is not None:
            self._alarm.cancel()


def _at(lane: SubQueue, place: int) -> MessageReference | None:
    """Take the message at a place out of the window, if it is there."""
    ready = lane.ready
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
