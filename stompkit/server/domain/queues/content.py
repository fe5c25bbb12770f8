"""Content of a queue: its counts and limits, and the removal of messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from stompkit.server.domain.deliveries import MessageReference, Subscription
from stompkit.server.domain.destinations import HostBase
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues.base import QueueBase
from stompkit.server.domain.queues.delays import Delays
from stompkit.server.domain.queues.dispatcher import Dispatcher
from stompkit.server.domain.queues.expiry import Expiry
from stompkit.server.domain.queues.overdue import Overdue
from stompkit.server.domain.queues.timeouts import AckTimeouts
from stompkit.server.domain.sub_queue import DELAYED, SubQueue
from stompkit.server.interfaces import (
    DropLane,
    LaneState,
    Remove,
    StoredMessage,
)
from stompkit.server.settings.broker import Policy

__all__ = ["QueueContent"]


class QueueContent(QueueBase):
    """The messages of a queue, in memory or in the store, and how many it may have."""

    is_queue: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        policy: Policy,
        host: HostBase,
        states: Sequence[LaneState] = (),
        *,
        is_persistent: bool | None = None,
    ) -> None:
        """Create a queue with its stored content; ``states`` are its lanes in the store."""
        super().__init__(name, policy, host)
        if is_persistent is None:
            is_persistent = policy.storage == "persistent"
        self.is_persistent = is_persistent and host.scheduler.commit_queue.has_store
        self._read_policy()
        self._dispatcher = Dispatcher(policy)
        self.subscriptions = self._dispatcher.subscriptions
        #: Ranks of messages at the front by identifier, for consumers that take by rank.
        self.ranks: dict[str, tuple[int, int]] = {}
        self.blocked = deque()
        #: Queues with expired messages that wait for room among these dead letters.
        self.overdue_of: dict[QueueBase, None] = {}
        #: Number of messages and bytes in the queue, including delivered and unsettled ones.
        self.messages = 0
        self.octets = 0
        #: Those of them that are not stored yet: on their way into the store, or part of a write
        #: batch. Nothing is dropped to make room for them.
        self.incoming = 0
        self.incoming_octets = 0
        #: Those of them that are in memory, and wait until the rest of their write batch is stored.
        self.following = 0
        #: Messages that are stored but not yet in their sub-queues, since their batch has several.
        self._arrived = 0
        #: True if messages to be dropped must first be read from the store. Until then nothing is
        #: delivered, since it could be one of these.
        self.owes_drops = False
        #: Number of messages dropped before others are served, and if that many were too few.
        self._drops = 0
        self._has_put_off_drops = False
        #: Number of incoming messages to wait for before any delivery, for the same reason: they
        #: were sent before their consumer arrived.
        self._awaited = 0
        #: True if more of the queue should be in memory, so that expired messages make room.
        self._is_short = False
        #: True if no consumer accepts more messages in this cycle.
        self._is_stuck = False
        #: Number of messages restored from the store, and of those that left without
        #: acknowledgement.
        self.restored = 0
        self.lost = 0
        self.sub_queues = []
        #: Made when the first message needs them, and let go with the queue: they refer to it, and
        #: otherwise it would stay in memory until the collector runs.
        self._made_delays: Delays | None = None
        self._made_timeouts: AckTimeouts | None = None
        self._made_expiry: Expiry | None = None
        for state in states:
            self.messages += state.messages
            self.octets += state.octets
            sub_queue: SubQueue[MessageReference] = SubQueue.of(state)
            if state.part == DELAYED:
                self._delays.restore(sub_queue)
            else:
                self.sub_queues.append(sub_queue)
        self.restored = self.messages
        self.sub_queues.sort(key=lambda sub_queue: sub_queue.index)

    def configure(self, policy: Policy) -> None:
        """Apply new settings, and check waiting senders and consumers again."""
        super().configure(policy)
        self._dispatcher.take(policy)
        self._read_policy()
        if not self._is_trimmed:
            self._drop_no_more()
        self.retry_overdue()
        self._made_room()
        # Messages beyond lowered limits are dropped, or nothing more is waited for.
        self.host.scheduler.touch(self)

    def _drop_no_more(self) -> None:
        """Keep and deliver messages that would have been dropped."""
        self.owes_drops, self._awaited = False, 0
        for sub_queue in self.sub_queues:
            sub_queue.owed = sub_queue.owed_octets = 0

    def _read_policy(self) -> None:
        """Cache the settings that every message needs."""
        policy = self.policy
        self._max_messages = policy.max_queue_messages
        #: The size limit for the place where its messages are.
        self._max_octets = policy.max_queue_bytes
        if not self.is_persistent:
            self._max_octets = min(policy.max_queue_bytes, policy.max_memory_queue_bytes)
        self._drops_oldest = policy.when_full == "drop-oldest"
        #: True if it drops excess messages by itself.
        self._is_trimmed = self._drops_oldest
        self._ttl_s = policy.message_ttl_s
        self._has_priorities = policy.priority

    # Content.

    @property
    def is_stored(self) -> bool:
        """True if the store holds a part of it."""
        return any(sub_queue.number for sub_queue in self.sub_queues)

    @property
    def stored_as(self) -> str:
        """The name of its lanes in the store."""
        return self.name

    @property
    def ready(self) -> int:
        """Number of messages that wait for delivery, in memory or only in the store."""
        return sum(sub_queue.waiting for sub_queue in self.sub_queues)

    @property
    def delayed(self) -> int:
        """Number of messages that are not due yet."""
        return 0 if self._made_delays is None else len(self._made_delays)

    @property
    def delays(self) -> Delays:
        """The delayed messages."""
        return self._delays

    @property
    def _delays(self) -> Delays:
        if self._made_delays is None:
            self._made_delays = Delays(self)
        return self._made_delays

    @property
    def _timeouts(self) -> AckTimeouts:
        if self._made_timeouts is None:
            self._made_timeouts = AckTimeouts(self)
        return self._made_timeouts

    @property
    def _expiry(self) -> Expiry:
        if self._made_expiry is None:
            self._made_expiry = Expiry(self)
        return self._made_expiry

    @property
    def consumers(self) -> int:
        """Number of subscriptions that consume its messages, without browsers."""
        return len(self.subscriptions)

    @property
    def depends_on_takers(self) -> bool:
        """True if others may receive messages when a subscription ends, for example with groups."""
        return self._dispatcher.is_picky

    @property
    def settled_count(self) -> int:
        """Number of messages that consumers have settled: those removed and not lost."""
        return max(0, self.restored + self.received - self.messages - self.lost)

    @property
    def unsettled(self) -> int:
        """Number of messages that are unacknowledged or on their way into the store."""
        return max(0, self.messages - self.ready - self.delayed - len(self.overdue))

    @property
    def overdue(self) -> Overdue:
        """Expired messages for which the dead letters had no room, at the front of the queue."""
        return self._expiry.overdue

    @property
    def is_held_back(self) -> bool:
        """True if deliveries wait for earlier messages to be dropped or returned."""
        return self.owes_drops or self._awaited > 0 or self.returning > 0

    @property
    def is_over(self) -> bool:
        """True if it exceeds its limits, without messages not stored yet or due to be dropped."""
        messages, octets = self._excess()
        if self.owes_drops:
            messages -= sum(sub_queue.owed for sub_queue in self.sub_queues)
            octets -= sum(sub_queue.owed_octets for sub_queue in self.sub_queues)
        return messages > 0 or octets > 0

    def _excess(self) -> tuple[int, int]:
        """Return the messages and bytes beyond the limits, without those not stored yet."""
        return (
            self.messages - self.incoming - self._max_messages,
            self.octets - self.incoming_octets - self._max_octets,
        )

    def _fits(self, messages: int, size: int) -> bool:
        return (
            self.messages + messages <= self._max_messages
            and self.octets + size <= self._max_octets
        )

    def _would_fit(self, messages: int, size: int) -> bool:
        """Return True if there is room once all messages not held by consumers are dropped.

        This includes messages that are only in the store, and those on their way there, which can
        be dropped once they are stored.
        """
        delays, overdue = self._delays, self.overdue
        kept = self.messages - self.ready - (self.incoming - delays.incoming) - len(overdue)
        octets = self.octets - (self.incoming_octets - delays.incoming_octets)
        octets -= sum(sub_queue.waiting_octets for sub_queue in self.sub_queues)
        octets -= overdue.octets
        return kept + messages <= self._max_messages and octets + size <= self._max_octets

    def _sub_queue(self, index: int) -> SubQueue[MessageReference]:
        for sub_queue in self.sub_queues:
            if sub_queue.index == index:
                return sub_queue
        sub_queue = SubQueue(index)
        self.sub_queues.append(sub_queue)
        self.sub_queues.sort(key=lambda sub_queue: sub_queue.index)
        return sub_queue

    def put_last(self, subscription: Subscription) -> None:
        """Move a subscription to the end of the rotation."""
        self._dispatcher.put_last(subscription)

    # Removal of messages.

    def settled(self, entry: MessageReference) -> None:
        """Remove an acknowledged message."""
        self._forget(entry)

    def settled_many(self, messages: int, octets: int) -> None:
        """Remove many acknowledged messages; :meth:`let_go` follows for each."""
        self.messages -= messages
        self.octets -= octets
        self._made_room()

    def let_go(self, entry: MessageReference) -> None:
        """Stop the timers of an acknowledged message that is already removed."""
        self._stop_timeout(entry)

    def withdraw(self, entry: MessageReference) -> None:
        """Remove a message taken out by an operator; no consumer holds it."""
        self.lost += 1
        self._forget(entry)

    def forget_stored(self, sub_queue: SubQueue[MessageReference], stored: StoredMessage) -> None:
        """Remove a message behind the window of its sub-queue, or a delayed one."""
        self.messages -= 1
        self.octets -= stored.size
        if sub_queue.index != DELAYED:
            sub_queue.take_stored(1, stored.size)
        self.host.scheduler.commit_queue.hide(Remove(sub_queue.number, stored.place))
        self._made_room()

    def forget_delayed(self, message: Message) -> None:
        """Remove a delayed message in memory."""
        self.messages -= 1
        self.octets -= message.size
        self._made_room()

    def _stop_timeout(self, entry: MessageReference) -> None:
        if self._made_timeouts is not None:
            self._made_timeouts.forget(entry)

    def _forget(self, entry: MessageReference) -> None:
        self._stop_timeout(entry)
        self.messages -= 1
        self.octets -= entry.message.size
        sub_queue = entry.sub_queue
        if sub_queue is not None and sub_queue.number:
            commit_queue = self.host.scheduler.commit_queue
            # Messages behind the window are read once more.
            remove = commit_queue.hide if entry.place > sub_queue.seen else commit_queue.record
            remove(Remove(sub_queue.number, entry.place))
        self._made_room()

    def _made_room(self) -> None:
        if self.blocked or self.overdue_of:
            self.host.scheduler.has_room(self)

    def retry_overdue(self) -> None:
        """Retry dead-lettering expired messages for which there was no room."""
        if self._made_expiry is not None:
            self._made_expiry.room_made()

    def let_in(self) -> None:
        """Resume senders that wait for room, in order, until there is none again."""
        if self.overdue_of:
            queues, self.overdue_of = self.overdue_of, {}
            for queue in queues:
                queue.retry_overdue()
        while self.blocked:
            connection = self.blocked.popleft()
            if not connection.try_again() and self.blocked and self.blocked[-1] is connection:
                # It has queued up again; nobody may overtake it.
                self.blocked.rotate(1)
                return

    def stop(self) -> None:
        """Cancel all timers: the queue is being removed."""
        if self._made_delays is not None:
            self._made_delays.clear()
            if self._made_delays.is_done:
                self._made_delays = None
        if self._made_timeouts is not None:
            self._made_timeouts.clear()
            self._made_timeouts = None
        if self._made_expiry is not None:
            self._made_expiry.clear()
            self._made_expiry = None

    def resume(self) -> None:
        """Resume deliveries."""
        self.is_paused = False
        self.host.scheduler.touch(self)

    def drop_lanes(self) -> None:
        """Delete the queue's lanes from the store; it is empty, or removed with its messages."""
        commit_queue = self.host.scheduler.commit_queue
        for sub_queue in [*self.sub_queues, *self._delays.sub_queues]:
            if sub_queue.number:
                commit_queue.apart(DropLane(sub_queue.number))
                sub_queue.number = 0
