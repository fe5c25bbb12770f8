"""Virtual hosts: each has its own destinations, and routes messages between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from stompkit.server.domain.deliveries import (
    DestinationBase,
    MessageReference,
)
from stompkit.server.domain.destinations import (
    BrokerBase,
    Destination,
)
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.fanout import Fanout
from stompkit.server.domain.hosts.routing import Routing
from stompkit.server.domain.names import (
    DEAD_LETTERS,
    DURABLES,
    Kind,
    dead_letters_of,
    is_pattern,
    kind_of,
)
from stompkit.server.domain.queues.dead_letters import dead_letter, sent_expiry
from stompkit.server.domain.queues.durables import (
    DurableQueue,
    stored_durable_name,
)
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.scheduling.slices import Slices
from stompkit.server.interfaces import DropLane, LaneState
from stompkit.server.stores.records import (
    DurableRecord,
    MakerRecord,
)

__all__ = ["VirtualHost"]


class VirtualHost(Routing):
    """The destinations shared by the clients of one ``host``."""

    def __init__(self, name: str, broker: BrokerBase) -> None:
        """Create a host with the destinations that the configuration names."""
        super().__init__(name, broker)
        #: Destinations that still use the previous settings.
        self._unconfigured: Slices[Destination] = Slices(self.scheduler, self._configure_one)
        self._make_fanouts()

    def configure(self) -> None:
        """Apply changed settings of the broker."""
        self._read_rules()
        self._unconfigured.clear()
        self._unconfigured.add([*self.destinations.values(), *self.durables.values()])
        self._make_fanouts()

    def _make_fanouts(self) -> None:
        """Create the fan-out destinations of the configuration, and remove all others."""
        settings = self.broker.config.destinations
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

    def reset(self) -> None:
        """Remove everything that the configuration does not create; the store is not changed."""
        super().reset()
        self._unconfigured = Slices(self.scheduler, self._configure_one)
        self.configure()

    def _configure_one(self, destination: Destination) -> None:
        """Apply new settings to a destination, if it still exists."""
        if isinstance(destination, DurableQueue):
            is_there = self.durables.get(destination.record.key) is destination
        else:
            is_there = self.destinations.get(destination.name) is destination
        if is_there:
            destination.configure(self.policy(destination.settings_name))

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
        self._recorded.update(makers)
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

        for name in self._recorded - self.destinations.keys():
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
            if reason == "rejected":
                if nack == "discard":
                    self._discard(entry)
                    dropped.append(entry)
                    continue
            elif not self._keeps_dead_letters(home):
                # No client has refused it, so it must not be dropped.
                back[home].append(entry)
                continue
            is_moved = False
            if nack == "dead-letter" or not requeue:
                is_moved = self.move_to_dead_letters(entry, reason)
            elif nack == "requeue-then-dead-letter" and entry.deliveries >= policy.max_deliveries:
                is_moved = self.move_to_dead_letters(entry, "max-deliveries")
            if not is_moved:
                back[home].append(entry)
            elif not self._keeps_dead_letters(home):
                dropped.append(entry)
        for destination, returned in back.items():
            destination.returned(returned)
        return dropped

    @staticmethod
    def _discard(entry: MessageReference) -> None:
        """Forget a message that no consumer has acknowledged."""
        home = entry.home
        if isinstance(home, Queue):
            home.lost += 1
        home.settled(entry)

    def await_dead_letters(self, queue: Destination) -> None:
        """Register a queue to retry dead-lettering once its dead-letter queue has room."""
        dead_letters = self.destinations.get(dead_letters_of(queue.name))
        if isinstance(dead_letters, Queue) and isinstance(queue, Queue):
            dead_letters.overdue_of[queue] = None

    def dead_letter(
        self, entry: MessageReference, reason: str, more: dict[str, str] | None = None
    ) -> None:
        """Add a copy of a message to the dead letters of its queue.

        *more* are additional headers of the dead letter. Raises :class:`RefusedError` if there is
        no room.
        """
        message, home = entry.message, entry.home
        expires = sent_expiry(message)
        now, times = self.scheduler.wall, entry.deliveries
        letter = dead_letter(message, home.name, reason, times, now, expires, more or {})
        if letter.destination not in self.destinations:
            self._make_dead_letter_queue(letter.destination, home.charged_to)
        self.send(letter)

    def _make_dead_letter_queue(self, name: str, user: str) -> None:
        """Create the dead-letter queue of a destination, charged to the same user."""
        made = self._made(kind_of(name), name)
        made.is_for_letters = True
        self.include(made, user)

    def move_to_dead_letters(self, entry: MessageReference, reason: str) -> bool:
        """Move a message to the dead letters of its queue; dead letters themselves are dropped.

        Return False if there is no room for it; the message then stays in its queue.
        """
        home = entry.home
        if not self._keeps_dead_letters(home):
            self._discard(entry)
            return True

        def apply() -> None:
            self.dead_letter(entry, reason)
            home.dead_lettered += 1
            self._discard(entry)

        try:
            self.together(apply)
        except RefusedError:
            # A full dead-letter queue must not fail the client that sent NACK, and the message must
            # not be lost.
            return False
        # If the store cannot record the dead letter, the message stays in its queue.
        self.scheduler.commit_queue.take([entry])
        return True

    @staticmethod
    def _keeps_dead_letters(home: DestinationBase) -> bool:
        """Return True if rejected messages of a queue become dead letters."""
        is_of_letters = home.name.startswith(DEAD_LETTERS)
        return home.policy.dead_letters and not is_of_letters and not home.owner
