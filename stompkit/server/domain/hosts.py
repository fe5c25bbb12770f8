"""Virtual hosts: each has destinations of its own, and routes messages between them."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from stompkit.server.domain.choices import Choice, ChoiceWork
from stompkit.server.domain.destinations import Blocked, Destination, Totals
from stompkit.server.domain.errors import Refused
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
from stompkit.server.domain.queues.pulling import Puller
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.queues.references import MessageReference
from stompkit.server.domain.session.subscriptions import Subscription
from stompkit.server.domain.session.transactions import Acknowledged, Settlement
from stompkit.server.domain.sliced import CommitWork, PatternWork, Slices
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

if TYPE_CHECKING:
    from stompkit.server.domain.broker import Broker
    from stompkit.server.domain.session.connection import Connection

__all__ = ["VirtualHost"]

#: Seconds between two looks for durable subscriptions that nobody uses.
_EXPIRY_CHECK_S: Final = 60.0
#: The broker makes no destination for itself that would be among the last tenth.
_RESERVED: Final = 10
#: Seconds between two looks for destinations that could make room for another.
_EVICTION_PAUSE_S: Final = 1.0
#: Destinations that a transaction makes in one turn.
_FEW_MADE: Final = 32
_NO_CHOICES: Final[Mapping[Message, Choice]] = {}
#: Settings of destinations that are remembered.
_MOST_POLICIES: Final = 10_000

_TEMPORARY: Final = (Kind.TEMP_QUEUE, Kind.TEMP_TOPIC)
_TEMPORARY_PREFIXES: Final = tuple(kind.value for kind in _TEMPORARY)


class _Demand:
    """What a transaction needs of a destination, less what it frees there."""

    __slots__ = ("delayed", "delayed_octets", "messages", "octets")

    def __init__(self) -> None:
        """Begin with nothing."""
        self.messages = 0
        self.octets = 0
        #: What has to wait for its time is among these messages.
        self.delayed = 0
        self.delayed_octets = 0

    def add(self, size: int, *, is_delayed: bool) -> None:
        """Count a message."""
        self.messages += 1
        self.octets += size
        if is_delayed:
            self.delayed += 1
            self.delayed_octets += size

    def free(self, octets: int, messages: int = 1) -> None:
        """Count messages that leave the destination."""
        self.messages -= messages
        self.octets -= octets


class VirtualHost:
    """The destinations that the clients of one ``host`` share."""

    def __init__(self, name: str, broker: Broker) -> None:
        """Make a host with the destinations that the configuration names."""
        self.name = name
        self.broker = broker
        self.destinations: dict[str, Destination] = {}
        #: While something takes effect as a whole: what it puts into queues in memory.
        self.arriving: list[tuple[Queue, MessageReference]] | None = None
        #: Subscriptions to patterns, which get destinations that are made later as well.
        self._patterns: PatternTree[Subscription] = PatternTree()
        self.durables: dict[str, DurableQueue] = {}
        #: How often one has begun to collect, or has begun to collect something else.
        self.durable_changes = 0
        #: What their names stood for before, until the store has the change.
        self._replaced: set[DurableQueue] = set()
        #: Those of them that are subscribed to patterns.
        self._durable_patterns: PatternTree[DurableQueue] = PatternTree()
        #: Destinations by the users for whom they were made, and those with dead letters that
        #: the broker has made for itself.
        self._charges: Counter[str] = Counter()
        self._letters = 0
        #: Destinations whose users the store knows.
        self._noted: set[str] = set()
        #: What has happened at destinations that are gone.
        self.past = Totals()
        #: Who waits for messages of queues that could not be made, by their names.
        self._expected: dict[str, dict[Puller, None]] = {}
        self._evicted_at = float("-inf")
        self._pattern_work = PatternWork(self)
        self.commit_work = CommitWork(self)
        self.choice_work = ChoiceWork(self)
        #: Settings that several destinations have, by the tables from which they come.
        self._policies: dict[tuple[int, ...], Policy] = {}
        #: Destinations that still go by the settings before.
        self._unconfigured: Slices[Destination] = Slices(broker, self._configure_one)
        self._rules: list[tuple[int, Pattern | None, DestinationConfig]] = []
        self._is_checking = False
        self.configure()

    def configure(self) -> None:
        """Take the broker's settings, the first time or changed ones."""
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
        """Have a destination go by other settings, if it is still there."""
        if isinstance(destination, DurableQueue):
            is_there = self.durables.get(destination.record.key) is destination
        else:
            is_there = self.destinations.get(destination.name) is destination
        if is_there:
            destination.configure(self.policy(destination.settings_name))

    def reset(self) -> None:
        """Forget everything but what the configuration makes; the store is not told.

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
        self._unconfigured = Slices(self.broker, self._configure_one)
        self._evicted_at = float("-inf")
        self._is_checking = False
        self.configure()

    def stored_name(self, name: str) -> str:
        """What the store calls a queue."""
        return f"{self.name}\n{name}"

    def pattern(self, text: str) -> Pattern:
        """Read a pattern as the dialect means it; raises :class:`Refused` for none."""
        return Pattern(text, like_activemq=self.broker.config.dialect == "activemq")

    # Destinations.

    def policy(self, name: str) -> Policy:
        """The settings of a destination."""
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
        """Return the tables of the configuration that are about a destination."""
        return [
            (index, each)
            for index, pattern, each in self._rules
            if each.name == name or (pattern is not None and pattern.matches(name))
        ]

    def own_ttl_s(self, name: str) -> float:
        """Return how long messages live there if that is set for some destinations only, or 0."""
        if "message_ttl_s" not in self._own_settings(name):
            return 0.0
        return self.policy(name).message_ttl_s

    def _own_settings(self, name: str) -> dict[str, object]:
        """Return what the configuration says of a destination and not of all of them."""
        own: dict[str, object] = {}
        for _, each in self._tables(name):
            own.update(each.overrides())
        return own

    def is_configured(self, name: str) -> bool:
        """Whether the configuration speaks of a destination, or of the queue of dead letters."""
        names = [name]
        if name.startswith(DEAD_LETTERS):
            names.append(dead_letter_source(name))
        return any(
            each.name in names or (pattern is not None and any(map(pattern.matches, names)))
            for _, pattern, each in self._rules
        )

    def destination(self, name: str, maker: Connection | None = None) -> Destination:
        """The destination of that name, made if it is not there yet.

        ``maker`` is the client that asks for it, if one does. Raises :class:`Refused` for a name
        that says no kind, where the client may not make it, and where there are too many.
        """
        destination = self.destinations.get(name)
        if destination is not None:
            return destination
        kind = self.check_name(name)
        if is_pattern(name):
            raise Refused(f"{name[:100]!a} is a pattern, not a destination", "bad-destination")
        if kind in _TEMPORARY:
            raise Refused(f"temporary destination {name[:100]!a} is gone", "unknown-destination")
        if kind is Kind.FANOUT:
            raise Refused(
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

    def _check_may_make(self, name: str, maker: Connection) -> None:
        create = self.broker.config.create
        if create == "any" or self.is_configured(name):
            return
        if create == "authenticated" and maker.user.name:
            return
        raise Refused(f"destination {name[:100]!a} does not exist", "unknown-destination")

    def temporary(self, name: str, owner: Connection) -> Destination:
        """Make a temporary destination, which ends with its owner."""
        policy = self.policy(name)
        made: Destination
        if kind_of(name) is Kind.TEMP_QUEUE:
            made = Queue(name, policy, self, is_persistent=False)
        else:
            made = Topic(name, policy, self)
        made.owner = owner
        return self.include(made, owner.user.name)

    def include(self, destination: Destination, user: str = "") -> Destination:
        """Take a new destination in, which is made for a user.

        Raises :class:`Refused` where there are too many, in all or of that user.
        """
        destination.charge(user)
        refusal = self._refusal(destination)
        if refusal is not None:
            self._evict()
            refusal = self._refusal(destination)
        if refusal is not None:
            raise refusal
        return self._take_in(destination)

    def _refusal(self, destination: Destination) -> Refused | None:
        """Return why there is no room for a new destination, if there is none."""
        config = self.broker.config
        limit, count = config.max_destinations, len(self.destinations)
        code = "too-many-destinations"
        if count >= limit:
            return Refused(f"too many destinations: at most {limit}", code)
        if destination.is_for_letters:
            # The last places are for those who may make destinations.
            most = max(1, limit // 2)
            if self._letters >= most or count >= limit - max(1, limit // _RESERVED):
                return Refused(f"too many dead-letter queues: at most {most}", code)
        user, most = destination.charged_to, config.destinations_per_user
        if user and self._charges[user] >= most:
            return Refused(f"too many destinations of one user: at most {most}", code)
        return None

    def _take_in(self, destination: Destination) -> Destination:
        """Take a new destination in; those who subscribed to patterns of its name get it."""
        name = destination.name
        self._charges[destination.charged_to] += 1
        self._letters += destination.is_for_letters
        self.destinations[name] = destination
        for subscription in self._patterns.find(name):
            destination.add(subscription)
        expected = self._expected.pop(name, None)
        if expected is not None and isinstance(destination, Queue):
            destination.pullers.update(expected)
            self.broker.touch(destination)
        if isinstance(destination, Topic):
            # A durable subscription of one topic is its topic's from the beginning, and keeps it.
            destination.durables.update(dict.fromkeys(self._durable_patterns.find(name)))
        return destination

    def expect(self, name: str, puller: Puller) -> None:
        """Have somebody wait for the messages of a queue that can't be made now."""
        self._expected.setdefault(name, {})[puller] = None

    def expect_no_more(self, name: str, puller: Puller) -> None:
        """Have somebody not wait for a queue that was never made."""
        expected = self._expected.get(name)
        if expected is not None:
            expected.pop(puller, None)
            if not expected:
                del self._expected[name]

    def check_name(self, name: str) -> Kind:
        """The kind of destination that a name stands for; raises :class:`Refused` for none."""
        most = self.broker.config.max_destination_bytes
        if len(name) * 4 > most and len(name.encode("utf-8", "surrogateescape")) > most:
            raise Refused(f"destination name too long: at most {most} octets", "bad-destination")
        return kind_of(name)

    def _evict(self) -> None:
        """Make room by forgetting destinations that can be made again as they are."""
        now = self.broker.clock.seconds()
        if now < self._evicted_at + _EVICTION_PAUSE_S:
            return
        before = len(self.destinations)
        for destination in list(self.destinations.values()):
            # What this turn has touched may be about to be used.
            if (
                destination.owner is None
                and destination.is_disposable
                and not self.broker.is_touched(destination)
            ):
                self.discard(destination)
        if len(self.destinations) * 2 > before:
            self._evicted_at = now

    def discard(self, destination: Destination) -> None:
        """Remove a destination, with what is in it."""
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

    def note_maker(self, queue: Queue) -> None:
        """Have the store know for whom a queue was made, for as long as it has messages."""
        user, name = queue.charged_to, queue.name
        if user and name not in self._noted and self.destinations.get(name) is queue:
            self._note_maker(name, MakerRecord(self.name, name, user, queue.is_for_letters))

    def _note_maker(self, name: str, record: MakerRecord | None) -> None:
        journal = self.broker.journal
        if record is None:
            self._noted.discard(name)
        else:
            self._noted.add(name)
        if journal is not None:
            value = None if record is None else packed(record)
            journal.apart(SetRecord(MAKER_RECORDS + self.stored_name(name), value))

    def forget_if_idle(self, destination: Destination) -> None:
        """Remove a destination of which nothing would be lost."""
        if destination.owner is None and destination.is_idle:
            self.discard(destination)

    def is_gone(self, name: str) -> bool:
        """Whether a name is that of a temporary destination that is not there any more.

        Who sends to it can't know, and is not to suffer for it: there is nobody to get it.
        """
        return name.startswith(_TEMPORARY_PREFIXES) and name not in self.destinations

    # Subscriptions.

    def subscribe_pattern(self, subscription: Subscription, done: Callable[[None], None]) -> None:
        """Subscribe to all destinations that match, now and later.

        ``done`` is called, at once or later, when that is so for all that there are.
        """
        pattern = subscription.pattern
        assert pattern is not None  # what the method is for
        self._patterns.add(pattern, subscription)
        # Very many queues may wait, and they are taken out from the front: a plain dict would have
        # to look further for its first one each time.
        subscription.waiting = OrderedDict()
        self._pattern_work.begin(subscription, done)

    def unsubscribe_pattern(self, subscription: Subscription) -> None:
        """Have a subscription to a pattern get nothing more."""
        if subscription.pattern is not None:
            self._patterns.remove(subscription.pattern, subscription)
            self._pattern_work.end(subscription)

    def durable(
        self, key: str, topic: str, selector: str, user: str | None, *, is_shared: bool
    ) -> DurableQueue:
        """The durable subscription of that name; made, or made again if it was another one.

        It belongs to ``user``, unless that is ``None``. Raises :class:`Refused` where it is
        another's, or somebody uses it already and it is not to be shared. One that was another one
        is there again, as it was, if the store can't keep the change.
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
            used_at=self.broker.now,
            owner=user if found is None or found.record.owner is None else found.record.owner,
        )
        if found is not None:
            if found.subscriptions and not (is_shared and found.record.is_shared):
                raise Refused("the durable subscription is in use", "durable-subscription-in-use")
            same = (found.record.topic, found.record.selector) == (topic, selector)
            if not same and found.subscriptions:
                raise Refused(
                    "the durable subscription is in use with another destination or selector",
                    "durable-subscription-in-use",
                )
            generation = found.record.generation
            if not same:
                # Whatever is left in the store of others of the name has another number.
                generation = max(generation + 1, self.broker.new_lane())
            record = msgspec.structs.replace(record, generation=generation)
            if same:
                self._save(found, record)
                if found.replaced is not None:
                    self._await_change(found, lambda: self._forget_unkept(found))
                return found
        limit = self.broker.config.max_durable_subscriptions
        if len(self.durables if found is None else self._replaced) >= limit:
            raise Refused(
                f"too many durable subscriptions: at most {limit}", "too-many-subscriptions"
            )
        if found is None and user:
            self._check_durables_of(user)
        if not is_pattern(topic):
            # Where there can be no such topic, nothing has changed.
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
            raise Refused(
                f"too many durable subscriptions of one user: at most {limit}",
                "too-many-subscriptions",
            )

    def _adapt(self, queue: DurableQueue, topic: str) -> None:
        """Have a durable subscription collect the level itself, too, or no more.

        Whether its user may read that can have changed, and what was collected stays.
        """
        before = queue.record.topic
        if not (_is_below(before, topic) or _is_below(topic, before)):
            return
        assert queue.pattern is not None  # only patterns have a level of their own
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
        """Have a durable subscription belong to another user, ``None`` for who uses it next."""
        self._save(queue, msgspec.structs.replace(queue.record, owner=user))

    def _await_change(self, queue: DurableQueue, undo: Callable[[], None]) -> None:
        """Have what the name stood for before end once the store has the change."""
        journal = self.broker.journal
        if journal is None:
            self._end_replaced(queue)
        else:
            journal.undo_with(undo, lambda: self._end_replaced(queue))

    def _end_replaced(self, queue: DurableQueue) -> None:
        """Drop what a durable subscription has taken the place of."""
        while queue.replaced is not None:
            ended = queue.replaced
            queue.replaced, ended.replaced = ended.replaced, None
            self._end_durable(ended)

    def _forget_unkept(self, queue: DurableQueue) -> None:
        """Remove one that a client was refused to share, unless the store has it for another."""
        if queue.replaced is not None:
            self._forget_refused(queue)

    def _forget_refused(self, queue: DurableQueue) -> None:
        """Remove a durable subscription that its client was refused, unless others share it now.

        What its name stood for before is there again.
        """
        key = queue.record.key
        now = self.durables.get(key)
        if now is not queue:
            # Yet another one may have taken its place meanwhile, and can be refused, too.
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
        """Have a durable subscription collect what is sent from now on."""
        self.durables[queue.record.key] = queue
        self.durable_changes += 1
        if not self._is_checking:
            self._is_checking = True
            self.broker.later(_EXPIRY_CHECK_S, self._expire_durables)
        topic = queue.record.topic
        if queue.pattern is None:
            found = self.destinations.get(topic)
            if found is None:
                # There was room for it, or the store has it: that it is there is no question.
                found = self._take_in(self._made(Kind.TOPIC, topic))
            assert isinstance(found, Topic)  # only topics can be subscribed to durably
            found.durables[queue] = None
            return
        self._durable_patterns.add(queue.pattern, queue)
        for destination in self.destinations.values():
            if isinstance(destination, Topic) and queue.covers(destination.name):
                destination.durables[queue] = None

    def durables_of(self, name: str) -> Iterable[DurableQueue]:
        """Return the durable subscriptions that collect what is sent to a name."""
        found = self.destinations.get(name)
        if found is None:
            return self._durable_patterns.find(name) if self.durables else ()
        return found.durables if isinstance(found, Topic) else ()

    def choice(self, message: Message) -> Choice | None:
        """Return what is to be asked before a message is taken; None if no selector is."""
        if message.due:
            return None
        durables = self.durables_of(message.destination)
        if all(each.selector is None for each in durables):
            return None
        return Choice(message)

    def durable_named(self, name: str) -> DurableQueue | None:
        """The durable subscription whose queue has a name, if there is one."""
        key = named_durable_key(name)
        found = None if key is None else self.durables.get(key)
        return found if found is not None and found.name == name else None

    def touch_durable(self, queue: DurableQueue) -> None:
        """Note that a durable subscription has been used."""
        self._save(queue, msgspec.structs.replace(queue.record, used_at=self.broker.now))

    def _save(self, queue: DurableQueue, record: DurableRecord) -> None:
        queue.record = record
        journal = self.broker.journal
        if journal is not None:
            key = DURABLE_RECORDS + self.stored_name(record.key)
            journal.record(SetRecord(key, packed(record)))

    def remove_durable(self, queue: DurableQueue) -> None:
        """Remove a durable subscription with what it has collected."""
        del self.durables[queue.record.key]
        self._end_replaced(queue)
        self._end_durable(queue)
        journal = self.broker.journal
        if journal is not None:
            key = DURABLE_RECORDS + self.stored_name(queue.record.key)
            journal.record(SetRecord(key, None))

    def _end_durable(self, queue: DurableQueue) -> None:
        """Have a durable subscription collect nothing more, and drop what it has."""
        self._replaced.discard(queue)
        self.past = self.past.plus(queue.totals)
        if queue.pattern is not None:
            self._durable_patterns.remove(queue.pattern, queue)
        for destination in list(self.destinations.values()):
            if isinstance(destination, Topic) and queue in destination.durables:
                del destination.durables[queue]
                self.broker.touch(destination)
        queue.stop()
        queue.drop_lanes()

    def _expire_durables(self) -> None:
        expiry_s = self.broker.config.durable_expiry_s
        for queue in list(self.durables.values()):
            if queue.subscriptions:
                self.touch_durable(queue)
            elif expiry_s and queue.record.used_at + expiry_s <= self.broker.now:
                self.remove_durable(queue)
        if self.durables:
            self.broker.later(_EXPIRY_CHECK_S, self._expire_durables)
        else:
            self._is_checking = False

    # Opening.

    def restore(
        self,
        queues: dict[str, list[LaneState]],
        records: Iterable[DurableRecord],
        makers: dict[str, MakerRecord],
    ) -> None:
        """Make what the store knows, however much that is.

        ``queues`` are lanes, and ``makers`` for whom queues were made, both by their names.
        """
        self._noted.update(makers)
        for record in records:
            states = queues.pop(stored_durable_name(record), [])
            durable = DurableQueue(record, self.policy(record.topic), self, states)
            self.take_durable(durable)
            self._keep_limits(durable)
        journal = self.broker.journal
        for name, states in queues.items():
            if any(state.messages for state in states) and not name.startswith(DURABLES):
                self._restore_queue(name, states, makers.get(name))
            elif journal is not None:
                for state in states:
                    journal.apart(DropLane(state.lane))

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
        """Have a queue drop what is over its limits: the broker may have died just before that."""
        if queue.is_over:
            self.broker.touch(queue)

    # What frames do.

    def send(
        self, message: Message, maker: Connection | None = None, choice: Choice | None = None
    ) -> None:
        """Put a message into its destination; raises :class:`Refused` if it can't be taken.

        ``choice`` is what was asked about it before, if anything was.
        """
        destination = self.destinations.get(message.destination)
        if destination is None:
            destination = self.destination(message.destination, maker)
        try:
            destination.check(message)
            if message.due:
                destination.check_delays(1, message.size)
            if destination.is_busy:
                raise Blocked(f"{destination.name} is busy", destination)
            destination.check_room(1, message.size)
        finally:
            self.broker.touch(destination)
        if choice is not None and isinstance(destination, Topic):
            destination.put(message, choice)
        else:
            destination.put(message)

    def put_back(self, message: Message, name: str) -> None:
        """Put a message into a queue whatever its header calls that; may raise :class:`Refused`."""
        destination = self.destination(name)
        destination.check_room(1, message.size)
        destination.put(message)
        self.broker.touch(destination)

    def names_to_make(self, messages: Sequence[Message]) -> Iterable[str]:
        """The destinations of messages, where so many are to be made that it takes a while."""
        if len(messages) <= _FEW_MADE:
            return ()
        names = dict.fromkeys(each.destination for each in messages)
        return names if len(names.keys() - self.destinations.keys()) > _FEW_MADE else ()

    def commit(
        self,
        messages: Sequence[Message],
        settlements: Sequence[Settlement],
        maker: Connection | None = None,
        choices: Mapping[Message, Choice] = _NO_CHOICES,
        acknowledged: Acknowledged | None = None,
    ) -> None:
        """Apply a transaction; where one message can't be taken, :class:`Refused` and nothing.

        ``choices`` is what was asked about messages before, ``acknowledged`` what was reckoned up,
        and is not among the ``settlements``.
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
                    # Subscribers may be able to take their copies only once others are settled.
                    copied.append((destination, message))
                else:
                    destination.put(message)
            for settlement in settlements:
                gone.extend(self.broker.settle(settlement))
            if acknowledged is not None:
                self.broker.forget(acknowledged)
            for topic, message in copied:
                entry = topic.reserve(message, choices.get(message))
                if entry is not None:
                    copies.append((topic, entry))

        # Room is reckoned after all that the unit frees, and ahead of dead letters.
        self.together(apply)
        journal = self.broker.journal
        for topic, entry in copies:
            if journal is not None and journal.is_recording:
                journal.follow(entry)
            else:
                topic.put_done(entry, None)
        if journal is not None:
            journal.take(gone)

    def together(self, apply: Callable[[], None]) -> None:
        """Do what takes effect as a whole, or, where the store can't keep its part, not at all.

        Each message that is put counts at once. One in memory is in its queue only at the end, and
        waits for the store if it has to keep others.
        """
        if self.arriving is not None:
            # It is a part of something larger.
            apply()
            return
        self.begin_together()
        try:
            apply()
        finally:
            self.end_together()

    def begin_together(self) -> None:
        """Begin what :meth:`end_together` ends; see :meth:`together`."""
        self.arriving = []

    def end_together(self) -> None:
        """Have messages in memory come into their queues now, or with what the store keeps."""
        arriving, self.arriving = self.arriving or [], None
        journal = self.broker.journal
        if journal is not None and (
            journal.is_recording or any(queue.following for queue, _ in arriving)
        ):
            for queue, entry in arriving:
                queue.follow(entry)
            return
        for queue, entry in arriving:
            queue.count_off(entry)
        for queue, entry in arriving:
            queue.take_in(entry)
            self.broker.touch(queue)

    def _check_unit(
        self,
        messages: Sequence[Message],
        settlements: Sequence[Settlement],
        acknowledged: Acknowledged | None,
        maker: Connection | None,
    ) -> None:
        """Raise :class:`Refused` unless all destinations have room for what a transaction sends."""
        wanted: dict[Destination, _Demand] = defaultdict(_Demand)
        for message in messages:
            destination = self.destination(message.destination, maker)
            self.broker.touch(destination)
            destination.check(message)
            for home, size in destination.shares(message):
                wanted[home].add(size, is_delayed=message.due > 0)
        for settlement in settlements if wanted else ():
            if settlement.accepted:
                for entry in settlement.entries:
                    if entry.home in wanted and entry.home.is_queue:
                        wanted[entry.home].free(entry.message.size)
        for home, share in acknowledged.shares.items() if acknowledged is not None else ():
            if home in wanted:
                wanted[home].free(share.octets, share.messages)
        for destination, demand in wanted.items():
            if demand.delayed:
                destination.check_delays(demand.delayed, demand.delayed_octets)
            destination.check_room(max(0, demand.messages), max(0, demand.octets))

    # Messages that nobody wanted.

    def reject(
        self, entries: Iterable[MessageReference], *, requeue: bool, reason: str
    ) -> list[MessageReference]:
        """Do with delivered messages what their queue does with those that are not taken.

        Returns those that are dropped, and would not come back if the store can't do it.
        """
        back: dict[Destination, list[MessageReference]] = defaultdict(list)
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

    def await_dead_letters(self, queue: Queue) -> None:
        """Have a queue try again what its dead letters had no room for, once they have some."""
        letters = self.destinations.get(dead_letters_of(queue.name))
        if isinstance(letters, Queue):
            letters.overdue_of[queue] = None

    def dead_letter(
        self, entry: MessageReference, reason: str, more: dict[str, str] | None = None
    ) -> None:
        """Put a message among the dead letters of its queue as well.

        *more* are headers that the letter has over those of the message. Raises
        :class:`Refused` where there is no room.
        """
        message, home = entry.message, entry.home
        expires = sent_expiry(message, home.policy)
        now, times = self.broker.now, entry.deliveries
        letter = dead_letter(message, home.name, reason, times, now, expires, more or {})
        if letter.destination not in self.destinations:
            self._make_letters(letter.destination, home.charged_to)
        self.send(letter)

    def _make_letters(self, name: str, user: str) -> None:
        """Make the queue for the dead letters of what is a user's."""
        made = self._made(self.check_name(name), name)
        made.is_for_letters = True
        self.include(made, user)

    def bury(self, entry: MessageReference, reason: str) -> bool:
        """Move a message to the dead letters of its queue; dead letters themselves are dropped.

        Says whether it could: where there is no room for it the message is still its queue's.
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
        except Refused:
            # Full dead letters must not fail the client that said NACK, and what they can't take
            # must not be lost.
            return False
        journal = self.broker.journal
        if journal is not None and not is_expired:
            # Where the store can't take the letter, the message goes on waiting in its queue. One
            # that has expired would be tried again at once, and so comes back with a restart.
            journal.take([entry])
        return True

    @staticmethod
    def _keeps_letters(home: Destination) -> bool:
        """Return whether what dies in a queue becomes a dead letter."""
        is_of_letters = home.name.startswith(DEAD_LETTERS)
        return home.policy.dead_letters and not is_of_letters and not home.owner


def _is_below(pattern: str, other: str) -> bool:
    """Return whether another pattern is the same without the level itself."""
    return level_itself(pattern) is not None and other == below_level(pattern)
