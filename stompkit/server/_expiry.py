"""Messages of a queue whose time has passed."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from stompkit.server._entries import Entry
from stompkit.server._lanes import Lane

if TYPE_CHECKING:
    from stompkit.server._queues import Queue

__all__ = ["Expiry"]

#: Seconds between two looks for messages whose time has passed behind the front of a queue.
_SWEEP_S: Final = 30.0


class Expiry:
    """Drops or dead-letters what has expired, when it comes up and every now and then."""

    def __init__(self, queue: Queue) -> None:
        """Begin with nothing that expires."""
        self._queue = queue
        #: Expired messages that the dead letters had no room for.
        self._overdue: list[Entry] = []
        self._is_expected = False
        self._swept_at = 0.0

    def expect(self) -> None:
        """Look for expired messages after a while: the queue has one that will be."""
        if not self._is_expected:
            self._is_expected = True
            self._queue.host.broker.later(_SWEEP_S, self._on_time)

    def _on_time(self) -> None:
        self._is_expected = False
        self.drop()

    def drop(self) -> None:
        """Drop what has expired in memory, and look again if something will."""
        if self._sweep():
            self.expect()

    def make_room(self) -> bool:
        """Drop what has expired in memory, unless that was done a moment ago; says whether."""
        if not self._is_expected or self._swept_at + 1 > self._queue.host.broker.now:
            return False
        self._sweep()
        return True

    def take_overdue(self) -> list[Entry]:
        """The expired messages that wait for room in the dead letters, which wait no more."""
        overdue, self._overdue = self._overdue, []
        return overdue

    def expire(self, entry: Entry) -> None:
        """Do with an expired message what the policy says."""
        queue = self._queue
        if queue.policy.expired == "discard":
            queue.expired += 1
            queue.lost += 1
            queue.settled(entry)
        elif queue.host.bury(entry, "expired"):
            queue.expired += 1
        else:
            # Nobody gets it any more; each sweep looks whether there is room by then.
            self._overdue.append(entry)
            self.expect()

    def _sweep(self) -> bool:
        """Drop what has expired in memory; says whether something is left that will."""
        self._swept_at = self._queue.host.broker.now
        for entry in self.take_overdue():
            self.expire(entry)
        will = False
        for lane in self._queue.lanes:
            will |= self._sweep_lane(lane)
        return will or bool(self._overdue)

    def _sweep_lane(self, lane: Lane) -> bool:
        queue = self._queue
        now = queue.host.broker.now
        if lane.back:
            lane.restore()
        expired = [entry for entry in lane.ready if entry.message.is_expired(now)]
        if expired:
            gone = set(map(id, expired))
            lane.ready = deque(entry for entry in lane.ready if id(entry) not in gone)
            lane.window_octets -= sum(entry.message.size for entry in expired)
            for entry in expired:
                self.expire(entry)
            queue.refill(lane)
            queue.host.broker.touch(queue)
        return any(entry.message.expires for entry in lane.ready)
