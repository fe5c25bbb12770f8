"""Durable subscriptions of a host: creation, replacement, expiry and removal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from stompkit.server.domain.destinations import (
    BrokerBase,
    Destination,
)
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.hosts.choices import Choice, ChoiceWork
from stompkit.server.domain.hosts.registry import DestinationRegistry
from stompkit.server.domain.messages import Message
from stompkit.server.domain.names import (
    DEAD_LETTERS,
    Kind,
    below_level,
    dead_letter_source,
    is_pattern,
    level_itself,
)
from stompkit.server.domain.queues.durables import (
    DurableQueue,
    named_durable_key,
)
from stompkit.server.domain.topics import Topic
from stompkit.server.interfaces import SetRecord
from stompkit.server.stores.records import (
    DURABLE_RECORDS,
    DurableRecord,
    packed,
)

__all__ = ["DurableSubscriptions"]

#: Interval in seconds between two checks for expired durable subscriptions.
_EXPIRY_CHECK_S: Final = 60.0


class DurableSubscriptions(DestinationRegistry):
    """The durable subscriptions of one host."""

    def __init__(self, name: str, broker: BrokerBase) -> None:
        """Start without durable subscriptions."""
        super().__init__(name, broker)
        self.durables: dict[str, DurableQueue] = {}
        self.durable_changes = 0
        #: Replaced durable subscriptions with the same names, until the store has the change.
        self._replaced: set[DurableQueue] = set()
        self.choice_work = ChoiceWork(self)
        self._is_checking = False

    def reset(self) -> None:
        """Remove everything that the configuration does not create; the store is not changed."""
        super().reset()
        self.durables.clear()
        self._replaced.clear()
        self.choice_work = ChoiceWork(self)
        self._is_checking = False

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
            used_at=self.scheduler.wall,
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
                found.used = self.scheduler.now
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

    def _is_known(self, name: str) -> bool:
        # Quoting makes the names of their dead letters longer.
        is_of_durable = (
            name.startswith(DEAD_LETTERS)
            and self.durable_named(dead_letter_source(name)) is not None
        )
        return is_of_durable or super()._is_known(name)

    def touch_durable(self, queue: Destination) -> None:
        """Record that a durable subscription has been used, unless it is removed."""
        if isinstance(queue, DurableQueue) and self.durables.get(queue.record.key) is queue:
            queue.used = self.scheduler.now
            self._save(queue, msgspec.structs.replace(queue.record, used_at=self.scheduler.wall))

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
        queue.drop_lanes()
        queue.stop()

    def _expire_durables(self) -> None:
        expiry_s, now = self.broker.config.durable_expiry_s, self.scheduler.now
        for queue in list(self.durables.values()):
            used_at = self.scheduler.wall - (now - queue.used)
            if queue.subscriptions:
                self.touch_durable(queue)
            elif expiry_s and queue.used + expiry_s <= now:
                self.remove_durable(queue)
            elif abs(used_at - queue.record.used_at) > _EXPIRY_CHECK_S:
                # The system's time has been set; after a restart only the record tells.
                self._save(queue, msgspec.structs.replace(queue.record, used_at=used_at))
        if self.durables:
            self.scheduler.later(_EXPIRY_CHECK_S, self._expire_durables)
        else:
            self._is_checking = False


def _is_below(pattern: str, other: str) -> bool:
    """Return True if *other* is the same pattern without the level itself."""
    return level_itself(pattern) is not None and other == below_level(pattern)
