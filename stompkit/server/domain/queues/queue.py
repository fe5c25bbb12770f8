"""Queues: each message goes to one subscriber, in order, and stays until acknowledged."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import ClassVar, Final

from mypy_extensions import mypyc_attr

from stompkit.server.domain.deliveries import ConnectionBase, MessageReference, Subscription
from stompkit.server.domain.destinations import BlockedError, HostBase
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues.base import QueueBase
from stompkit.server.domain.queues.delays import Delays
from stompkit.server.domain.queues.dispatcher import Dispatcher
from stompkit.server.domain.queues.expiry import Expiry
from stompkit.server.domain.queues.timeouts import AckTimeouts
from stompkit.server.domain.sub_queue import DELAYED, SubQueue
from stompkit.server.interfaces import (
    CreateLane,
    Delivered,
    DropLane,
    LaneState,
    Mark,
    Put,
    Remove,
    StoredMessage,
    StoreError,
)
from stompkit.server.settings.broker import Policy

__all__ = ["Puller", "Queue"]

_HIGHEST_PRIORITY: Final = 9
_USUAL_PRIORITY: Final = 4
_MANY: Final = sys.maxsize
#: Delay in seconds before a failed read of the store is retried.
_RETRY_S: Final = 1.0
#: Maximum number of bytes of messages read at a time in order to drop them. It exceeds the default
#: limit of uncommitted bytes, so that drops keep up with new messages.
_DROPPED_OCTETS: Final = 16 * 1024 * 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class Puller:
    """A waiting consumer: one registered in ``Queue.pullers`` is notified of messages."""

    def offered(self, queue: Queue) -> None:
        """Called at most once in a cycle when the queue may have messages; :func:`take` takes one.

        Also called when the queue is being removed, and has removed all pullers.
        """
        raise NotImplementedError


class Queue(QueueBase):
    """A work queue, in memory or in the store."""

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
        self._sharing = Dispatcher(policy)
        self.subscriptions = self._sharing.subscriptions
        #: Browsing subscriptions, each with its remaining messages once it has started.
        self.browsers: dict[Subscription, deque[MessageReference] | None] = {}
        #: Consumers that take single messages, in order of arrival.
        self.pullers: dict[Puller, None] = {}
        #: Ranks of messages at the front by identifier, for consumers that take by rank.
        self.ranks: dict[str, tuple[int, int]] = {}
        #: Connections that wait for room, in the order in which they are resumed.
        self.blocked: deque[ConnectionBase] = deque()
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
        self.lanes: list[SubQueue[MessageReference]] = []
        self._delays = Delays(self)
        self._timeouts = AckTimeouts(self)
        self._expiry = Expiry(self)
        for state in states:
            self.messages += state.messages
            self.octets += state.octets
            lane: SubQueue[MessageReference] = SubQueue.of(state)
            if state.part == DELAYED:
                self._delays.restore(lane)
            else:
                self.lanes.append(lane)
        self.restored = self.messages
        self.lanes.sort(key=lambda lane: lane.index)

    def configure(self, policy: Policy) -> None:
        """Apply new settings, and check waiting senders and consumers again."""
        super().configure(policy)
        self._sharing.take(policy)
        self._read_policy()
        if not self._is_trimmed:
            self._drop_no_more()
        self._expiry.retry_overdue()
        self._made_room()
        # Messages beyond lowered limits are dropped, or nothing more is waited for.
        self.host.scheduler.touch(self)

    def _drop_no_more(self) -> None:
        """Keep and deliver messages that would have been dropped."""
        self.owes_drops, self._awaited = False, 0
        for lane in self.lanes:
            lane.owed = lane.owed_octets = 0

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
        return any(lane.number for lane in self.lanes)

    @property
    def stored_as(self) -> str:
        """The name of its lanes in the store."""
        return self.name

    @property
    def ready(self) -> int:
        """Number of messages that wait for delivery, in memory or only in the store."""
        return sum(lane.waiting for lane in self.lanes)

    @property
    def delayed(self) -> int:
        """Number of messages that are not due yet."""
        return len(self._delays)

    @property
    def delays(self) -> Delays:
        """The delayed messages."""
        return self._delays

    @property
    def consumers(self) -> int:
        """Number of subscriptions that consume its messages, without browsers."""
        return len(self.subscriptions)

    @property
    def is_idle(self) -> bool:
        """True if the queue has no messages, subscribers or other users."""
        return not (
            self.messages
            or self.subscriptions
            or self.browsers
            or self.blocked
            or self.pullers
            or self.is_paused
            or self.holds
            or self.in_doubt
        )

    @property
    def depends_on_takers(self) -> bool:
        """True if others may receive messages when a subscription ends, for example with groups."""
        return self._sharing.is_picky

    @property
    def is_disposable(self) -> bool:
        """True if it has no messages, and only pattern subscribers."""
        is_used = self.messages or self.browsers or self.blocked or self.pullers
        is_kept = self.is_paused or self.holds or self.in_doubt
        return not (is_used or is_kept) and all(
            subscription.pattern is not None for subscription in self.subscriptions
        )

    @property
    def settled_count(self) -> int:
        """Number of messages that consumers have settled: those removed and not lost."""
        return max(0, self.restored + self.received - self.messages - self.lost)

    @property
    def unsettled(self) -> int:
        """Number of messages that are unacknowledged or on their way into the store."""
        return max(0, self.messages - self.ready - self.delayed)

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
        has = f"{self.messages} messages"
        if self.messages + messages <= self._max_messages:
            has = f"{self.octets} octets"
        text = f"{self.name} is full: it has {has}"
        if (possible and self.policy.when_full == "block") or is_loading:
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

    @property
    def is_held_back(self) -> bool:
        """True if deliveries wait for earlier messages to be dropped or returned."""
        return self.owes_drops or self._awaited > 0 or self.returning > 0

    @property
    def is_over(self) -> bool:
        """True if it exceeds its limits, without messages not stored yet or due to be dropped."""
        messages, octets = self._excess()
        if self.owes_drops:
            messages -= sum(lane.owed for lane in self.lanes)
            octets -= sum(lane.owed_octets for lane in self.lanes)
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
        delays, overdue = self._delays, self._expiry.overdue
        kept = self.messages - self.ready - (self.incoming - delays.incoming) - len(overdue)
        octets = self.octets - (self.incoming_octets - delays.incoming_octets)
        octets -= sum(lane.waiting_octets for lane in self.lanes)
        octets -= sum(entry.message.size for entry in overdue)
        return kept + messages <= self._max_messages and octets + size <= self._max_octets

    # Dropping.

    def _make_room(self) -> None:
        """Drop the oldest messages in favour of one that is stored but not in its sub-queue yet."""
        self._hand_out()
        self._drop_oldest()

    def _trim(self) -> bool:
        """Drop messages beyond the limits; return False if that waits for the store."""
        if not self.owes_drops:
            self._hand_out()
        self._drop_oldest()
        self.owes_drops = False
        for lane in self.lanes:
            if lane.owed:
                self.owes_drops = True
                if not lane.is_loading:
                    self._load(lane)
        return not self.owes_drops

    def _drop_oldest(self) -> None:
        """Drop from the front of the lowest priority until the limits are met.

        Messages that are only in the store are read later for that. Messages held by consumers, and
        delayed ones, are never dropped.
        """
        while self.is_over and self._expiry.expire_next():
            pass
        for lane in reversed(self.lanes):
            if lane.back:
                lane.restore()
            while self.is_over and self._drop_first(lane):
                pass
            if not self.is_over:
                return
            if lane.stored > lane.owed:
                self._owe(lane)

    def _owe(self, lane: SubQueue[MessageReference]) -> None:
        """Schedule messages that are only in the store to be dropped, as many as necessary.

        Their number is known, but their sizes are not until they are read. The average size is
        assumed, and checked again after reading.
        """
        self.owes_drops = True
        usual = max(1, lane.stored_octets // lane.stored)
        messages, octets = self._excess()
        messages -= sum(each.owed for each in self.lanes)
        octets -= sum(each.owed_octets for each in self.lanes)
        owed = min(lane.stored - lane.owed, max(messages, -(-octets // usual)))
        lane.owed += owed
        lane.owed_octets += owed * usual

    def _drop_stored(self, lane: SubQueue[MessageReference], stored: StoredMessage) -> bool:
        """Drop a message read for that; return False if that is no longer necessary."""
        messages, octets = self._excess()
        if messages <= 0 and octets <= 0:
            # Fewer were sufficient.
            lane.owed = lane.owed_octets = 0
            return False
        lane.seen = stored.place
        lane.owed -= 1
        lane.owed_octets = max(0, lane.owed_octets - stored.size) if lane.owed else 0
        if 0 < stored.expires_ms <= self.host.scheduler.now * 1000:
            self._expiry.expire_read(lane, stored)
        else:
            self._drop_at(lane, stored.place, stored.size)
        return True

    def _drop_first(self, lane: SubQueue[MessageReference]) -> bool:
        """Drop the first message of a sub-queue in memory; return False if there is none."""
        overdue = self._expiry.next_overdue()
        if overdue is not None:
            self._drop(overdue)
        elif not lane.ready:
            return False
        else:
            entry = lane.popleft()
            if entry.message.is_expired(self.host.scheduler.now):
                self._expiry.expire(entry)
            else:
                self._drop(entry)
        return True

    def _drop(self, entry: MessageReference) -> None:
        """Drop a message to meet the limits."""
        self._timeouts.forget(entry)
        lane = entry.lane
        assert lane is not None  # every entry of a queue has one
        self._drop_at(lane, entry.place, entry.message.size)

    def _drop_at(self, lane: SubQueue[MessageReference], place: int, size: int) -> None:
        self.dropped += 1
        self.lost += 1
        self.messages -= 1
        self.octets -= size
        if lane.number:
            # If the process dies before, the limits are enforced again at the next start.
            self.host.scheduler.commit_queue.lazily(Remove(lane.number, place))
        self._made_room()

    def _hand_out(self) -> None:
        """Deliver messages that are settled by delivery and so make room; never reads the store."""
        if self._is_stuck or self.is_paused or self.is_held_back or not self.subscriptions:
            return
        if not any(lane.ready or lane.back for lane in self.lanes):
            return
        takers = self._sharing.takers()
        if not all(each.is_auto for each in takers):
            takers = deque(each for each in takers if each.is_auto)
        self._is_stuck = not self._deliver(takers, _MANY, can_load=False)

    def purge(self) -> int:
        """Drop all messages not held by consumers; return their number.

        Delivered messages stay with their consumers.
        """
        before = self.messages
        for lane in self.lanes:
            if lane.back:
                lane.restore()
            while lane.ready:
                self._forget(lane.popleft())
            if lane.is_loading:
                lane.is_purged = True
            elif lane.stored:
                self._purge_stored(lane)
        for entry in self._expiry.take_overdue():
            self._forget(entry)
        self.host.scheduler.touch(self)
        self.lost += before - self.messages
        return before - self.messages

    def _purge_stored(self, lane: SubQueue[MessageReference]) -> None:
        """Drop messages behind the window; their sizes must be read for that."""
        commit_queue = self.host.scheduler.commit_queue
        left, after = lane.stored, lane.seen
        self.messages -= left
        self.octets -= lane.stored_octets
        lane.nothing_stored()

        def read() -> None:
            commit_queue.read(lane.number, after, min(left, 1_000), 1 << 24, did, failed)

        def failed(_: StoreError) -> None:
            self.host.scheduler.later(_RETRY_S, read)

        def did(stored: Sequence[StoredMessage]) -> None:
            nonlocal left, after
            for each in stored:
                after = each.place
                commit_queue.record(Remove(lane.number, each.place))
            left -= len(stored)
            lane.seen = max(lane.seen, after)
            self._made_room()
            if left > 0 and stored:
                read()

        read()

    # Incoming messages.

    def put(self, message: Message) -> None:
        """Append a message; the caller has checked that there is or can be room."""
        self.received += 1
        self.messages += 1
        self.octets += message.size
        now = self.host.scheduler.now
        if self._ttl_s and not message.expires:
            message.expires = max(now, message.due) + self._ttl_s
        is_delayed = message.due > now
        is_persistent = self.is_persistent
        # A message in memory waits for the rest of its batch, and for earlier messages.
        waits = not is_persistent and (
            self.host.arriving is not None or (self.following > 0 and not is_delayed)
        )
        if is_persistent or waits:
            self.incoming += 1
            self.incoming_octets += message.size
        if waits:
            self._arrive(self._delays.arriving(message) if is_delayed else self._entry(message))
        elif is_delayed:
            self._delays.put(message)
        elif is_persistent:
            self.enqueue(message)
        else:
            self.take_in(self._entry(message))

    def _arrive(self, entry: MessageReference) -> None:
        """Delay a message in memory until the rest of its write batch is stored."""
        if self.host.arriving is not None:
            self.host.arriving.append((self, entry))
        else:
            self.follow(entry)

    def follow(self, entry: MessageReference) -> None:
        """Delay a message in memory until the store is done; :meth:`put_done` follows."""
        commit_queue = self.host.scheduler.commit_queue
        self.following += 1
        commit_queue.follow(entry)

    def _entry(self, message: Message) -> MessageReference:
        """Return a reference to a message, with the next place of its sub-queue."""
        index = _HIGHEST_PRIORITY
        index -= message.priority if self._has_priorities else _USUAL_PRIORITY
        lane = self._lane(index)
        lane.last_place += 1
        entry = MessageReference(message, self, lane.last_place)
        entry.lane = lane
        if message.group:
            self._sharing.notice(message)
        return entry

    def enqueue(self, message: Message) -> None:
        """Append a message that is already counted."""
        entry = self._entry(message)
        if self.is_persistent:
            lane = entry.lane
            assert lane is not None  # _entry() has given it one
            self.keep(lane, entry)
        else:
            self.take_in(entry)

    def take_in(self, entry: MessageReference) -> None:
        """Append a message in memory to its sub-queue, or to the delayed messages."""
        lane = entry.lane
        assert lane is not None  # every entry of a queue has one
        if self._is_trimmed and self.is_over:
            self._make_room()
        if lane.index == DELAYED:
            self._delays.kept(entry)
            return
        if entry.place > lane.seen:
            lane.append(entry)
        else:
            # A later message was faster.
            lane.back.append(entry)
            self._sharing.look_again(lane.index, entry.place)
        if entry.message.expires:
            self._expiry.expect(entry)

    def keep(self, lane: SubQueue[MessageReference], entry: MessageReference) -> None:
        """Write a message to the store; :meth:`put_done` follows."""
        broker = self.host.broker
        commit_queue = broker.scheduler.commit_queue
        if not lane.number:
            lane.number = broker.new_lane()
            commit_queue.record(
                CreateLane(lane.number, self.host.stored_name(self.stored_as), lane.index)
            )
            self.host.note_maker(self)
        message = entry.message
        commit_queue.put(
            entry,
            Put(
                lane.number,
                entry.place,
                message.size,
                round(message.expires * 1000) if message.expires else 0,
                round(message.due * 1000) if message.due else 0,
                message.id,
                message.lines,
                message.body,
            ),
        )

    def arrived(self, entry: MessageReference) -> None:
        """Remove a message from the count of incoming ones, before :meth:`put_done`."""
        if entry.message not in self._delays.moving:
            self._arrived += 1
            self.count_off(entry)

    def count_off(self, entry: MessageReference) -> None:
        """Remove a message from the count of incoming ones."""
        size = entry.message.size
        self.incoming -= 1
        self.incoming_octets -= size
        if self._awaited:
            self._awaited -= 1
        lane = entry.lane
        if lane is not None and lane.index == DELAYED:
            self._delays.arrived(size)

    def put_done(self, entry: MessageReference, error: StoreError | None) -> None:
        """Deliver a message that is stored, or forget one that could not be stored."""
        lane = entry.lane
        assert lane is not None  # keep() is given one
        delays = self._delays
        if delays.moving and entry.message in delays.moving:
            if delays.put_off(entry, error):
                return
        elif self._arrived:
            self._arrived -= 1
        else:
            # As count_off() does: most batches have one message.
            self.incoming -= 1
            self.incoming_octets -= entry.message.size
            if self._awaited:
                self._awaited -= 1
            if lane.index == DELAYED:
                delays.arrived(entry.message.size)
        if not self.is_persistent:
            self.following -= 1
        if error is not None:
            self.lost += 1
            self.messages -= 1
            self.octets -= entry.message.size
            self._made_room()
            self.host.scheduler.touch(self)
            return
        if not self.is_persistent:
            self.take_in(entry)
            self.host.scheduler.touch(self)
            return
        if self._is_trimmed and self.is_over:
            self._make_room()
        broker = self.host.broker
        config = broker.config
        if lane.index == DELAYED:
            delays.kept(entry)
        elif entry.place > lane.seen and (
            lane.stored
            or lane.is_loading
            or len(lane.ready) >= config.window_messages
            or lane.window_octets >= config.window_bytes
        ):
            lane.stored += 1
            lane.stored_octets += entry.message.size
            if entry.message.expires:
                self._expiry.expect_stored(lane, entry.message.expires)
        else:
            if entry.place > lane.seen:
                lane.append(entry)
            else:
                # The store had failed when the message was due, and a later one was faster.
                lane.back.append(entry)
                self._sharing.look_again(lane.index, entry.place)
            if entry.message.expires:
                self._expiry.expect(entry)
        broker.scheduler.touch(self)

    def _lane(self, index: int) -> SubQueue[MessageReference]:
        for lane in self.lanes:
            if lane.index == index:
                return lane
        lane = SubQueue(index)
        self.lanes.append(lane)
        self.lanes.sort(key=lambda lane: lane.index)
        return lane

    # Outgoing messages.

    def add(self, subscription: Subscription) -> None:
        """Start deliveries to a subscription."""
        subscription.homes[self] = None
        self._sharing.add(subscription)
        self._await_arrivals()

    def offer_to(self, subscription: Subscription) -> None:
        """Offer existing messages to a new subscription, at the end of the cycle."""
        if any(lane.ready or lane.back or lane.stored for lane in self.lanes):
            subscription.waiting[self] = None

    def browse(self, subscription: Subscription) -> None:
        """Show a browser the messages up to the end of the window; :meth:`pump` writes them."""
        subscription.homes[self] = None
        self.browsers[subscription] = None
        self._await_arrivals()

    def _await_arrivals(self) -> None:
        """Delay deliveries until earlier messages are stored, if these push others out."""
        if self._is_trimmed and not self._fits(0, 0):
            self._awaited = self.incoming
            self._is_stuck = self._awaited > 0

    def remove(self, subscription: Subscription) -> None:
        """Stop deliveries to a subscription."""
        subscription.homes.pop(self, None)
        subscription.waiting.pop(self, None)
        if subscription in self.browsers:
            del self.browsers[subscription]
            return
        self._sharing.remove(subscription)

    def put_last(self, subscription: Subscription) -> None:
        """Move a subscription to the end of the rotation."""
        self._sharing.put_last(subscription)

    def pump(self) -> None:
        """Deliver from the front, to the subscribers in rotation."""
        if self._is_short:
            self._is_short = False
            self._load_low_lanes()
        if self._awaited or self.returning:
            return
        self._is_stuck = False
        if self._is_trimmed and (self.owes_drops or self.is_over) and not self._trim():
            return
        for browser in list(self.browsers):
            self._show(browser)
        if self.pullers and not self.is_paused:
            # Each wants at most one, if a subscription takes as many as it may hold.
            for puller in list(self.pullers):
                puller.offered(self)
        if self.subscriptions and not self.is_paused:
            self._deliver(self._sharing.takers(), _MANY)

    def serve(self, subscription: Subscription) -> bool:
        """Deliver one message to one subscription; return False if there is none for it."""
        if self.is_paused or self.is_held_back or subscription not in self.subscriptions:
            return False
        if subscription not in self._sharing.takers():
            return False
        is_served = self._deliver(deque([subscription]), 1) > 0
        if is_served and self._sharing.is_picky:
            # Other subscriptions can see further now.
            self.host.scheduler.touch(self)
        return is_served

    def _deliver(self, takers: deque[Subscription], most: int, *, can_load: bool = True) -> int:
        delivered = 0
        for lane in self.lanes:
            if lane.back:
                lane.restore()
            is_enough = False
            if lane.ready:
                pump = self._pump_picky if self._sharing.is_picky else self._pump
                delivered += pump(lane, takers, most - delivered)
                is_enough = delivered >= most or (bool(lane.ready) and not self._sharing.is_picky)
            if lane.stored:
                # Incoming messages precede those with a lower priority.
                is_enough = is_enough or not lane.ready
                if can_load:
                    self._load_if_low(lane)
            if is_enough:
                break
        self.delivered += delivered
        if any(lane.ready or lane.stored for lane in self.lanes):
            for subscription in self.subscriptions:
                subscription.waiting[self] = None
        return delivered

    def _pump(
        self, lane: SubQueue[MessageReference], takers: deque[Subscription], most: int
    ) -> int:
        ready = lane.ready
        now = self.host.scheduler.now
        delivered = reached = unable = 0
        is_alone = len(takers) == 1
        while ready and unable < len(takers) and delivered < most:
            subscription = takers[0]
            if not is_alone:
                takers.rotate(-1)
            if not subscription.wants():
                unable += 1
                continue
            unable = 0
            entry = lane.popleft()
            if entry.message.expires and entry.message.is_expired(now):
                self._expiry.expire(entry)
                continue
            subscription.deliver(entry)
            delivered += 1
            if subscription.is_auto:
                self.settled(entry)
            else:
                reached = entry.place
                self._timeouts.watch(entry)
        if reached > lane.delivered and lane.number:
            lane.delivered = reached
            self.host.scheduler.commit_queue.lazily(Delivered(lane.number, reached))
        return delivered

    def _pump_picky(
        self, lane: SubQueue[MessageReference], takers: deque[Subscription], most: int
    ) -> int:
        """Deliver matching messages in order, and keep the others in order.

        Only the window is searched: stored messages wait until those in front are taken.
        """
        broker = self.host.broker
        now, furthest = broker.scheduler.now, broker.config.window_messages
        delivered = 0
        ready = lane.ready
        turns = self._sharing.round(lane.index, takers, broker.selector_time)
        index = 0 if turns.is_over else bisect_right(ready, turns.first, key=_place)
        while index < min(len(ready), furthest) and delivered < most and not turns.is_over:
            entry = ready[index]
            is_expired = entry.message.is_expired(now)
            subscription = None if is_expired else turns.taker(entry)
            if subscription is None and not is_expired:
                index += 1
                continue
            del ready[index]
            lane.window_octets -= entry.message.size
            if subscription is None:
                self._expiry.expire(entry)
                continue
            self._hand_over(lane, entry, subscription)
            delivered += 1
        self._sharing.put_all_last(turns.served)
        if turns.is_unfinished:
            broker.selector_time.postpone(self, has_begun=turns.has_looked)
        if turns.has_forgotten:
            broker.scheduler.touch(self)
        return delivered

    def _hand_over(
        self, lane: SubQueue[MessageReference], entry: MessageReference, subscription: Subscription
    ) -> None:
        subscription.deliver(entry)
        if subscription.is_auto:
            self.settled(entry)
            return
        self._timeouts.watch(entry)
        if lane.number:
            self.host.scheduler.commit_queue.lazily(
                Mark(lane.number, entry.place, entry.deliveries)
            )

    def _mark(self, lane: SubQueue[MessageReference], entry: MessageReference) -> None:
        """Record in the store how often a message was delivered."""
        mark = Mark(lane.number, entry.place, entry.deliveries)
        self.host.scheduler.commit_queue.lazily(mark)

    def _show(self, browser: Subscription) -> None:
        """Write unseen messages to a browser; mark the end, after which it gets no more."""
        backlog = self.browsers[browser]
        if backlog is None:
            if self._load_low_lanes():
                return
            self.browsers[browser] = backlog = deque()
            for lane in self.lanes:
                if lane.back:
                    lane.restore()
                backlog.extend(entry for entry in lane.ready if browser.takes(entry.message))
        now = self.host.scheduler.now
        while backlog and browser.connection.has_room:
            entry = backlog.popleft()
            if not entry.message.is_expired(now):
                # It is shown as the next consumer would receive it.
                seen = MessageReference(entry.message, self, entry.place)
                seen.deliveries = entry.deliveries
                browser.deliver(seen)
        if not browser.connection.has_room:
            browser.waiting[self] = None
            return
        browser.end_of_browsing()
        self.remove(browser)

    # The window of stored messages.

    def _load_low_lanes(self) -> bool:
        """Fill the windows as far as there is room; return True if reads are in progress."""
        for lane in self.lanes:
            if lane.stored:
                self._load_if_low(lane)
        return any(lane.is_loading for lane in self.lanes)

    def refill(self, lane: SubQueue[MessageReference]) -> None:
        """Load more of a sub-queue if its window has run low."""
        if lane.stored:
            self._load_if_low(lane)

    def _load_if_low(self, lane: SubQueue[MessageReference]) -> None:
        config = self.host.broker.config
        if (
            not lane.is_loading
            and len(lane.ready) * 2 <= config.window_messages
            and lane.window_octets * 2 <= config.window_bytes
        ):
            self._load(lane)

    def _load(self, lane: SubQueue[MessageReference]) -> None:
        broker = self.host.broker
        commit_queue = broker.scheduler.commit_queue
        lane.is_loading = True

        def did(stored: Sequence[StoredMessage]) -> None:
            octets = 0
            for each in stored:
                octets += each.size
                if lane.owed and self._drop_stored(lane, each):
                    continue
                entry = MessageReference(Message.from_store(each), self, each.place)
                entry.deliveries = each.deliveries
                entry.lane = lane
                self._sharing.notice(entry.message)
                lane.append(entry)
                if entry.message.expires:
                    self._expiry.expect(entry)
            lane.take_stored(len(stored), octets)
            if not stored:
                lane.nothing_stored()
            self.loaded(lane)

        def failed(_: StoreError) -> None:
            broker.scheduler.later(_RETRY_S, partial(self.loaded, lane))

        commit_queue.read(
            lane.number,
            lane.seen,
            max(1, broker.config.window_messages - len(lane.ready)) + lane.owed,
            max(1, broker.config.window_bytes - lane.window_octets)
            + min(lane.owed_octets, _DROPPED_OCTETS),
            did,
            failed,
        )

    def loaded(self, lane: SubQueue[MessageReference]) -> None:
        """Continue after a sub-queue has been read."""
        lane.is_loading = False
        if lane.is_purged:
            lane.is_purged = False
            self.purge()
        self._made_room()
        self.host.scheduler.touch(self)

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
        self._timeouts.forget(entry)

    def withdraw(self, entry: MessageReference) -> None:
        """Remove a message taken out by an operator; no consumer holds it."""
        self.lost += 1
        self._forget(entry)

    def forget_stored(self, lane: SubQueue[MessageReference], stored: StoredMessage) -> None:
        """Remove a message behind the window of its sub-queue, or a delayed one."""
        self.messages -= 1
        self.octets -= stored.size
        if lane.index != DELAYED:
            lane.take_stored(1, stored.size)
        self.host.scheduler.commit_queue.hide(Remove(lane.number, stored.place))
        self._made_room()

    def forget_delayed(self, message: Message) -> None:
        """Remove a delayed message in memory."""
        self.messages -= 1
        self.octets -= message.size
        self._made_room()

    def _forget(self, entry: MessageReference) -> None:
        self._timeouts.forget(entry)
        self.messages -= 1
        self.octets -= entry.message.size
        lane = entry.lane
        if lane is not None and lane.number:
            self.host.scheduler.commit_queue.record(Remove(lane.number, entry.place))
        self._made_room()

    def _made_room(self) -> None:
        if self.blocked or self.overdue_of:
            self.host.scheduler.has_room(self)

    def retry_overdue(self) -> None:
        """Retry dead-lettering expired messages for which there was no room."""
        self._expiry.retry_overdue()

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

    def returned(self, entries: Iterable[MessageReference]) -> None:
        """Take messages back; they return to their old places before anything else is delivered."""
        for entry in entries:
            entry.subscription = None
            self._timeouts.forget(entry)
            lane = entry.lane
            assert lane is not None  # every entry of a queue has one
            lane.back.append(entry)
            self._sharing.look_again(lane.index, entry.place)
            if entry.message.expires:
                self._expiry.expect(entry)
            if lane.number:
                self.host.scheduler.commit_queue.lazily(
                    Mark(lane.number, entry.place, entry.deliveries)
                )

    def given_back(self, entries: Iterable[MessageReference]) -> None:
        """Take back a part of an ended connection's messages, the newest part first."""
        self.returned(entries)
        for lane in self.lanes:
            if lane.back:
                lane.restore()

    def taken_back(self, entry: MessageReference) -> None:
        """Take back a message whose settlement could not be applied."""
        self.messages += 1
        self.octets += entry.message.size
        lane = entry.lane
        if lane is not None and lane.number and entry.place > lane.seen:
            # An operator has removed it from the store, ahead of messages that are still only
            # there.
            lane.leave_stored(entry.message.size)
        else:
            self.returned([entry])
        self.host.scheduler.touch(self)

    def clear(self) -> None:
        """Remove all subscriptions and waiting connections: the queue is being removed."""
        for subscription in [*self.subscriptions, *self.browsers]:
            self.remove(subscription)
        self._made_room()
        self.stop()
        self.drop_lanes()
        pullers, self.pullers = self.pullers, {}
        for puller in pullers:
            puller.offered(self)

    def stop(self) -> None:
        """Cancel all timers: the queue is being removed."""
        self._delays.clear()
        self._timeouts.clear()
        self._expiry.clear()

    def resume(self) -> None:
        """Resume deliveries."""
        self.is_paused = False
        self.host.scheduler.touch(self)

    def purge_overdue(self) -> int:
        """Drop expired messages that wait for room in the dead letters; return their number."""
        overdue = self._expiry.take_overdue()
        for entry in overdue:
            self.withdraw(entry)
        return len(overdue)

    def drop_lanes(self) -> None:
        """Delete the queue's lanes from the store; it is empty, or removed with its messages."""
        commit_queue = self.host.scheduler.commit_queue
        for lane in [*self.lanes, *self._delays.lanes]:
            if lane.number:
                commit_queue.apart(DropLane(lane.number))
                lane.number = 0


def _place(entry: MessageReference) -> int:
    return entry.place
