"""Trimming of a queue: room for new messages, and the drop of old ones."""

from __future__ import annotations

import sys
from collections import deque
from typing import Final

from stompkit.server.domain.deliveries import MessageReference, Subscription
from stompkit.server.domain.destinations import BlockedError
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues.window import WindowedQueue
from stompkit.server.domain.sub_queue import SubQueue
from stompkit.server.interfaces import Remove, StoredMessage

__all__ = ["TrimmedQueue"]

_MANY: Final = sys.maxsize
#: Maximum number of messages dropped before others are served, and of further ones for each new
#: message then: more than one, so that the excess does not grow.
_MOST_DROPPED: Final = 1_000
_FEW_DROPPED: Final = 8


class TrimmedQueue(WindowedQueue):
    """Drops messages beyond the limits, the oldest first."""

    def _deliver(self, takers: deque[Subscription], most: int, *, can_load: bool = True) -> int:
        """Deliver at most *most* messages; return their number."""
        raise NotImplementedError

    def check(self, message: Message) -> None:
        """Raise :class:`RefusedError` for a message with too long a delay."""
        if message.due:
            self._delays.check(message)

    def check_delays(self, messages: int, size: int) -> None:
        """Raise :class:`RefusedError` if there is no room for that many more delayed messages."""
        self._delays.check_room(messages)

    def check_room(self, messages: int, size: int) -> None:
        """Raise :class:`RefusedError` if there is no room for that many more messages and bytes."""
        if self._fits(messages, size):
            return
        # Expired messages must be in memory to be dropped. They are read after this cycle: nothing
        # may happen between the check and the operation.
        self._is_short = True
        self.host.scheduler.touch(self)
        while self._expiry.expire_next():
            if self._fits(messages, size):
                return
        possible = messages <= self._max_messages and size <= self._max_octets
        if possible and self._drops_oldest and self._would_fit(messages, size):
            return
        is_loading = possible and self._look_in_store()
        if self._fits(messages, size):
            return
        if not possible:
            limits = f"{self._max_messages} messages and {self._max_octets} octets"
            text = f"{self.name} never has room for more than {limits}: raise its limits"
            raise RefusedError(text, "queue-too-small")
        has = f"{self.messages} messages"
        if self.messages + messages <= self._max_messages:
            has = f"{self.octets} octets"
        text = f"{self.name} is full: it has {has}"
        if self.policy.when_full == "block" or is_loading:
            raise BlockedError(text, self)
        raise RefusedError(text, "queue-full")

    def _look_in_store(self) -> bool:
        """Drop expired messages that are only in the store; return True if that takes time."""
        broker = self.host.broker
        # A runner that answers immediately must not serve others in the middle of this.
        broker.scheduler.is_checking = True
        try:
            return self._expiry.look_in_store()
        finally:
            broker.scheduler.is_checking = False

    # Dropping.

    def _make_room(self) -> None:
        """Drop the oldest messages in favour of one that is stored but not in its sub-queue yet."""
        self._hand_out()
        self._drops = min(self._drops, _MOST_DROPPED - _FEW_DROPPED)
        self._drop_oldest()

    def _trim(self) -> bool:
        """Drop messages beyond the limits; return False if that waits for the store or others."""
        if not self.owes_drops:
            self._hand_out()
        self._drop_oldest()
        self.owes_drops = self._has_put_off_drops
        for sub_queue in self.sub_queues:
            if sub_queue.owed:
                self.owes_drops = True
                if not sub_queue.is_loading:
                    self._load(sub_queue)
        return not self.owes_drops

    def _drop_oldest(self) -> None:
        """Drop from the front of the lowest priority until the limits are met.

        Messages that are only in the store are read later for that. Messages held by consumers, and
        delayed ones, are never dropped.
        """
        while self.is_over and self._may_drop() and self._expiry.expire_next():
            pass
        for sub_queue in reversed(self.sub_queues):
            if sub_queue.back:
                sub_queue.restore()
            while self.is_over and self._may_drop() and self._drop_first(sub_queue):
                pass
            if not self.is_over or self._has_put_off_drops:
                return
            if sub_queue.stored > sub_queue.owed:
                self._owe(sub_queue)

    def _may_drop(self) -> bool:
        """Return True if a message may be dropped now; otherwise continue in the next iteration.

        A limit lowered by far, or a large message among small ones, makes many excessive at once.
        """
        if self._drops < _MOST_DROPPED:
            self._drops += 1
            return True
        if not self._has_put_off_drops:
            self._has_put_off_drops = self.owes_drops = True
            self.host.scheduler.later(0.0, self._drop_more)
        return False

    def _drop_more(self) -> None:
        self._drops = 0
        self._has_put_off_drops = False
        self.host.scheduler.touch(self)

    def _owe(self, sub_queue: SubQueue[MessageReference]) -> None:
        """Schedule messages that are only in the store to be dropped, as many as necessary.

        Their number is known, but their sizes are not until they are read. The average size is
        assumed, and checked again after reading.
        """
        self.owes_drops = True
        usual = max(1, sub_queue.stored_octets // sub_queue.stored)
        messages, octets = self._excess()
        messages -= sum(each.owed for each in self.sub_queues)
        octets -= sum(each.owed_octets for each in self.sub_queues)
        owed = min(sub_queue.stored - sub_queue.owed, max(messages, -(-octets // usual)))
        sub_queue.owed += owed
        sub_queue.owed_octets += owed * usual

    def _drop_stored(self, sub_queue: SubQueue[MessageReference], stored: StoredMessage) -> bool:
        """Drop a message read for that; return False if that is no longer necessary."""
        messages, octets = self._excess()
        if messages <= 0 and octets <= 0:
            # Fewer were sufficient.
            sub_queue.owed = sub_queue.owed_octets = 0
            return False
        sub_queue.seen = stored.place
        sub_queue.owed -= 1
        sub_queue.owed_octets = max(0, sub_queue.owed_octets - stored.size) if sub_queue.owed else 0
        if 0 < stored.expires_ms <= self.host.scheduler.wall * 1000:
            self._expiry.expire_read(sub_queue, stored)
        else:
            self._drop_at(sub_queue, stored.place, stored.size)
        return True

    def _drop_first(self, sub_queue: SubQueue[MessageReference]) -> bool:
        """Drop the first message of a sub-queue in memory; return False if there is none."""
        overdue = self._expiry.overdue.popleft()
        if overdue is not None:
            self._drop(overdue)
        elif not sub_queue.ready:
            return False
        else:
            entry = sub_queue.popleft()
            if entry.message.is_expired(self.host.scheduler.wall):
                self._expiry.expire(entry)
            else:
                self._drop(entry)
        return True

    def _drop(self, entry: MessageReference) -> None:
        """Drop a message to meet the limits."""
        self._stop_timeout(entry)
        sub_queue = entry.sub_queue
        assert sub_queue is not None  # every entry of a queue has one
        self._drop_at(sub_queue, entry.place, entry.message.size)

    def _drop_at(self, sub_queue: SubQueue[MessageReference], place: int, size: int) -> None:
        self.dropped += 1
        self.lost += 1
        self.messages -= 1
        self.octets -= size
        if sub_queue.number:
            # If the process dies before, the limits are enforced again at the next start.
            self.host.scheduler.commit_queue.lazily(Remove(sub_queue.number, place))
        self._made_room()

    def _hand_out(self) -> None:
        """Deliver messages that are settled by delivery and so make room; never reads the store."""
        if self._is_stuck or self.is_paused or self.is_held_back or not self.subscriptions:
            return
        if not any(sub_queue.ready or sub_queue.back for sub_queue in self.sub_queues):
            return
        takers = self._dispatcher.takers()
        if not all(each.is_auto for each in takers):
            takers = deque(each for each in takers if each.is_auto)
        self._is_stuck = not self._deliver(takers, _MANY, can_load=False)
