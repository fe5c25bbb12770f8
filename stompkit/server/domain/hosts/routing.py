"""Routing of messages and transactions to destinations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from stompkit.server.domain.deliveries import (
    ConnectionBase,
    DestinationBase,
    MessageReference,
)
from stompkit.server.domain.destinations import (
    BlockedError,
    BrokerBase,
)
from stompkit.server.domain.hosts.choices import Choice
from stompkit.server.domain.hosts.durable_subscriptions import DurableSubscriptions
from stompkit.server.domain.messages import Message
from stompkit.server.domain.settlements import Acknowledged, Settlement
from stompkit.server.domain.topics import Topic

__all__ = ["Routing"]

#: Number of destinations that a transaction creates in one cycle.
_FEW_MADE: Final = 32
_NO_CHOICES: Final[Mapping[Message, Choice]] = {}


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


class Routing(DurableSubscriptions):
    """Puts messages into destinations, alone or as parts of atomic operations."""

    def __init__(self, name: str, broker: BrokerBase) -> None:
        """Start outside any operation."""
        super().__init__(name, broker)
        self.arriving = None

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
