"""Queues: each message goes to one subscriber, in order, and stays until it is acknowledged."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from stompkit.server.domain.destinations import Blocked, Destination
from stompkit.server.domain.errors import Refused
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues.delays import Delays
from stompkit.server.domain.queues.dispatcher import Dispatcher
from stompkit.server.domain.queues.expiry import Expiry
from stompkit.server.domain.queues.pulling import Puller
from stompkit.server.domain.queues.references import MessageReference
from stompkit.server.domain.queues.sub_queue import DELAYED, SubQueue
from stompkit.server.domain.queues.timeouts import AckTimeouts
from stompkit.server.domain.session.subscriptions import Subscription
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

if TYPE_CHECKING:
    from stompkit.server.domain.hosts import VirtualHost
    from stompkit.server.domain.session.connection import Connection

__all__ = ["Queue"]

_HIGHEST_PRIORITY: Final = 9
_USUAL_PRIORITY: Final = 4
_MANY: Final = sys.maxsize
#: Seconds until a part of the store that could not be read is tried again.
_RETRY_S: Final = 1.0
#: Octets of messages that are read at a time only to be dropped: more than can be on their way into
#: the store by default, so that what is dropped keeps up with what comes.
_DROPPED_OCTETS: Final = 16 * 1024 * 1024


class Queue(Destination):
    """A work queue, in memory or in the store."""

    is_queue: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        policy: Policy,
        host: VirtualHost,
        states: Sequence[LaneState] = (),
        *,
        is_persistent: bool | None = None,
    ) -> None:
        """Make a queue with what the store has of it; ``states`` are its lanes there."""
        super().__init__(name, policy, host)
        if is_persistent is None:
            is_persistent = policy.storage == "persistent"
        self.is_persistent = is_persistent and host.broker.journal is not None
        self._read_policy()
        self._sharing = Dispatcher(policy)
        self.subscriptions = self._sharing.subscriptions
        #: Those that only look, with what they have yet to see once they have begun to.
        self.browsers: dict[Subscription, deque[MessageReference] | None] = {}
        #: Those that take a message at a time when they want one, in the order in which they came.
        self.pullers: dict[Puller, None] = {}
        #: The ranks of messages at the front by their identifiers, for those who take by rank.
        self.ranks: dict[str, tuple[int, int]] = {}
        #: Connections that wait for room, in the order in which they are let in.
        self.blocked: deque[Connection] = deque()
        #: Queues whose expired messages wait for room among these dead letters.
        self.overdue_of: dict[Queue, None] = {}
        #: Messages and octets in the queue, delivered but unsettled ones included.
        self.messages = 0
        self.octets = 0
        #: Those among them that are not kept yet: on their way into the store, or part of a unit
        #: whose other effects come first. Nothing is dropped for their sake.
        self.incoming = 0
        self.incoming_octets = 0
        #: Those of them that are in memory, and wait for the store to keep the rest of their unit.
        self.following = 0
        #: Those that are kept and have yet to get into their lanes: their unit has several.
        self._arrived = 0
        #: Whether messages are to be dropped that have to be read from the store for that. Until
        #: then nothing is delivered: it could be what is to be dropped.
        self.owes_drops = False
        #: Messages on their way that are waited for before anything is delivered, for the same
        #: reason: they were sent before its consumer came.
        self._awaited = 0
        #: Whether more of it is to be in memory, so that what has expired makes room.
        self._is_short = False
        #: Whether nobody takes more of it before the next turn.
        self._is_stuck = False
        #: Messages that the store had at first, and that have left without being acknowledged.
        self.restored = 0
        self.lost = 0
        self.lanes: list[SubQueue] = []
        self._delays = Delays(self)
        self._timeouts = AckTimeouts(self)
        self._expiry = Expiry(self)
        for state in states:
            self.messages += state.messages
            self.octets += state.octets
            lane = SubQueue.of(state)
            if state.part == DELAYED:
                self._delays.restore(lane)
            else:
                self.lanes.append(lane)
        self.restored = self.messages
        self.lanes.sort(key=lambda lane: lane.index)

    def configure(self, policy: Policy) -> None:
        """Go by other settings from now on; whoever waits is looked at again."""
        super().configure(policy)
        self._sharing.take(policy)
        self._read_policy()
        if not self._is_trimmed:
            self._drop_no_more()
        self._expiry.retry_overdue()
        self._made_room()
        # What is beyond limits that are lower now is dropped, or nothing is waited for any more.
        self.host.broker.touch(self)

    def _drop_no_more(self) -> None:
        """Keep and deliver what would have been dropped."""
        self.owes_drops, self._awaited = False, 0
        for lane in self.lanes:
            lane.owed = lane.owed_octets = 0

    def _read_policy(self) -> None:
        """Have at hand what every message asks for."""
        policy = self.policy
        self._max_messages = policy.max_queue_messages
        #: The limit that goes for the place where its messages are.
        self._max_octets = policy.max_queue_bytes
        if not self.is_persistent:
            self._max_octets = min(policy.max_queue_bytes, policy.max_memory_queue_bytes)
        self._drops_oldest = policy.when_full == "drop-oldest"
        #: Whether it drops messages by itself where it has too many.
        self._is_trimmed = self._drops_oldest
        self._ttl_s = policy.message_ttl_s
        self._has_priorities = policy.priority

    # What is in it.

    @property
    def is_stored(self) -> bool:
        """Whether the store has a part of it."""
        return any(lane.number for lane in self.lanes)

    @property
    def stored_as(self) -> str:
        """The name of its lanes in the store."""
        return self.name

    @property
    def ready(self) -> int:
        """Messages that wait to be delivered, in memory or only in the store."""
        return sum(lane.waiting for lane in self.lanes)

    @property
    def delayed(self) -> int:
        """Messages whose time has not come."""
        return len(self._delays)

    @property
    def delays(self) -> Delays:
        """What keeps those messages."""
        return self._delays

    @property
    def consumers(self) -> int:
        """Subscriptions that get its messages; those that only look are not counted."""
        return len(self.subscriptions)

    @property
    def is_idle(self) -> bool:
        """Whether the queue has neither messages nor subscribers, and nobody else minds it."""
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
        """Whether others may get messages when a subscription ends: with groups, for example."""
        return self._sharing.is_picky

    @property
    def is_disposable(self) -> bool:
        """Whether it has no messages, and no subscribers but by patterns."""
        is_used = self.messages or self.browsers or self.blocked or self.pullers
        is_kept = self.is_paused or self.holds or self.in_doubt
        return not (is_used or is_kept) and all(
            subscription.pattern is not None for subscription in self.subscriptions
        )

    @property
    def settled_count(self) -> int:
        """Messages that consumers are done with: those that are gone and not lost."""
        return max(0, self.restored + self.received - self.messages - self.lost)

    @property
    def unsettled(self) -> int:
        """Messages that consumers have not acknowledged, and those on their way into the store."""
        return max(0, self.messages - self.ready - self.delayed)

    def check(self, message: Message) -> None:
        """Raise :class:`Refused` for a message that would have to wait for too long."""
        if message.due:
            self._delays.check(message)

    def check_delays(self, messages: int, size: int) -> None:
        """Raise :class:`Refused` if that many more messages can't wait for their time."""
        self._delays.check_room(messages)

    def check_room(self, messages: int, size: int) -> None:
        """Raise :class:`Refused` if that many more messages and octets can't be taken."""
        if self._fits(messages, size):
            return
        # What has expired has to be in memory to be dropped. It is read after this turn: nothing
        # else is to happen between what is checked and what is done.
        self._is_short = True
        self.host.broker.touch(self)
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
            raise Blocked(text, self)
        raise Refused(text, "queue-full")

    def _look_in_store(self) -> bool:
        """Drop what has expired in the store only; says whether that has to be waited for."""
        broker = self.host.broker
        # A runner that answers at once must not have others served in the middle of this.
        broker.is_checking = True
        try:
            return self._expiry.look_in_store()
        finally:
            broker.is_checking = False

    @property
    def is_held_back(self) -> bool:
        """Whether nothing is delivered: what is ahead of it is to be dropped, or comes back."""
        return self.owes_drops or self._awaited > 0 or self.returning > 0

    @property
    def is_over(self) -> bool:
        """Whether it has more than it may, without what is not kept yet, or is to be dropped."""
        messages, octets = self._excess()
        if self.owes_drops:
            messages -= sum(lane.owed for lane in self.lanes)
            octets -= sum(lane.owed_octets for lane in self.lanes)
        return messages > 0 or octets > 0

    def _excess(self) -> tuple[int, int]:
        """Messages and octets beyond the limits, without what is not kept yet."""
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
        """Whether there is room once everything is dropped that nobody has.

        What is only in the store is part of that, and so is what is on its way there: once it is
        kept, it can be dropped.
        """
        delays, overdue = self._delays, self._expiry.overdue
        kept = self.messages - self.ready - (self.incoming - delays.incoming) - len(overdue)
        octets = self.octets - (self.incoming_octets - delays.incoming_octets)
        octets -= sum(lane.waiting_octets for lane in self.lanes)
        octets -= sum(entry.message.size for entry in overdue)
        return kept + messages <= self._max_messages and octets + size <= self._max_octets

    # What is dropped.

    def _make_room(self) -> None:
        """Drop the oldest messages for the sake of one that is kept, and not in its lane yet."""
        self._hand_out()
        self._drop_oldest()

    def _trim(self) -> bool:
        """Drop what is beyond the limits; says whether that is done, or waits for the store."""
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
        """Drop from the front of the lowest priority until the limits are kept.

        What is only in the store is read for that later. What consumers have, and what has yet to
        come due, is never dropped.
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

    def _owe(self, lane: SubQueue) -> None:
        """Have messages dropped that only the store has, as many as have to be.

        Their number is known, but their octets are not until they have been read: it is reckoned
        with the usual ones, and looked at again then.
        """
        self.owes_drops = True
        usual = max(1, lane.stored_octets // lane.stored)
        messages, octets = self._excess()
        messages -= sum(each.owed for each in self.lanes)
        octets -= sum(each.owed_octets for each in self.lanes)
        owed = min(lane.stored - lane.owed, max(messages, -(-octets // usual)))
        lane.owed += owed
        lane.owed_octets += owed * usual

    def _drop_stored(self, lane: SubQueue, stored: StoredMessage) -> bool:
        """Drop a message that has been read for that; says whether it was still to be."""
        messages, octets = self._excess()
        if messages <= 0 and octets <= 0:
            # Fewer were enough.
            lane.owed = lane.owed_octets = 0
            return False
        lane.seen = stored.place
        lane.owed -= 1
        lane.owed_octets = max(0, lane.owed_octets - stored.size) if lane.owed else 0
        if 0 < stored.expires_ms <= self.host.broker.now * 1000:
            self._expiry.expire_read(lane, stored)
        else:
            self._drop_at(lane, stored.place, stored.size)
        return True

    def _drop_first(self, lane: SubQueue) -> bool:
        """Drop the first message of a lane that is in memory; says whether there was one."""
        overdue = self._expiry.next_overdue()
        if overdue is not None:
            self._drop(overdue)
        elif not lane.ready:
            return False
        else:
            entry = lane.popleft()
            if entry.message.is_expired(self.host.broker.now):
                self._expiry.expire(entry)
            else:
                self._drop(entry)
        return True

    def _drop(self, entry: MessageReference) -> None:
        """Drop a message to keep the limits."""
        self._timeouts.forget(entry)
        lane = entry.lane
        assert lane is not None  # every entry of a queue has one
        self._drop_at(lane, entry.place, entry.message.size)

    def _drop_at(self, lane: SubQueue, place: int, size: int) -> None:
        self.dropped += 1
        self.lost += 1
        self.messages -= 1
        self.octets -= size
        if lane.number:
            journal = self.host.broker.journal
            assert journal is not None  # it has given the lane its number
            # Where the process dies before, the limits are kept again when the next one begins.
            journal.lazily(Remove(lane.number, place))
        self._made_room()

    def _hand_out(self) -> None:
        """Deliver what is settled by that and so makes room; reads nothing of the store."""
        if self._is_stuck or self.is_paused or self.is_held_back or not self.subscriptions:
            return
        if not any(lane.ready or lane.back for lane in self.lanes):
            return
        takers = self._sharing.takers()
        if not all(each.is_auto for each in takers):
            takers = deque(each for each in takers if each.is_auto)
        self._is_stuck = not self._deliver(takers, _MANY, can_load=False)

    def purge(self) -> int:
        """Drop all messages that nobody has; gives their number.

        Delivered ones stay with their consumers.
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
        self.host.broker.touch(self)
        self.lost += before - self.messages
        return before - self.messages

    def _purge_stored(self, lane: SubQueue) -> None:
        """Drop what is behind the window; its sizes have to be read for that."""
        journal = self.host.broker.journal
        assert journal is not None  # only a store has what is not in memory
        left, after = lane.stored, lane.seen
        self.messages -= left
        self.octets -= lane.stored_octets
        lane.nothing_stored()

        def read() -> None:
            assert journal is not None  # as above
            journal.read(lane.number, after, min(left, 1_000), 1 << 24, did, failed)

        def failed(_: StoreError) -> None:
            self.host.broker.later(_RETRY_S, read)

        def did(stored: Sequence[StoredMessage]) -> None:
            nonlocal left, after
            assert journal is not None  # as above
            for each in stored:
                after = each.place
                journal.record(Remove(lane.number, each.place))
            left -= len(stored)
            lane.seen = max(lane.seen, after)
            self._made_room()
            if left > 0 and stored:
                read()

        read()

    # In.

    def put(self, message: Message) -> None:
        """Append a message; the caller has checked that there is room, or can be."""
        self.received += 1
        self.messages += 1
        self.octets += message.size
        now = self.host.broker.now
        if self._ttl_s and not message.expires:
            message.expires = max(now, message.due) + self._ttl_s
        is_delayed = message.due > now
        is_persistent = self.is_persistent
        # What is in memory waits for what it is part of, and for what came before it.
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
        """Have a message in memory wait for the rest of its unit."""
        if self.host.arriving is not None:
            self.host.arriving.append((self, entry))
        else:
            self.follow(entry)

    def follow(self, entry: MessageReference) -> None:
        """Have a message in memory wait for the store; :meth:`put_done` follows."""
        journal = self.host.broker.journal
        assert journal is not None  # there is a store to wait for
        self.following += 1
        journal.follow(entry)

    def _entry(self, message: Message) -> MessageReference:
        """Return an entry for a message, with the next place of its lane."""
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
        """Append a message that is counted already."""
        entry = self._entry(message)
        if self.is_persistent:
            lane = entry.lane
            assert lane is not None  # _entry() has given it one
            self.keep(lane, entry)
        else:
            self.take_in(entry)

    def take_in(self, entry: MessageReference) -> None:
        """Append a message of a queue in memory to its lane, or have it wait for its time."""
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
            # What came after it was faster.
            lane.back.append(entry)
            self._sharing.look_again(lane.index, entry.place)
        if entry.message.expires:
            self._expiry.expect(entry)

    def keep(self, lane: SubQueue, entry: MessageReference) -> None:
        """Have the store keep a message; :meth:`put_done` follows."""
        broker = self.host.broker
        journal = broker.journal
        assert journal is not None  # a persistent queue has a store
        if not lane.number:
            lane.number = broker.new_lane()
            journal.record(
                CreateLane(lane.number, self.host.stored_name(self.stored_as), lane.index)
            )
            self.host.note_maker(self)
        message = entry.message
        journal.put(
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
        """Count a message no longer among those on their way, ahead of :meth:`put_done`."""
        if entry.message not in self._delays.moving:
            self._arrived += 1
            self.count_off(entry)

    def count_off(self, entry: MessageReference) -> None:
        """Count a message no longer among those on their way."""
        size = entry.message.size
        self.incoming -= 1
        self.incoming_octets -= size
        if self._awaited:
            self._awaited -= 1
        lane = entry.lane
        if lane is not None and lane.index == DELAYED:
            self._delays.arrived(size)

    def put_done(self, entry: MessageReference, error: StoreError | None) -> None:
        """Deliver a message that the store has, or forget one that it could not take."""
        lane = entry.lane
        assert lane is not None  # keep() is given one
        delays = self._delays
        if delays.moving and entry.message in delays.moving:
            if delays.put_off(entry, error):
                return
        elif self._arrived:
            self._arrived -= 1
        else:
            # As count_off() does: most units have one message.
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
            self.host.broker.touch(self)
            return
        if not self.is_persistent:
            self.take_in(entry)
            self.host.broker.touch(self)
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
                # The store had failed when it was due, and what came after it was faster.
                lane.back.append(entry)
                self._sharing.look_again(lane.index, entry.place)
            if entry.message.expires:
                self._expiry.expect(entry)
        broker.touch(self)

    def _lane(self, index: int) -> SubQueue:
        for lane in self.lanes:
            if lane.index == index:
                return lane
        lane = SubQueue(index)
        self.lanes.append(lane)
        self.lanes.sort(key=lambda lane: lane.index)
        return lane

    # Out.

    def add(self, subscription: Subscription) -> None:
        """Begin to deliver to a subscription."""
        subscription.homes[self] = None
        self._sharing.add(subscription)
        self._await_arrivals()

    def offer_to(self, subscription: Subscription) -> None:
        """Have a subscription that was added look at what is there, at the end of the turn."""
        if any(lane.ready or lane.back or lane.stored for lane in self.lanes):
            subscription.waiting[self] = None

    def browse(self, subscription: Subscription) -> None:
        """Show a subscription what is there, up to the end of the window; :meth:`pump` does it."""
        subscription.homes[self] = None
        self.browsers[subscription] = None
        self._await_arrivals()

    def _await_arrivals(self) -> None:
        """Deliver nothing before what was sent so far is kept, if that pushes others out."""
        if self._is_trimmed and not self._fits(0, 0):
            self._awaited = self.incoming
            self._is_stuck = self._awaited > 0

    def remove(self, subscription: Subscription) -> None:
        """Deliver no more to a subscription."""
        subscription.homes.pop(self, None)
        subscription.waiting.pop(self, None)
        if subscription in self.browsers:
            del self.browsers[subscription]
            return
        self._sharing.remove(subscription)

    def put_last(self, subscription: Subscription) -> None:
        """Have a subscription wait until all others have had their turn."""
        self._sharing.put_last(subscription)

    def pump(self) -> None:
        """Deliver from the front, to the subscribers in turn."""
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
            # Each wants one at the most, where a subscription takes what it is allowed to hold.
            for puller in list(self.pullers):
                puller.offered(self)
        if self.subscriptions and not self.is_paused:
            self._deliver(self._sharing.takers(), _MANY)

    def serve(self, subscription: Subscription) -> bool:
        """Deliver one message to one subscription, if it can be; says whether it was."""
        if self.is_paused or self.is_held_back or subscription not in self.subscriptions:
            return False
        if subscription not in self._sharing.takers():
            return False
        is_served = self._deliver(deque([subscription]), 1) > 0
        if is_served and self._sharing.is_picky:
            # Others see further now.
            self.host.broker.touch(self)
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
                # What is on its way is before what has a lower priority.
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

    def _pump(self, lane: SubQueue, takers: deque[Subscription], most: int) -> int:
        ready = lane.ready
        now = self.host.broker.now
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
            journal = self.host.broker.journal
            assert journal is not None  # it has given the lane its number
            journal.lazily(Delivered(lane.number, reached))
        return delivered

    def _pump_picky(self, lane: SubQueue, takers: deque[Subscription], most: int) -> int:
        """Deliver in order what somebody takes, and leave the rest in its order.

        Looks no further than the window: what is behind it has to wait until somebody takes
        what is in front.
        """
        broker = self.host.broker
        now, furthest = broker.now, broker.config.window_messages
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
            broker.touch(self)
        return delivered

    def _hand_over(
        self, lane: SubQueue, entry: MessageReference, subscription: Subscription
    ) -> None:
        subscription.deliver(entry)
        if subscription.is_auto:
            self.settled(entry)
            return
        self._timeouts.watch(entry)
        if lane.number:
            journal = self.host.broker.journal
            assert journal is not None  # it has given the lane its number
            journal.lazily(Mark(lane.number, entry.place, entry.deliveries))

    def _show(self, browser: Subscription) -> None:
        """Write to a browser what it has not seen; the end is marked, and it gets no more."""
        backlog = self.browsers[browser]
        if backlog is None:
            if self._load_low_lanes():
                return
            self.browsers[browser] = backlog = deque()
            for lane in self.lanes:
                if lane.back:
                    lane.restore()
                backlog.extend(entry for entry in lane.ready if browser.takes(entry.message))
        now = self.host.broker.now
        while backlog and browser.connection.has_room:
            entry = backlog.popleft()
            if not entry.message.is_expired(now):
                # It looks as the next consumer would get it.
                seen = MessageReference(entry.message, self, entry.place)
                seen.deliveries = entry.deliveries
                browser.deliver(seen)
        if not browser.connection.has_room:
            browser.waiting[self] = None
            return
        browser.end_of_browsing()
        self.remove(browser)

    # The window of what the store has.

    def _load_low_lanes(self) -> bool:
        """Load what there is room for in the windows; says whether something is on its way."""
        for lane in self.lanes:
            if lane.stored:
                self._load_if_low(lane)
        return any(lane.is_loading for lane in self.lanes)

    def refill(self, lane: SubQueue) -> None:
        """Load more of a lane if its window has run low."""
        if lane.stored:
            self._load_if_low(lane)

    def _load_if_low(self, lane: SubQueue) -> None:
        config = self.host.broker.config
        if (
            not lane.is_loading
            and len(lane.ready) * 2 <= config.window_messages
            and lane.window_octets * 2 <= config.window_bytes
        ):
            self._load(lane)

    def _load(self, lane: SubQueue) -> None:
        broker = self.host.broker
        journal = broker.journal
        assert journal is not None  # only a store has what is not in memory
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
            broker.later(_RETRY_S, partial(self.loaded, lane))

        journal.read(
            lane.number,
            lane.seen,
            max(1, broker.config.window_messages - len(lane.ready)) + lane.owed,
            max(1, broker.config.window_bytes - lane.window_octets)
            + min(lane.owed_octets, _DROPPED_OCTETS),
            did,
            failed,
        )

    def loaded(self, lane: SubQueue) -> None:
        """Go on, now that a lane has been read."""
        lane.is_loading = False
        if lane.is_purged:
            lane.is_purged = False
            self.purge()
        self._made_room()
        self.host.broker.touch(self)

    # The end of a message.

    def settled(self, entry: MessageReference) -> None:
        """Forget an acknowledged entry."""
        self._forget(entry)

    def settled_many(self, messages: int, octets: int) -> None:
        """Have many acknowledged messages gone; :meth:`let_go` follows for each."""
        self.messages -= messages
        self.octets -= octets
        self._made_room()

    def let_go(self, entry: MessageReference) -> None:
        """Wait for nothing more of an acknowledged entry, which is gone."""
        self._timeouts.forget(entry)

    def withdraw(self, entry: MessageReference) -> None:
        """Forget an entry that an operator has taken out; nobody has it."""
        self.lost += 1
        self._forget(entry)

    def forget_stored(self, lane: SubQueue, stored: StoredMessage) -> None:
        """Forget a message behind the window of its lane, or one whose time has not come."""
        self.messages -= 1
        self.octets -= stored.size
        if lane.index != DELAYED:
            lane.take_stored(1, stored.size)
        journal = self.host.broker.journal
        assert journal is not None  # what is stored is in a store
        journal.hide(Remove(lane.number, stored.place))
        self._made_room()

    def forget_delayed(self, message: Message) -> None:
        """Forget a message in memory whose time has not come."""
        self.messages -= 1
        self.octets -= message.size
        self._made_room()

    def _forget(self, entry: MessageReference) -> None:
        self._timeouts.forget(entry)
        self.messages -= 1
        self.octets -= entry.message.size
        lane = entry.lane
        if lane is not None and lane.number:
            journal = self.host.broker.journal
            assert journal is not None  # it has given the lane its number
            journal.record(Remove(lane.number, entry.place))
        self._made_room()

    def _made_room(self) -> None:
        if self.blocked or self.overdue_of:
            self.host.broker.has_room(self)

    def retry_overdue(self) -> None:
        """Try again to dead-letter expired messages that there was no room for."""
        self._expiry.retry_overdue()

    def let_in(self) -> None:
        """Have those who wait for room go on, in their order, until there is none again."""
        if self.overdue_of:
            queues, self.overdue_of = self.overdue_of, {}
            for queue in queues:
                queue.retry_overdue()
        while self.blocked:
            connection = self.blocked.popleft()
            if not connection.try_again() and self.blocked and self.blocked[-1] is connection:
                # It has queued up again; nobody is to get in before it.
                self.blocked.rotate(1)
                return

    def returned(self, entries: Iterable[MessageReference]) -> None:
        """Take entries back; they get their old places before anything else is delivered."""
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
                journal = self.host.broker.journal
                assert journal is not None  # it has given the lane its number
                journal.lazily(Mark(lane.number, entry.place, entry.deliveries))

    def given_back(self, entries: Iterable[MessageReference]) -> None:
        """Take back a part of what a connection has had that ended, the newest part first."""
        self.returned(entries)
        for lane in self.lanes:
            if lane.back:
                lane.restore()

    def taken_back(self, entry: MessageReference) -> None:
        """Take back an entry that was settled by what could not be done."""
        self.messages += 1
        self.octets += entry.message.size
        lane = entry.lane
        if lane is not None and lane.number and entry.place > lane.seen:
            # An operator has taken it out of the store, ahead of what is still only there.
            lane.leave_stored(entry.message.size)
        else:
            self.returned([entry])
        self.host.broker.touch(self)

    def clear(self) -> None:
        """Let go of who is subscribed or waits for room: the queue is being removed."""
        for subscription in [*self.subscriptions, *self.browsers]:
            self.remove(subscription)
        self._made_room()
        self.stop()
        self.drop_lanes()
        pullers, self.pullers = self.pullers, {}
        for puller in pullers:
            puller.offered(self)

    def stop(self) -> None:
        """Wait for no time any more: the queue is being removed."""
        self._delays.clear()
        self._timeouts.clear()
        self._expiry.clear()

    def resume(self) -> None:
        """Deliver again."""
        self.is_paused = False
        self.host.broker.touch(self)

    def purge_overdue(self) -> int:
        """Drop what has expired and waits for room in the dead letters; gives its number."""
        overdue = self._expiry.take_overdue()
        for entry in overdue:
            self.withdraw(entry)
        return len(overdue)

    def drop_lanes(self) -> None:
        """Have the store forget the queue; it is empty, or to be removed with its messages."""
        journal = self.host.broker.journal
        for lane in [*self.lanes, *self._delays.lanes]:
            if lane.number and journal is not None:
                journal.apart(DropLane(lane.number))
                lane.number = 0


def _place(entry: MessageReference) -> int:
    return entry.place
