"""Registry of the destinations of a host: creation, limits and removal."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final

from stompkit.server.domain.deliveries import (
    ConnectionBase,
    Subscription,
)
from stompkit.server.domain.destinations import (
    BrokerBase,
    Destination,
    Totals,
)
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.hosts.policies import HostPolicies
from stompkit.server.domain.hosts.sliced import CommitWork, PatternWork
from stompkit.server.domain.names import (
    Kind,
    is_pattern,
    kind_of,
)
from stompkit.server.domain.pattern_tree import PatternTree
from stompkit.server.domain.queues.durables import (
    DurableQueue,
)
from stompkit.server.domain.queues.queue import Puller, Queue
from stompkit.server.domain.topics import Topic
from stompkit.server.interfaces import SetRecord
from stompkit.server.stores.records import (
    MAKER_RECORDS,
    MakerRecord,
    packed,
)

__all__ = ["DestinationRegistry"]

#: The last tenth (1/10) of the destinations is reserved; the broker creates none there for itself.
_RESERVED: Final = 10
#: Minimum interval in seconds between two searches for disposable destinations.
_EVICTION_PAUSE_S: Final = 1.0
_TEMPORARY: Final = (Kind.TEMP_QUEUE, Kind.TEMP_TOPIC)
_TEMPORARY_PREFIXES: Final = tuple(kind.value for kind in _TEMPORARY)


class DestinationRegistry(HostPolicies):
    """The destinations of one host, and the subscriptions to patterns of them."""

    def __init__(self, name: str, broker: BrokerBase) -> None:
        """Start without destinations."""
        super().__init__(name, broker)
        self.destinations = {}
        #: Pattern subscriptions, which also receive from destinations created later.
        self._patterns: PatternTree[Subscription] = PatternTree()
        #: Durable subscriptions to patterns.
        self._durable_patterns: PatternTree[DurableQueue] = PatternTree()
        #: Number of destinations by the user charged for them, including dead-letter queues that
        #: the broker has created.
        self._charges: Counter[str] = Counter()
        self._dead_letter_queues = 0
        #: Destinations whose users are recorded in the store.
        self._recorded: set[str] = set()
        #: Totals of removed destinations.
        self.past = Totals()
        #: Pullers that wait for queues that could not be created, by queue name.
        self._expected: dict[str, dict[Puller, None]] = {}
        self._evicted_at = float("-inf")
        self._pattern_work = PatternWork(self)
        self.commit_work = CommitWork(self)

    def reset(self) -> None:
        """Remove everything that the configuration does not create; the store is not changed.

        Subscriptions have ended with their connections.
        """
        self.destinations.clear()
        self._charges.clear()
        self._dead_letter_queues = 0
        self._recorded.clear()
        self._durable_patterns.clear()
        self._pattern_work = PatternWork(self)
        self.commit_work = CommitWork(self)
        self._evicted_at = float("-inf")

    def destination(self, name: str, maker: ConnectionBase | None = None) -> Destination:
        """Return the destination with a name, created if it does not exist.

        ``maker`` is the client that asks for it, if any. Raises :class:`RefusedError` for a name
        without a valid kind, if the client may not create it, or if there are too many
        destinations.
        """
        destination = self.destinations.get(name)
        if destination is not None:
            return destination
        kind = self.check_name(name)
        if is_pattern(name):
            raise RefusedError(f"{name[:100]!a} is a pattern, not a destination", "bad-destination")
        if kind in _TEMPORARY:
            raise RefusedError(
                f"temporary destination {name[:100]!a} is gone", "unknown-destination"
            )
        if kind is Kind.FANOUT:
            raise RefusedError(
                f"{name[:100]!a} is not known: fan-out destinations are made in the configuration",
                "unknown-destination",
            )
        if maker is not None:
            self._check_may_make(name, maker)
        user = "" if maker is None else maker.user.name
        return self.include(self._made(kind, name), user)

    def _made(self, kind: Kind, name: str) -> Destination:
        policy = self.policy(name)
        return (Topic if kind is Kind.TOPIC else Queue)(name, policy, self)

    def _check_may_make(self, name: str, maker: ConnectionBase) -> None:
        create = self.broker.config.create
        if create == "any" or self.is_configured(name):
            return
        if create == "authenticated" and maker.user.name:
            return
        raise RefusedError(f"destination {name[:100]!a} does not exist", "unknown-destination")

    def temporary(self, name: str, owner: ConnectionBase) -> Destination:
        """Create a temporary destination, which ends with its owner."""
        policy = self.policy(name)
        made: Destination
        if kind_of(name) is Kind.TEMP_QUEUE:
            made = Queue(name, policy, self, is_persistent=False)
        else:
            made = Topic(name, policy, self)
        made.owner = owner
        return self.include(made, owner.user.name)

    def include(self, destination: Destination, user: str = "") -> Destination:
        """Add a new destination, charged to a user.

        Raises :class:`RefusedError` if there are too many, in total or of that user.
        """
        destination.charge(user)
        refusal = self._refusal(destination)
        if refusal is not None:
            self._evict()
            refusal = self._refusal(destination)
        if refusal is not None:
            raise refusal
        return self._take_in(destination)

    def _refusal(self, destination: Destination) -> RefusedError | None:
        """Return the reason if there is no room for a new destination, or None."""
        config = self.broker.config
        limit, count = config.max_destinations, len(self.destinations)
        code = "too-many-destinations"
        if count >= limit:
            return RefusedError(f"too many destinations: at most {limit}", code)
        if destination.is_for_letters:
            # The last places are reserved for clients that may create destinations.
            most = max(1, limit // 2)
            if self._dead_letter_queues >= most or count >= limit - max(1, limit // _RESERVED):
                return RefusedError(f"too many dead-letter queues: at most {most}", code)
        user, most = destination.charged_to, config.destinations_per_user
        if user and self._charges[user] >= most:
            return RefusedError(f"too many destinations of one user: at most {most}", code)
        return None

    def _take_in(self, destination: Destination) -> Destination:
        """Add a new destination, and subscribe those whose patterns match its name."""
        name = destination.name
        self._charges[destination.charged_to] += 1
        self._dead_letter_queues += destination.is_for_letters
        self.destinations[name] = destination
        for subscription in self._patterns.find(name):
            destination.add(subscription)
        expected = self._expected.pop(name, None)
        if expected is not None and isinstance(destination, Queue):
            destination.pullers.update(expected)
            self.scheduler.touch(destination)
        if isinstance(destination, Topic):
            # A durable subscription of one topic is attached to it from the start, and keeps it.
            destination.durables.update(dict.fromkeys(self._durable_patterns.find(name)))
        return destination

    def expect(self, name: str, puller: Puller) -> None:
        """Register a puller for a queue that cannot be created now."""
        self._expected.setdefault(name, {})[puller] = None

    def expect_no_more(self, name: str, puller: Puller) -> None:
        """Unregister a puller for a queue that was never created."""
        expected = self._expected.get(name)
        if expected is not None:
            expected.pop(puller, None)
            if not expected:
                del self._expected[name]

    def check_name(self, name: str) -> Kind:
        """Return the kind of a destination name; raises :class:`RefusedError` if it is invalid."""
        most = self.broker.config.max_destination_bytes
        is_long = len(name) * 4 > most and len(name.encode("utf-8", "surrogateescape")) > most
        if is_long and not self._is_known(name):
            raise RefusedError(
                f"destination name too long: at most {most} octets", "bad-destination"
            )
        return kind_of(name)

    def _is_known(self, name: str) -> bool:
        """Return True if the broker has made a name, which may be of any length."""
        return name in self.destinations

    def _evict(self) -> None:
        """Make room by removing destinations that can be created again as they are."""
        now = self.scheduler.clock.seconds()
        if now < self._evicted_at + _EVICTION_PAUSE_S:
            return
        before = len(self.destinations)
        for destination in list(self.destinations.values()):
            # Destinations used in this cycle may be about to be used again.
            if (
                destination.owner is None
                and destination.is_disposable
                and not self.scheduler.is_touched(destination)
            ):
                self.discard(destination)
        if len(self.destinations) * 2 > before:
            self._evicted_at = now

    def discard(self, destination: Destination) -> None:
        """Remove a destination with its content."""
        if self.destinations.get(destination.name) is not destination:
            return
        del self.destinations[destination.name]
        self._dead_letter_queues -= destination.is_for_letters
        user = destination.charged_to
        self._charges[user] -= 1
        if not self._charges[user]:
            del self._charges[user]
        self.past = self.past.plus(destination.totals)
        if isinstance(destination, (Queue, Topic)):
            destination.clear()
        if destination.name in self._recorded:
            self._note_maker(destination.name, None)

    def note_maker(self, queue: Destination) -> None:
        """Record in the store for which user a queue was created, as long as it has messages."""
        user, name = queue.charged_to, queue.name
        if user and name not in self._recorded and self.destinations.get(name) is queue:
            self._note_maker(name, MakerRecord(self.name, name, user, queue.is_for_letters))

    def _note_maker(self, name: str, record: MakerRecord | None) -> None:
        if record is None:
            self._recorded.discard(name)
        else:
            self._recorded.add(name)
        value = None if record is None else packed(record)
        key = MAKER_RECORDS + self.stored_name(name)
        self.scheduler.commit_queue.apart(SetRecord(key, value))

    def forget_if_idle(self, destination: Destination) -> None:
        """Remove a destination if nothing would be lost."""
        if destination.owner is None and destination.is_idle:
            self.discard(destination)

    def is_gone(self, name: str) -> bool:
        """Return True if a name belongs to a temporary destination that no longer exists.

        A sender cannot know this, so that the message is dropped without an error.
        """
        return name.startswith(_TEMPORARY_PREFIXES) and name not in self.destinations

    # Subscriptions.

    def subscribe_pattern(self, subscription: Subscription, done: Callable[[None], None]) -> None:
        """Subscribe to all matching destinations, existing and future ones.

        ``done`` is called, at once or later, when all existing ones are subscribed to.
        """
        pattern = subscription.pattern
        assert pattern is not None  # what the method is for
        self._patterns.add(pattern, subscription)
        # Many queues may wait, and they are removed from the front. A plain dict would scan more
        # removed entries for each next one.
        subscription.waiting = OrderedDict()
        self._pattern_work.begin(subscription, done)

    def unsubscribe_pattern(self, subscription: Subscription) -> None:
        """Stop deliveries to a pattern subscription."""
        if subscription.pattern is not None:
            self._patterns.remove(subscription.pattern, subscription)
            self._pattern_work.end(subscription)
