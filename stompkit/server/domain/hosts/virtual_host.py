"""Virtual hosts: each has its own destinations, and routes messages between them."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from stompkit.server.domain.deliveries import (
    ConnectionBase,
    DestinationBase,
    MessageReference,
    Subscription,
)
from stompkit.server.domain.destinations import (
    BlockedError,
    BrokerBase,
    Destination,
    Totals,
)
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.hosts.choices import Choice, ChoiceWork, ChoosingHost
from stompkit.server.domain.hosts.sliced import CommitWork, PatternWork
from stompkit.server.domain.messages import Message
from stompkit.server.domain.names import (
    DEAD_LETTERS,
    DURABLES,
    Kind,
    Pattern,
    below_level,
    dead_letter_source,
    dead_letters_of,
    is_pattern,
    kind_of,
    level_itself,
)
from stompkit.server.domain.pattern_tree import PatternTree
from stompkit.server.domain.queues.dead_letters import dead_letter, sent_expiry
from stompkit.server.domain.queues.durables import (
    DurableQueue,
    named_durable_key,
    stored_durable_name,
)
from stompkit.server.domain.queues.queue import Puller, Queue
from stompkit.server.domain.scheduling.slices import Slices
from stompkit.server.domain.settlements import Acknowledged, Settlement
from stompkit.server.domain.topics import Fanout, Topic
from stompkit.server.interfaces import DropLane, LaneState, SetRecord
from stompkit.server.settings.broker import DestinationConfig, Policy
from stompkit.server.stores.records import (
    DURABLE_RECORDS,
    MAKER_RECORDS,
    DurableRecord,
    MakerRecord,
    packed,
)

__all__ = ["VirtualHost"]

#: Interval in seconds between two checks for expired durable subscriptions.
_EXPIRY_CHECK_S: Final = 60.0
#: The last tenth (1/10) of the destinations is reserved; the broker creates none there for itself.
_RESERVED: Final = 10
#: Minimum interval in seconds between two searches for disposable destinations.
_EVICTION_PAUSE_S: Final = 1.0
#: Number of destinations that a transaction creates in one cycle.
_FEW_MADE: Final = 32
_NO_CHOICES: Final[Mapping[Message, Choice]] = {}
#: Maximum number of cached destination policies.
_MOST_POLICIES: Final = 10_000

_TEMPORARY: Final = (Kind.TEMP_QUEUE, Kind.TEMP_TOPIC)
_TEMPORARY_PREFIXES: Final = tuple(kind.value for kind in _TEMPORARY)


class _Demand:
    """Room that a transaction needs in a destination, minus the room that it frees there."""

    __slots__ = ("delayed", "delayed_octets", "messages", "octets")

    def __init__(self) -> None:
        """Start with zero."""
        self.messages = 0
        self.octets = 0
        #: Delayed messages, which are also counted in the messages.
        self.delayed = 0
        self.delayed_octets = 0

    def add(self, size: int, *, is_delayed: bool) -> None:
        """Add a message."""
        self.messages += 1
        self.octets += size
        if is_delayed:
            self.delayed += 1
            self.delayed_octets += size

    def free(self, octets: int, messages: int = 1) -> None:
        """Subtract messages that leave the destination."""
        self.messages -= messages
        self.octets -= octets


class VirtualHost(ChoosingHost):
    """The destinations shared by the clients of one ``host``."""

    def __init__(self, name: str, broker: BrokerBase) -> None:
        """Create a host with the destinations that the configuration names."""
        self.name = name
        self.broker = broker
        self.scheduler = broker.scheduler
        self.destinations: dict[str, Destination] = {}
        #: During an atomic operation: the messages that it puts into queues in memory.
        self.arriving: list[tuple[Destination, MessageReference]] | None = None
        #: Pattern subscriptions, which also receive from destinations created later.
        self._patterns: PatternTree[Subscription] = PatternTree()
        self.durables: dict[str, DurableQueue] = {}
        #: Incremented when a durable subscription is added or collects other messages.
        self.durable_changes = 0
        #: Replaced durable subscriptions with the same names, until the store has the change.
        self._replaced: set[DurableQueue] = set()
        #: Durable subscriptions to patterns.
        self._durable_patterns: PatternTree[DurableQueue] = PatternTree()
        #: Number of destinations by the user charged for them, including dead-letter queues that
        #: the broker has created.
        self._charges: Counter[str] = Counter()
        self._letters = 0
        #: Destinations whose users are recorded in the store.
        self._noted: set[str] = set()
        #: Totals of removed destinations.
        self.past = Totals()
        #: Pullers that wait for queues that could not be created, by queue name.
        self._expected: dict[str, dict[Puller, None]] = {}
        self._evicted_at = float("-inf")
        self._pattern_work = PatternWork(self)
        self.commit_work = CommitWork(self)
        self.choice_work = ChoiceWork(self)
        #: Shared policies, by the configuration tables that apply.
        self._policies: dict[tuple[int, ...], Policy] = {}
        #: Destinations that still use the previous settings.
        self._unconfigured: Slices[Destination] = Slices(broker.scheduler, self._configure_one)
        self._rules: list[tuple[int, Pattern | None, DestinationConfig]] = []
        self._is_checking = False
        self.configure()

    def configure(self) -> None:
        """Apply the broker's settings, initially or after a change."""
        settings = self.broker.config.destinations
        self._rules = [
            (index, self.pattern(each.name) if is_pattern(each.name) else None, each)
            for index, each in enumerate(settings)
        ]
        self._policies.clear()
        self._unconfigured.clear()
        self._unconfigured.add([*self.destinations.values(), *self.durables.values()])
        fanouts = {each.name for each in settings}
        for destination in list(self.destinations.values()):
            if isinstance(destination, Fanout) and destination.name not in fanouts:
                self.discard(destination)
        for each in settings:
            if kind_of(each.name) is Kind.FANOUT and not is_pattern(each.name):
                known = self.destinations.get(each.name)
                if isinstance(known, Fanout):
                    known.children = dict.fromkeys(each.children)
                else:
                    policy = self.policy(each.name)
                    if known is not None:
                        self.discard(known)
                    self._take_in(Fanout(each.name, policy, self, list(each.children)))

    def _configure_one(self, destination: Destination) -> None:
        """Apply new settings to a destination, if it still exists."""
        if isinstance(destination, DurableQueue):
            is_there = self.durables.get(destination.record.key) is destination
        else:
            is_there = self.destinations.get(destination.name) is destination
        if is_there:
            destination.configure(self.policy(destination.settings_name))

    def reset(self) -> None:
        """Remove everything that the configuration does not create; the store is not changed.

        Subscriptions have ended with their connections.
        """
        self.destinations.clear()
        self._charges.clear()
        self._letters = 0
        self._noted.clear()
        self.durables.clear()
        self._replaced.clear()
        self._durable_patterns.clear()
        self._pattern_work = PatternWork(self)
        self.commit_work = CommitWork(self)
        self.choice_work = ChoiceWork(self)
        self._unconfigured = Slices(self.scheduler, self._configure_one)
        self._evicted_at = float("-inf")
        self._is_checking = False
        self.configure()

    def stored_name(self, name: str) -> str:
        """Return the name of a queue in the store."""
        return f"{self.name}\n{name}"

    def pattern(self, text: str) -> Pattern:
        """Parse a pattern by the rules of the dialect; raises RefusedError if it is invalid."""
        return Pattern(text, like_activemq=self.broker.config.dialect == "activemq")

    # Destinations.

    def policy(self, name: str) -> Policy:
        """Return the policy of a destination."""
        is_for_letters = name.startswith(DEAD_LETTERS)
        key = (-1 if is_for_letters else -2, *(index for index, _ in self._tables(name)))
        found = self._policies.get(key)
        if found is None:
            usual: dict[str, object] = {"message_ttl_s": 0.0} if is_for_letters else {}
            found = self.broker.config.policy(usual | self._own_settings(name))
            self._policies[key] = found
            if len(self._policies) > _MOST_POLICIES:
                self._policies.clear()
        return found

    def _tables(self, name: str) -> list[tuple[int, DestinationConfig]]:
        """Return the configuration tables that apply to a destination."""
        return [
            (index, each)
            for index, pattern, each in self._rules
            if each.name == name or (pattern is not None and pattern.matches(name))
        ]

    def own_ttl_s(self, name: str) -> float:
        """Return the time-to-live in seconds set for this destination in particular, or 0."""
        if "message_ttl_s" not in self._own_settings(name):
            return 0.0
        return self.policy(name).message_ttl_s

    def _own_settings(self, name: str) -> dict[str, object]:
        """Return the settings that apply to a destination in particular."""
        own: dict[str, object] = {}
        for _, each in self._tables(name):
            own.update(each.overrides())
        return own

    def is_configured(self, name: str) -> bool:
        """Return True if the configuration names a destination or its dead-letter source."""
        names = [name]
        if name.startswith(DEAD_LETTERS):
            names.append(dead_letter_source(name))
        return any(
            each.name in names or (pattern is not None and any(map(pattern.matches, names)))
            for _, pattern, each in self._rules
        )

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
            if self._letters >= most or count >= limit - max(1, limit // _RESERVED):
                return RefusedError(f"too many dead-letter queues: at most {most}", code)
        user, most = destination.charged_to, config.destinations_per_user
        if user and self._charges[user] >= most:
            return RefusedError(f"too many destinations of one user: at most {most}", code)
        return None

    def _take_in(self, destination: Destination) -> Destination:
        """Add a new destination, and subscribe those whose patterns match its name."""
        name = destination.name
        self._charges[destination.charged_to] += 1
        self._letters += destination.is_for_letters
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
        if len(name) * 4 > most and len(name.encode("utf-8", "surrogateescape")) > most:
            raise RefusedError(
                f"destination name too long: at most {most} octets", "bad-destination"
            )
        return kind_of(name)

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
        self._letters -= destination.is_for_letters
        user = destination.charged_to
        self._charges[user] -= 1
        if not self._charges[user]:
            del self._charges[user]
        self.past = self.past.plus(destination.totals)
        if isinstance(destination, (Queue, Topic)):
            destination.clear()
        if destination.name in self._noted:
            self._note_maker(destination.name, None)

    def note_maker(self, queue: Destination) -> None:
        """Record in the store for which user a queue was created, as long as it has messages."""
        user, name = queue.charged_to, queue.name
        if user and name not in self._noted and self.destinations.get(name) is queue:
            self._note_maker(name, MakerRecord(self.name, name, user, queue.is_for_letters))

    def _note_maker(self, name: str, record: MakerRecord | None) -> None:
        if record is None:
            self._noted.discard(name)
        else:
            self._noted.add(name)
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

    def durable(
        self, key: str, topic: str, selector: str, user: str | None, *, is_shared: bool
    ) -> DurableQueue:
        """Return the durable subscription with a key, creating or replacing it as needed.

        It belongs to ``user``, unless that is ``None``. Raises :class:`RefusedError` if it belongs
        to another user, or is in use and not shared. A replaced subscription is restored if the
        store cannot record the change.
        """
        found = self.durables.get(key)
        if found is not None:
            found.check_user(user)
            self._adapt(found, topic)
        record = DurableRecord(
            host=self.name,
            key=key,
            topic=topic,
            selector=selector,
            is_shared=is_shared,
            used_at=self.scheduler.now,
            owner=user if found is None or found.record.owner is None else found.record.owner,
        )
        if found is not None:
            if found.subscriptions and not (is_shared and found.record.is_shared):
                raise RefusedError(
                    "the durable subscription is in use", "durable-subscription-in-use"
                )
            same = (found.record.topic, found.record.selector) == (topic, selector)
            if not same and found.subscriptions:
                raise RefusedError(
                    "the durable subscription is in use with another destination or selector",
                    "durable-subscription-in-use",
                )
            generation = found.record.generation
            if not same:
                # Lanes left in the store by earlier subscriptions of the name have another
                # generation.
                generation = max(generation + 1, self.broker.new_lane())
            record = msgspec.structs.replace(record, generation=generation)
            if same:
                self._save(found, record)
                if found.replaced is not None:
                    self._await_change(found, lambda: self._forget_unkept(found))
                return found
        limit = self.broker.config.max_durable_subscriptions
        if len(self.durables if found is None else self._replaced) >= limit:
            raise RefusedError(
                f"too many durable subscriptions: at most {limit}", "too-many-subscriptions"
            )
        if found is None and user:
            self._check_durables_of(user)
        if not is_pattern(topic):
            # If the topic cannot be created, nothing has changed.
            self.destination(topic)
        made = DurableQueue(record, self.policy(topic), self)
        if found is not None:
            made.replaced = found
            self._replaced.add(found)
        self.take_durable(made)
        self._save(made, record)
        self._await_change(made, lambda: self._forget_refused(made))
        return made

    def _check_durables_of(self, user: str) -> None:
        limit = self.broker.config.durables_per_user
        if sum(each.record.owner == user for each in self.durables.values()) >= limit:
            raise RefusedError(
                f"too many durable subscriptions of one user: at most {limit}",
                "too-many-subscriptions",
            )

    def _adapt(self, queue: DurableQueue, topic: str) -> None:
        """Start or stop collecting the level itself for a durable pattern subscription.

        The rights of its user may have changed; messages already collected stay.
        """
        before = queue.record.topic
        if not (_is_below(before, topic) or _is_below(topic, before)):
            return
        assert queue.pattern is not None  # only patterns can include the level itself
        self._durable_patterns.remove(queue.pattern, queue)
        self._save(queue, msgspec.structs.replace(queue.record, topic=topic))
        queue.pattern = self.pattern(topic)
        self.durable_changes += 1
        self._durable_patterns.add(queue.pattern, queue)
        for destination in list(self.destinations.values()):
            if not isinstance(destination, Topic):
                continue
            if queue.covers(destination.name):
                destination.durables[queue] = None
            else:
                destination.durables.pop(queue, None)

    def hand_over(self, queue: DurableQueue, user: str | None) -> None:
        """Assign a durable subscription to another user; ``None`` leaves it to its next user."""
        self._save(queue, msgspec.structs.replace(queue.record, owner=user))

    def _await_change(self, queue: DurableQueue, undo: Callable[[], None]) -> None:
        """End the replaced subscription of the same name once the store has the change."""
        self.scheduler.commit_queue.undo_with(undo, lambda: self._end_replaced(queue))

    def _end_replaced(self, queue: DurableQueue) -> None:
        """Remove the subscriptions that a durable subscription has replaced."""
        while queue.replaced is not None:
            ended = queue.replaced
            queue.replaced, ended.replaced = ended.replaced, None
            self._end_durable(ended)

    def _forget_unkept(self, queue: DurableQueue) -> None:
        """Remove a subscription refused to a client, unless the store has it for another client."""
        if queue.replaced is not None:
            self._forget_refused(queue)

    def _forget_refused(self, queue: DurableQueue) -> None:
        """Remove a durable subscription that was refused, unless others share it now.

        The subscription that it replaced is restored.
        """
        key = queue.record.key
        now = self.durables.get(key)
        if now is not queue:
            # Another subscription may have replaced it meanwhile, and may be refused, too.
            while now is not None and now.replaced is not queue:
                now = now.replaced
            if now is not None:
                now.replaced, queue.replaced = queue.replaced, None
                self._end_durable(queue)
            return
        if queue.subscriptions:
            return
        replaced, queue.replaced = queue.replaced, None
        self.remove_durable(queue)
        if replaced is not None:
            self._replaced.discard(replaced)
            self.durables[key] = replaced
            replaced.configure(self.policy(replaced.settings_name))
            self._save(replaced, replaced.record)

    def take_durable(self, queue: DurableQueue) -> None:
        """Start collecting messages for a durable subscription."""
        self.durables[queue.record.key] = queue
        self.durable_changes += 1
        if not self._is_checking:
            self._is_checking = True
            self.scheduler.later(_EXPIRY_CHECK_S, self._expire_durables)
        topic = queue.record.topic
        if queue.pattern is None:
            found = self.destinations.get(topic)
            if found is None:
                # It existed before, or is in the store: the limits do not apply to it.
                found = self._take_in(self._made(Kind.TOPIC, topic))
            assert isinstance(found, Topic)  # only topics can be subscribed to durably
            found.durables[queue] = None
            return
        self._durable_patterns.add(queue.pattern, queue)
        for destination in self.destinations.values():
            if isinstance(destination, Topic) and queue.covers(destination.name):
                destination.durables[queue] = None

    def durables_of(self, name: str) -> Iterable[DurableQueue]:
        """Return the durable subscriptions that collect messages sent to a name."""
        found = self.destinations.get(name)
        if found is None:
            return self._durable_patterns.find(name) if self.durables else ()
        return found.durables if isinstance(found, Topic) else ()

    def choice(self, message: Message) -> Choice | None:
        """Return the selectors to evaluate before a message is accepted; None without selectors."""
        if message.due:
            return None
        durables = self.durables_of(message.destination)
        if all(each.selector is None for each in durables):
            return None
        return Choice(message)

    def durable_named(self, name: str) -> DurableQueue | None:
        """Return the durable subscription whose queue has a name, if there is one."""
        key = named_durable_key(name)
        found = None if key is None else self.durables.get(key)
        return found if found is not None and found.name == name else None

    def touch_durable(self, queue: Destination) -> None:
        """Record that a durable subscription has been used, unless it is removed."""
        if isinstance(queue, DurableQueue) and self.durables.get(queue.record.key) is queue:
            self._save(queue, msgspec.structs.replace(queue.record, used_at=self.scheduler.now))

    def _save(self, queue: DurableQueue, record: DurableRecord) -> None:
        queue.record = record
        key = DURABLE_RECORDS + self.stored_name(record.key)
        self.scheduler.commit_queue.record(SetRecord(key, packed(record)))

    def remove_durable(self, queue: DurableQueue) -> None:
        """Remove a durable subscription with its messages."""
        del self.durables[queue.record.key]
        self._end_replaced(queue)
        self._end_durable(queue)
        key = DURABLE_RECORDS + self.stored_name(queue.record.key)
        self.scheduler.commit_queue.record(SetRecord(key, None))

    def _end_durable(self, queue: DurableQueue) -> None:
        """Stop collecting for a durable subscription, and drop its messages."""
        self._replaced.discard(queue)
        self.past = self.past.plus(queue.totals)
        if queue.pattern is not None:
            self._durable_patterns.remove(queue.pattern, queue)
        for destination in list(self.destinations.values()):
            if isinstance(destination, Topic) and queue in destination.durables:
                del destination.durables[queue]
                self.scheduler.touch(destination)
        queue.stop()
        queue.drop_lanes()

    def _expire_durables(self) -> None:
        expiry_s = self.broker.config.durable_expiry_s
        for queue in list(self.durables.values()):
            if queue.subscriptions:
                self.touch_durable(queue)
            elif expiry_s and queue.record.used_at + expiry_s <= self.scheduler.now:
                self.remove_durable(queue)
        if self.durables:
            self.scheduler.later(_EXPIRY_CHECK_S, self._expire_durables)
        else:
            self._is_checking = False

    # Opening.

    def restore(
        self,
        queues: dict[str, list[LaneState]],
        records: Iterable[DurableRecord],
        makers: dict[str, MakerRecord],
    ) -> None:
        """Restore everything that the store has, regardless of limits.

        ``queues`` maps names to lanes, and ``makers`` maps names to the users for whom queues were
        created.
        """
        self._noted.update(makers)
        for record in records:
            states = queues.pop(stored_durable_name(record), [])
            durable = DurableQueue(record, self.policy(record.topic), self, states)
            self.take_durable(durable)
            self._keep_limits(durable)
        commit_queue = self.scheduler.commit_queue
        for name, states in queues.items():
            if any(state.messages for state in states) and not name.startswith(DURABLES):
                self._restore_queue(name, states, makers.get(name))
            else:
                for state in states:
                    commit_queue.apart(DropLane(state.lane))

        for name in self._noted - self.destinations.keys():
            self._note_maker(name, None)

    def _restore_queue(
        self, name: str, states: Sequence[LaneState], maker: MakerRecord | None
    ) -> None:
        queue = Queue(name, self.policy(name), self, states, is_persistent=True)
        queue.is_for_letters = name.startswith(DEAD_LETTERS)
        if maker is not None:
            queue.charge(maker.user)
            queue.is_for_letters = maker.is_for_letters
        self._take_in(queue)
        self._keep_limits(queue)

    def _keep_limits(self, queue: Queue) -> None:
        """Schedule a queue to drop its excess messages, as the broker may have died before."""
        if queue.is_over:
            self.scheduler.touch(queue)

    # Effects of frames.

    def send(
        self, message: Message, maker: ConnectionBase | None = None, choice: Choice | None = None
    ) -> None:
        """Put a message into its destination; raises RefusedError if it cannot be accepted.

        ``choice`` has the results of selectors evaluated before, if any.
        """
        destination = self.destinations.get(message.destination)
        if destination is None:
            destination = self.destination(message.destination, maker)
        try:
            destination.check(message)
            if message.due:
                destination.check_delays(1, message.size)
            if destination.is_busy:
                raise BlockedError(f"{destination.name} is busy", destination)
            destination.check_room(1, message.size)
        finally:
            self.scheduler.touch(destination)
        if choice is not None and isinstance(destination, Topic):
            destination.put(message, choice)
        else:
            destination.put(message)

    def put_back(self, message: Message, name: str) -> None:
        """Put a message into a queue, regardless of its header; may raise :class:`RefusedError`."""
        destination = self.destination(name)
        destination.check_room(1, message.size)
        destination.put(message)
        self.scheduler.touch(destination)

    def names_to_make(self, messages: Sequence[Message]) -> Iterable[str]:
        """Return the destinations of messages if creating them may take long, or none."""
        if len(messages) <= _FEW_MADE:
            return ()
        names = dict.fromkeys(each.destination for each in messages)
        return names if len(names.keys() - self.destinations.keys()) > _FEW_MADE else ()

    def commit(
        self,
        messages: Sequence[Message],
        settlements: Sequence[Settlement],
        maker: ConnectionBase | None = None,
        choices: Mapping[Message, Choice] = _NO_CHOICES,
        acknowledged: Acknowledged | None = None,
    ) -> None:
        """Apply a transaction atomically; raises RefusedError if one message is not accepted.

        ``choices`` has the results of selectors evaluated before. ``acknowledged`` has
        acknowledgements summed up before, which are not among the ``settlements``.
        """
        messages = [each for each in messages if not self.is_gone(each.destination)]
        self._check_unit(messages, settlements, acknowledged, maker)
        gone: list[MessageReference] = []
        copies: list[tuple[Topic, MessageReference]] = []

        def apply() -> None:
            copied: list[tuple[Topic, Message]] = []
            for message in messages:
                destination = self.destinations[message.destination]
                if isinstance(destination, Topic):
                    # Subscribers may have capacity for their copies only after other messages are
                    # settled.
                    copied.append((destination, message))
                else:
                    destination.put(message)
            for settlement in settlements:
                gone.extend(self.broker.settler.settle(settlement))
            if acknowledged is not None:
                self.broker.settler.forget(acknowledged)
            for topic, message in copied:
                entry = topic.reserve(message, choices.get(message))
                if entry is not None:
                    copies.append((topic, entry))

        # Room is checked after everything that the transaction frees, and before dead letters.
        self.together(apply)
        commit_queue = self.scheduler.commit_queue
        for topic, entry in copies:
            if commit_queue.is_recording:
                commit_queue.follow(entry)
            else:
                topic.put_done(entry, None)
        commit_queue.take(gone)

    def together(self, apply: Callable[[], None]) -> None:
        """Run an operation atomically: if the store cannot record its part, nothing takes effect.

        Each message counts at once. A message in memory enters its queue only at the end. It waits
        for the store if other messages have to be stored.
        """
        if self.arriving is not None:
            # It is part of a larger operation.
            apply()
            return
        self.begin_together()
        try:
            apply()
        finally:
            self.end_together()

    def begin_together(self) -> None:
        """Begin an atomic operation that :meth:`end_together` ends; see :meth:`together`."""
        self.arriving = []

    def end_together(self) -> None:
        """Enqueue messages in memory now, or together with those being stored."""
        arriving, self.arriving = self.arriving or [], None
        if self.scheduler.commit_queue.is_recording or any(
            queue.following for queue, _ in arriving
        ):
            for queue, entry in arriving:
                queue.follow(entry)
            return
        for queue, entry in arriving:
            queue.count_off(entry)
        for queue, entry in arriving:
            queue.take_in(entry)
            self.scheduler.touch(queue)

    def _check_unit(
        self,
        messages: Sequence[Message],
        settlements: Sequence[Settlement],
        acknowledged: Acknowledged | None,
        maker: ConnectionBase | None,
    ) -> None:
        """Raise RefusedError unless all destinations have room for a transaction's messages."""
        wanted: dict[DestinationBase, _Demand] = defaultdict(_Demand)
        for message in messages:
            destination = self.destination(message.destination, maker)
            self.scheduler.touch(destination)
            destination.check(message)
            for share_of, size in destination.shares(message):
                wanted[share_of].add(size, is_delayed=message.due > 0)
        for settlement in settlements if wanted else ():
            if settlement.accepted:
                for entry in settlement.entries:
                    if entry.home in wanted and entry.home.is_queue:
                        wanted[entry.home].free(entry.message.size)
        for home, share in acknowledged.shares.items() if acknowledged is not None else ():
            if home in wanted:
                wanted[home].free(share.octets, share.messages)
        for each, demand in wanted.items():
            if demand.delayed:
                each.check_delays(demand.delayed, demand.delayed_octets)
            each.check_room(max(0, demand.messages), max(0, demand.octets))

    # Rejected and expired messages.

    def reject(
        self, entries: Iterable[MessageReference], *, requeue: bool, reason: str
    ) -> list[MessageReference]:
        """Requeue, dead-letter or drop rejected messages, as their queue's policy says.

        Return those that are dropped, which would not return if the store failed.
        """
        back: dict[DestinationBase, list[MessageReference]] = defaultdict(list)
        dropped: list[MessageReference] = []
        for entry in entries:
            home = entry.home
            if not home.is_queue:
                continue
            policy = home.policy
            nack = policy.nack
            if nack == "discard" and reason == "rejected":
                self._lose(entry)
                dropped.append(entry)
                continue
            buried = False
            if nack == "dead-letter" or not requeue:
                buried = self.bury(entry, reason)
            elif nack == "requeue-then-dead-letter" and entry.deliveries >= policy.max_deliveries:
                buried = self.bury(entry, "max-deliveries")
            if not buried:
                back[home].append(entry)
            elif not self._keeps_letters(home):
                dropped.append(entry)
        for destination, returned in back.items():
            destination.returned(returned)
        return dropped

    @staticmethod
    def _lose(entry: MessageReference) -> None:
        """Forget a message that no consumer has acknowledged."""
        home = entry.home
        if isinstance(home, Queue):
            home.lost += 1
        home.settled(entry)

    def await_dead_letters(self, queue: Destination) -> None:
        """Register a queue to retry dead-lettering once its dead-letter queue has room."""
        letters = self.destinations.get(dead_letters_of(queue.name))
        if isinstance(letters, Queue) and isinstance(queue, Queue):
            letters.overdue_of[queue] = None

    def dead_letter(
        self, entry: MessageReference, reason: str, more: dict[str, str] | None = None
    ) -> None:
        """Add a copy of a message to the dead letters of its queue.

        *more* are additional headers of the dead letter. Raises :class:`RefusedError` if there is
        no room.
        """
        message, home = entry.message, entry.home
        expires = sent_expiry(message, home.policy)
        now, times = self.scheduler.now, entry.deliveries
        letter = dead_letter(message, home.name, reason, times, now, expires, more or {})
        if letter.destination not in self.destinations:
            self._make_letters(letter.destination, home.charged_to)
        self.send(letter)

    def _make_letters(self, name: str, user: str) -> None:
        """Create the dead-letter queue of a destination, charged to the same user."""
        made = self._made(self.check_name(name), name)
        made.is_for_letters = True
        self.include(made, user)

    def bury(self, entry: MessageReference, reason: str) -> bool:
        """Move a message to the dead letters of its queue; dead letters themselves are dropped.

        Return False if there is no room for it; the message then stays in its queue.
        """
        home = entry.home
        if not self._keeps_letters(home):
            self._lose(entry)
            return True
        is_expired = reason == "expired"

        def apply() -> None:
            self.dead_letter(entry, reason)
            home.dead_lettered += 1
            self._lose(entry)

        try:
            if is_expired:
                apply()
            else:
                self.together(apply)
        except RefusedError:
            # A full dead-letter queue must not fail the client that sent NACK, and the message must
            # not be lost.
            return False
        if not is_expired:
            # If the store cannot record the dead letter, the message stays in its queue. An expired
            # one would be retried at once, and so returns with a restart.
            self.scheduler.commit_queue.take([entry])
        return True

    @staticmethod
    def _keeps_letters(home: DestinationBase) -> bool:
        """Return True if rejected messages of a queue become dead letters."""
        is_of_letters = home.name.startswith(DEAD_LETTERS)
        return home.policy.dead_letters and not is_of_letters and not home.owner


def _is_below(pattern: str, other: str) -> bool:
    """Return True if *other* is the same pattern without the level itself."""
    return level_itself(pattern) is not None and other == below_level(pattern)
