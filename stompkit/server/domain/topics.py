"""Topics: each subscriber gets a copy."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from stompkit.server.domain.deliveries import ConnectionBase, MessageReference, Subscription
from stompkit.server.domain.destinations import Destination, HostBase
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.hosts.choices import Choice
from stompkit.server.domain.messages import Message
from stompkit.server.domain.pending_offers import PendingOffer
from stompkit.server.domain.queues.delays import Delays
from stompkit.server.domain.queues.durables import DurableQueue
from stompkit.server.interfaces import StoreError
from stompkit.server.settings.broker import Policy

__all__ = ["Topic"]


class Topic(Destination):
    """A topic: each subscriber gets a copy of messages sent while it is subscribed."""

    def __init__(self, name: str, policy: Policy, host: HostBase) -> None:
        """Create a topic without subscribers."""
        super().__init__(name, policy, host)
        self.subscriptions: dict[Subscription, None] = {}
        #: The queues of durable subscriptions.
        self.durables: dict[DurableQueue, None] = {}
        #: Made for the first delayed message, and let go with the topic: it refers to it.
        self._delays: Delays | None = None
        self._last_place = 0
        #: Number of subscriptions with selectors.
        self._selectors = 0
        #: Messages not yet offered to all subscribers, since the time for selectors was used up.
        #: None if empty: a deque would double the size of an idle topic.
        self._offers: deque[PendingOffer] | None = None
        #: Those of them whose transaction is not stored yet, by place.
        self._reserved: dict[int, PendingOffer] | None = None
        #: Connections that wait for these messages, in order of arrival.
        self.blocked: list[ConnectionBase] = []

    @property
    def ready(self) -> int:
        """Number of copies kept for subscribers that could not receive them at once."""
        return self.held

    @property
    def delayed(self) -> int:
        """Number of messages that are not due yet."""
        return 0 if self._delays is None else len(self._delays)

    @property
    def consumers(self) -> int:
        """Number of subscriptions; each durable one has a separate queue."""
        return len(self.subscriptions)

    @property
    def is_idle(self) -> bool:
        """True if there are no subscribers and no delayed messages."""
        is_used = self.subscriptions or self.durables or self._offers or self.blocked or self.holds
        return not is_used and (self._delays is None or self._delays.is_empty)

    @property
    def is_disposable(self) -> bool:
        """True if all subscribers use patterns, and nothing is pending."""
        return (
            (self._delays is None or self._delays.is_empty)
            and not (self._offers or self.blocked or self.holds)
            and all(each.pattern is not None for each in self.subscriptions)
            and all(each.pattern is not None for each in self.durables)
        )

    def check(self, message: Message) -> None:
        """Raise :class:`RefusedError` for a message with too long a delay."""
        if message.due:
            self._delaying().check(message)

    def check_delays(self, messages: int, size: int) -> None:
        """Raise :class:`RefusedError` if there is no room for that many more delayed messages.

        Delayed messages of a topic are in memory, and have the limits of a queue.
        """
        delays = self._delaying()
        delays.check_room(messages)
        most = min(self.policy.max_queue_bytes, self.policy.max_memory_queue_bytes)
        octets = delays.octets + delays.incoming_octets
        if octets + size > most:
            raise RefusedError(
                f"{self.name} is full: {octets} octets of delayed messages wait in it",
                "queue-full",
            )

    def _delaying(self) -> Delays:
        if self._delays is None:
            self._delays = Delays(self)
        return self._delays

    def put(self, message: Message, choice: Choice | None = None) -> None:
        """Deliver a message to all subscribers, now or when it is due.

        If it must be stored for durable subscriptions, it is delivered once it is stored.
        ``choice`` has the results of selectors evaluated before, if any.
        """
        commit_queue = self.host.scheduler.commit_queue
        if self.durables and commit_queue.has_store:
            was_busy = self.is_busy
            entry = self.reserve(message, choice)
            # The sender can continue without waiting for the store: later messages follow this one.
            self.is_busy = was_busy or bool(self._offers and not self._offers[-1].has_durables)
            if entry is not None and commit_queue.is_recording:
                commit_queue.follow(entry)
            elif entry is not None:
                self.put_done(entry, None)
            return
        self.received += 1
        ttl_s = self.policy.message_ttl_s
        now = self.host.scheduler.wall
        if ttl_s and not message.expires:
            message.expires = max(now, message.due) + ttl_s
        if message.due:
            self._delaying().put(message)
        else:
            self.enqueue(message, choice)

    def reserve(self, message: Message, choice: Choice | None = None) -> MessageReference | None:
        """Accept a message of a transaction, which :meth:`put_done` delivers to all subscribers.

        Later messages wait until then. Durable subscriptions get their copies at once, as part of
        the transaction. Return ``None`` for a message that has expired.
        """
        self.received += 1
        ttl_s = self.policy.message_ttl_s
        broker = self.host.broker
        if ttl_s and not message.expires:
            message.expires = max(broker.scheduler.wall, message.due) + ttl_s
        if message.due:
            return self._delaying().arriving(message)
        if message.is_expired(broker.scheduler.wall):
            return None
        self._last_place += 1
        offer = PendingOffer(message, self._last_place, broker.last_subscription, choice)
        offer.is_late = offer.is_reserved = True
        # All copies are stored together, even if other messages are still waiting.
        self._offer_to_durables(offer)
        if self._offers is None:
            self._offers = deque()
        self._offers.append(offer)
        if self._reserved is None:
            self._reserved = {}
        self._reserved[offer.place] = offer
        self.is_busy = True
        return MessageReference(message, self, offer.place)

    def put_done(self, entry: MessageReference, error: StoreError | None) -> None:
        """Deliver a message accepted by :meth:`reserve` to all subscribers, or drop it."""
        if entry.sub_queue is not None:
            delays = self._delaying()
            delays.arrived(entry.message.size)
            if error is None:
                delays.kept(entry)
            return
        offer = None if self._reserved is None else self._reserved.pop(entry.place, None)
        if offer is None:
            return
        if not self._reserved:
            self._reserved = None
        offer.is_reserved = False
        offer.is_gone = error is not None
        offer.last_serial = self.host.broker.last_subscription
        self.host.scheduler.touch(self)

    def enqueue(self, message: Message, choice: Choice | None = None) -> None:
        """Deliver a message to all subscribers, or hold it for those that cannot receive it now."""
        if message.is_expired(self.host.scheduler.wall):
            return
        self._last_place += 1
        if self._selectors or self.durables or self._offers:
            self._offer_in_turn(message, choice)
            return
        delivered = 0
        for subscription in list(self.subscriptions):
            entry = MessageReference(message, self, self._last_place)
            if not subscription.backlog and subscription.wants_copy():
                subscription.deliver(entry)
                delivered += 1
            elif not subscription.is_over:
                self._hold(subscription, entry)
        self.delivered += delivered

    def _offer_in_turn(self, message: Message, choice: Choice | None) -> None:
        """Deliver a message to all subscribers now, or after earlier messages still pending."""
        offer = PendingOffer(message, self._last_place, self.host.broker.last_subscription, choice)
        if self._offers:
            offer.is_late = True
        elif self._offer(offer):
            return
        if self._offers is None:
            self._offers = deque()
        self._offers.append(offer)
        self.is_busy = True

    def pump(self) -> None:
        """Continue with messages for which selectors had no time."""
        while self._offers:
            first = self._offers[0]
            if first.is_reserved:
                return
            if not (first.is_gone or self._offer(first)):
                self.is_busy = True
                return
            self._offers.popleft()
        if self.is_busy:
            self.is_busy = False
            self.host.scheduler.has_room(self)

    def let_in(self) -> None:
        """Resume the senders that wait for earlier messages, in order."""
        while self.blocked and not self.is_busy:
            self.blocked.pop(0).try_again()

    def _offer(self, offer: PendingOffer) -> bool:
        """Offer a message to subscribers that have not got it; return True if none is left."""
        message = offer.message
        takers = offer.takers
        if takers is None:
            takers = offer.takers = list(self.subscriptions)
        time = self.host.broker.selector_time
        is_timed = False
        verdicts: dict[object, bool] = {}
        for index in range(offer.index, len(takers)):
            subscription = takers[index]
            selector = subscription.selector
            if selector is not None:
                if not time.is_left:
                    offer.index = index
                    offer.is_late = True
                    time.postpone(self, has_begun=is_timed)
                    return False
                if not is_timed:
                    is_timed = True
                    time.begin()
                verdict = verdicts.get(selector.condition)
                if verdict is None:
                    verdict = verdicts[selector.condition] = selector.takes(message.headers)
                    time.charge(subscription.connection, selector.cost)
                if not verdict:
                    continue
            if offer.is_late and not self._is_for(offer, subscription):
                continue
            self._give(subscription, MessageReference(message, self, offer.place))
        offer.index = len(takers)
        return self._offer_to_durables(offer)

    def _is_for(self, offer: PendingOffer, subscription: Subscription) -> bool:
        """Return True if a subscription existed when a message arrived, and still does."""
        return subscription.serial <= offer.last_serial and subscription in self.subscriptions

    def _give(self, subscription: Subscription, entry: MessageReference) -> None:
        if not subscription.backlog and subscription.wants_copy():
            subscription.deliver(entry)
            self.delivered += 1
        elif not subscription.is_over:
            self._hold(subscription, entry)

    def _offer_to_durables(self, offer: PendingOffer) -> bool:
        """Deliver a message to the durable subscriptions that take it, once all are evaluated."""
        if offer.has_durables:
            return True
        durables = offer.durables
        if durables is None:
            durables = offer.durables = list(self.durables)
        if not self._ask(offer, durables):
            offer.is_late = True
            return False
        choice = offer.choice
        for durable in durables:
            if durable in self.durables and choice.takes(durable):
                durable.offer(offer.message)
        offer.has_durables = True
        return True

    def _ask(self, offer: PendingOffer, durables: Iterable[DurableQueue]) -> bool:
        """Evaluate selectors not evaluated before; return False if time ran out.

        If some were evaluated before the message arrived, the few added since are evaluated without
        a time limit. Its sender must get a definite receipt.
        """
        time = self.host.broker.selector_time
        choice = offer.choice
        unasked = choice.unasked(durables)
        if unasked:
            time.begin()
        for durable in unasked:
            if not (offer.was_asked or time.is_left):
                time.postpone(self, has_begun=True)
                return False
            choice.ask(durable)
            assert durable.selector is not None  # others are not to be asked
            time.charge(None, durable.selector.cost)
        return True

    def _hold(self, subscription: Subscription, entry: MessageReference) -> None:
        if self._is_full_for(subscription, entry.message.size):
            self._hold_if_possible(subscription, entry)
        else:
            subscription.enqueue(entry)

    def _is_full_for(self, subscription: Subscription, size: int) -> bool:
        """Return True if one more message of that size exceeds the backlog of a subscriber."""
        policy = self.policy
        return (
            len(subscription.backlog) >= policy.max_topic_backlog
            or subscription.backlog_bytes + size > policy.max_topic_backlog_bytes
            or subscription.connection.backlog >= self.host.broker.config.max_connection_backlog
        )

    def _hold_if_possible(self, subscription: Subscription, entry: MessageReference) -> None:
        """Hold a message for a subscriber with a full backlog, according to the policy."""
        size = entry.message.size
        # It may accept some of the backlog by now, and expired messages do not count.
        subscription.catch_up(self.host.scheduler.wall)
        if not subscription.backlog and subscription.wants_copy():
            subscription.deliver(entry)
            self.delivered += 1
            return
        policy = self.policy
        if policy.slow_reader == "drop-oldest" and size <= policy.max_topic_backlog_bytes:
            while subscription.backlog and self._is_full_for(subscription, size):
                subscription.drop_oldest()
            if self._is_full_for(subscription, size):
                # The backlog of the whole connection is too large.
                subscription.connection.drop_from_longest_backlog()
        if not self._is_full_for(subscription, size):
            subscription.enqueue(entry)
            return
        # No other message is dropped for one that cannot be held.
        subscription.lose(entry)
        if policy.slow_reader == "disconnect":
            self.host.scheduler.disconnect(
                subscription.connection,
                f"too slow: {len(subscription.backlog)} messages of {self.name} wait for it",
                "slow-reader",
            )

    def add(self, subscription: Subscription) -> None:
        """Start deliveries to a subscription."""
        subscription.homes[self] = None
        self.subscriptions[subscription] = None
        self._selectors += subscription.selector is not None

    def remove(self, subscription: Subscription) -> None:
        """Stop deliveries to a subscription."""
        subscription.homes.pop(self, None)
        if subscription in self.subscriptions:
            del self.subscriptions[subscription]
            self._selectors -= subscription.selector is not None

    def count_lost_copy(self) -> None:
        """Count a message that a subscriber does not get, since it reads too slowly."""
        self.dropped += 1

    def clear(self) -> None:
        """Remove all subscribers and all delayed messages."""
        for subscription in list(self.subscriptions):
            self.remove(subscription)
        self.durables.clear()
        if self._delays is not None:
            self._delays.clear()
            if self._delays.is_done:
                self._delays = None
        self._offers = self._reserved = None
        self.is_busy = False
        if self.blocked:
            self.host.scheduler.has_room(self)
