"""Topics and fan-out destinations: each subscriber or child queue gets a copy."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from stompkit.server.domain.deliveries import ConnectionBase, MessageReference, Subscription
from stompkit.server.domain.destinations import Destination, HostBase
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.hosts.choices import Choice
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues.delays import Delays
from stompkit.server.domain.queues.durables import DurableQueue
from stompkit.server.interfaces import StoreError
from stompkit.server.settings.broker import Policy

__all__ = ["Fanout", "Topic"]

#: Header of a copy with the destination that the original was sent to.
_WHENCE: Final = "original-destination"


class _Rest:
    """A message of a topic whose offering to subscribers is not complete."""

    __slots__ = (
        "choice",
        "durables",
        "has_durables",
        "index",
        "is_gone",
        "is_late",
        "is_reserved",
        "last_serial",
        "message",
        "place",
        "takers",
        "was_asked",
    )

    def __init__(
        self, message: Message, place: int, last_serial: int, choice: Choice | None
    ) -> None:
        """Start without subscribers; ``last_serial`` is that of the last entitled subscription."""
        self.message = message
        #: True if the selectors of durable subscriptions were evaluated before the message arrived.
        self.was_asked = choice is not None
        self.choice = Choice(message) if choice is None else choice
        self.place = place
        self.last_serial = last_serial
        self.takers: list[Subscription] | None = None
        self.index = 0
        self.durables: list[DurableQueue] | None = None
        #: True if all durable subscriptions that take the message have it.
        self.has_durables = False
        #: True if it was not offered to all subscribers in the cycle of its arrival.
        self.is_late = False
        #: True until the store has recorded the rest of its transaction.
        self.is_reserved = False
        #: True if the store could not record the transaction: nobody gets the message.
        self.is_gone = False


class Topic(Destination):
    """A topic: each subscriber gets a copy of messages sent while it is subscribed."""

    def __init__(self, name: str, policy: Policy, host: HostBase) -> None:
        """Create a topic without subscribers."""
        super().__init__(name, policy, host)
        self.subscriptions: dict[Subscription, None] = {}
        #: The queues of durable subscriptions.
        self.durables: dict[DurableQueue, None] = {}
        self._delays = Delays(self)
        self._last_place = 0
        #: Number of subscriptions with selectors.
        self._selectors = 0
        #: Messages not yet offered to all subscribers, since the time for selectors was used up.
        #: None if empty: a deque would double the size of an idle topic.
        self._rest: deque[_Rest] | None = None
        #: Those of them whose transaction is not stored yet, by place.
        self._reserved: dict[int, _Rest] | None = None
        #: Connections that wait for these messages, in order of arrival.
        self.blocked: list[ConnectionBase] = []

    @property
    def ready(self) -> int:
        """Number of copies kept for subscribers that could not receive them at once."""
        return sum(each.home is self for taker in self.subscriptions for each in taker.backlog)

    @property
    def delayed(self) -> int:
        """Number of messages that are not due yet."""
        return len(self._delays)

    @property
    def consumers(self) -> int:
        """Number of subscriptions; each durable one has a separate queue."""
        return len(self.subscriptions)

    @property
    def is_idle(self) -> bool:
        """True if there are no subscribers and no delayed messages."""
        is_used = self.subscriptions or self.durables or self._rest or self.blocked or self.holds
        return not is_used and self._delays.is_empty

    @property
    def is_disposable(self) -> bool:
        """True if all subscribers use patterns, and nothing is pending."""
        return (
            self._delays.is_empty
            and not (self._rest or self.blocked or self.holds)
            and all(each.pattern is not None for each in self.subscriptions)
            and all(each.pattern is not None for each in self.durables)
        )

    def check(self, message: Message) -> None:
        """Raise :class:`RefusedError` for a message with too long a delay."""
        if message.due:
            self._delays.check(message)

    def check_delays(self, messages: int, size: int) -> None:
        """Raise :class:`RefusedError` if there is no room for that many more delayed messages.

        Delayed messages of a topic are in memory, and have the limits of a queue.
        """
        self._delays.check_room(messages)
        most = min(self.policy.max_queue_bytes, self.policy.max_memory_queue_bytes)
        octets = self._delays.octets + self._delays.incoming_octets
        if octets + size > most:
            raise RefusedError(
                f"{self.name} is full: {octets} octets of delayed messages wait in it",
                "queue-full",
            )

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
            self.is_busy = was_busy or bool(self._rest and not self._rest[-1].has_durables)
            if entry is not None and commit_queue.is_recording:
                commit_queue.follow(entry)
            elif entry is not None:
                self.put_done(entry, None)
            return
        self.received += 1
        ttl_s = self.policy.message_ttl_s
        now = self.host.scheduler.now
        if ttl_s and not message.expires:
            message.expires = max(now, message.due) + ttl_s
        if message.due > now:
            self._delays.put(message)
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
            message.expires = max(broker.scheduler.now, message.due) + ttl_s
        if message.due > broker.scheduler.now:
            return self._delays.arriving(message)
        if message.is_expired(broker.scheduler.now):
            return None
        self._last_place += 1
        rest = _Rest(message, self._last_place, broker.last_subscription, choice)
        rest.is_late = rest.is_reserved = True
        # All copies are stored together, even if other messages are still waiting.
        self._offer_to_durables(rest)
        if self._rest is None:
            self._rest = deque()
        self._rest.append(rest)
        if self._reserved is None:
            self._reserved = {}
        self._reserved[rest.place] = rest
        self.is_busy = True
        return MessageReference(message, self, rest.place)

    def put_done(self, entry: MessageReference, error: StoreError | None) -> None:
        """Deliver a message accepted by :meth:`reserve` to all subscribers, or drop it."""
        if entry.lane is not None:
            self._delays.arrived(entry.message.size)
            if error is None:
                self._delays.kept(entry)
            return
        rest = None if self._reserved is None else self._reserved.pop(entry.place, None)
        if rest is None:
            return
        if not self._reserved:
            self._reserved = None
        rest.is_reserved = False
        rest.is_gone = error is not None
        rest.last_serial = self.host.broker.last_subscription
        self.host.scheduler.touch(self)

    def enqueue(self, message: Message, choice: Choice | None = None) -> None:
        """Deliver a message to all subscribers, or hold it for those that cannot receive it now."""
        if message.is_expired(self.host.scheduler.now):
            return
        self._last_place += 1
        if self._selectors or self.durables or self._rest:
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
        rest = _Rest(message, self._last_place, self.host.broker.last_subscription, choice)
        if self._rest:
            rest.is_late = True
        elif self._offer(rest):
            return
        if self._rest is None:
            self._rest = deque()
        self._rest.append(rest)
        self.is_busy = True

    def pump(self) -> None:
        """Continue with messages for which selectors had no time."""
        while self._rest:
            first = self._rest[0]
            if first.is_reserved:
                return
            if not (first.is_gone or self._offer(first)):
                self.is_busy = True
                return
            self._rest.popleft()
        if self.is_busy:
            self.is_busy = False
            self.host.scheduler.has_room(self)

    def let_in(self) -> None:
        """Resume the senders that wait for earlier messages, in order."""
        while self.blocked and not self.is_busy:
            self.blocked.pop(0).try_again()

    def _offer(self, rest: _Rest) -> bool:
        """Offer a message to subscribers that have not got it; return True if none is left."""
        message = rest.message
        takers = rest.takers
        if takers is None:
            takers = rest.takers = list(self.subscriptions)
        time = self.host.broker.selector_time
        is_timed = False
        verdicts: dict[object, bool] = {}
        for index in range(rest.index, len(takers)):
            subscription = takers[index]
            selector = subscription.selector
            if selector is not None:
                if not time.is_left:
                    rest.index = index
                    rest.is_late = True
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
            if rest.is_late and not self._is_for(rest, subscription):
                continue
            self._give(subscription, MessageReference(message, self, rest.place))
        rest.index = len(takers)
        return self._offer_to_durables(rest)

    def _is_for(self, rest: _Rest, subscription: Subscription) -> bool:
        """Return True if a subscription existed when a message arrived, and still does."""
        return subscription.serial <= rest.last_serial and subscription in self.subscriptions

    def _give(self, subscription: Subscription, entry: MessageReference) -> None:
        if not subscription.backlog and subscription.wants_copy():
            subscription.deliver(entry)
            self.delivered += 1
        elif not subscription.is_over:
            self._hold(subscription, entry)

    def _offer_to_durables(self, rest: _Rest) -> bool:
        """Deliver a message to the durable subscriptions that take it, once all are evaluated."""
        if rest.has_durables:
            return True
        durables = rest.durables
        if durables is None:
            durables = rest.durables = list(self.durables)
        if not self._ask(rest, durables):
            rest.is_late = True
            return False
        choice = rest.choice
        for durable in durables:
            if durable in self.durables and choice.takes(durable):
                durable.offer(rest.message)
        rest.has_durables = True
        return True

    def _ask(self, rest: _Rest, durables: Iterable[DurableQueue]) -> bool:
        """Evaluate selectors not evaluated before; return False if time ran out.

        If some were evaluated before the message arrived, the few added since are evaluated without
        a time limit. Its sender must get a definite receipt.
        """
        time = self.host.broker.selector_time
        choice = rest.choice
        unasked = choice.unasked(durables)
        if unasked:
            time.begin()
        for durable in unasked:
            if not (rest.was_asked or time.is_left):
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
        subscription.catch_up(self.host.scheduler.now)
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
        self.host.broker.traps.warn(
            "slow-reader",
            self.host.name,
            self.name,
            "{destination}: a subscriber reads too slowly, and loses messages, whether or not their"
            " senders got receipts; see max_topic_backlog, or subscribe durably",
        )
        self.dropped += 1

    def clear(self) -> None:
        """Remove all subscribers and all delayed messages."""
        for subscription in list(self.subscriptions):
            self.remove(subscription)
        self.durables.clear()
        self._delays.clear()
        self._rest = self._reserved = None
        self.is_busy = False
        if self.blocked:
            self.host.scheduler.has_room(self)


class Fanout(Destination):
    """Copies messages to its child queues, and keeps none itself."""

    def __init__(self, name: str, policy: Policy, host: HostBase, children: list[str]) -> None:
        """Create a destination with the children that the configuration names."""
        super().__init__(name, policy, host)
        self.children = dict.fromkeys(children)
        #: Time-to-live in seconds of the copies in each child used so far; 0 for the child's own
        #: setting.
        self._ttls: dict[str, float] = {}

    def configure(self, policy: Policy) -> None:
        """Apply new settings."""
        super().configure(policy)
        self._ttls.clear()

    def _ttl_s(self, child: str) -> float:
        """Return the shorter time-to-live of fan-out and child; 0 if the fan-out has none."""
        found = self._ttls.get(child)
        if found is None:
            own = self.host.own_ttl_s(self.name)
            found = self._ttls[child] = min(own, self.host.own_ttl_s(child) or own)
        return found

    @property
    def is_idle(self) -> bool:
        """True if it has no configured children."""
        return not self.children

    def check(self, message: Message) -> None:
        """Raise :class:`RefusedError` for a message that one of the children does not accept."""
        for queue in self._queues():
            queue.check(message)

    def shares(self, message: Message) -> Iterable[tuple[Destination, int]]:
        """Return the children, each with the size of a copy including its origin header."""
        more = len(_WHENCE) + len(self.name)
        return [(queue, message.size + more + len(queue.name)) for queue in self._queues()]

    def check_room(self, messages: int, size: int) -> None:
        """Raise :class:`RefusedError` unless every child has room."""
        more = len(_WHENCE) + len(self.name)
        for queue in self._queues():
            queue.check_room(messages, size + messages * (more + len(queue.name)))

    def check_delays(self, messages: int, size: int) -> None:
        """Raise :class:`RefusedError` if one of the children has no room for delayed messages."""
        for queue in self._queues():
            queue.check_delays(messages, size)

    def put(self, message: Message) -> None:
        """Put a copy into each child, or into none if the store cannot keep one."""
        self.received += 1
        self.host.together(lambda: self._put_copies(message))

    def _put_copies(self, message: Message) -> None:
        for queue in self._queues():
            copy = message.moved(queue.name, {_WHENCE: self.name})
            copy.expires, copy.due = message.expires, message.due
            ttl_s = self._ttl_s(queue.name)
            if ttl_s and not copy.expires:
                copy.expires = max(self.host.scheduler.now, copy.due) + ttl_s
            queue.put(copy)
            self.delivered += 1

    def _queues(self) -> list[Destination]:
        queues = []
        for child in self.children:
            queue = self.host.destination(child)
            # The hold keeps it from being removed meanwhile, or from staying behind empty.
            self.host.scheduler.touch(queue)
            queues.append(queue)
        return queues
