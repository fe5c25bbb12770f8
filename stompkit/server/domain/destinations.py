"""Base class of queues, topics and fan-out destinations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from stompkit.server.domain.deliveries import (
    ConnectionBase,
    DestinationBase,
    MessageReference,
    Subscription,
)
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.messages import Message
from stompkit.server.domain.names import Pattern
from stompkit.server.domain.scheduling.scheduler import Scheduler
from stompkit.server.domain.scheduling.selector_time import SelectorTime
from stompkit.server.domain.settler import Settler
from stompkit.server.domain.sub_queue import SubQueue
from stompkit.server.interfaces import MessageStore
from stompkit.server.log.once_log import OnceLog
from stompkit.server.settings.broker import BrokerConfig, Policy

__all__ = ["BlockedError", "BrokerBase", "Destination", "HostBase", "Totals"]


class BrokerBase:
    """The broker as its destinations see it."""

    config: BrokerConfig
    store: MessageStore | None
    connections: set[ConnectionBase]
    scheduler: Scheduler
    settler: Settler
    selector_time: SelectorTime
    #: Log of pitfalls for clients, once for each destination.
    traps: OnceLog

    @property
    def last_subscription(self) -> int:
        """The number of the newest subscription."""
        raise NotImplementedError

    def new_lane(self) -> int:
        """Return a number that no other lane of the store has."""
        raise NotImplementedError


class HostBase:
    """The virtual host as its destinations see it."""

    name: str
    broker: BrokerBase
    scheduler: Scheduler
    destinations: dict[str, Destination]
    #: During an atomic operation: the messages that it puts into queues in memory.
    arriving: list[tuple[Destination, MessageReference]] | None

    def stored_name(self, name: str) -> str:
        """Return the name of a queue in the store."""
        raise NotImplementedError

    def pattern(self, text: str) -> Pattern:
        """Parse a pattern by the rules of the dialect; raises RefusedError if it is invalid."""
        raise NotImplementedError

    def own_ttl_s(self, name: str) -> float:
        """Return the time-to-live in seconds set for this destination in particular, or 0."""
        raise NotImplementedError

    def destination(self, name: str, maker: ConnectionBase | None = None) -> Destination:
        """Return the destination with a name, created if it does not exist."""
        raise NotImplementedError

    def is_gone(self, name: str) -> bool:
        """Return True if a name belongs to a temporary destination that no longer exists."""
        raise NotImplementedError

    def forget_if_idle(self, destination: Destination) -> None:
        """Remove a destination if nothing would be lost."""
        raise NotImplementedError

    def note_maker(self, queue: Destination) -> None:
        """Record in the store for which user a queue was created, as long as it has messages."""
        raise NotImplementedError

    def touch_durable(self, queue: Destination) -> None:
        """Record that a durable subscription has been used, unless it is removed."""
        raise NotImplementedError

    def together(self, apply: Callable[[], None]) -> None:
        """Run an operation atomically."""
        raise NotImplementedError

    def begin_together(self) -> None:
        """Begin an atomic operation that :meth:`end_together` ends."""
        raise NotImplementedError

    def end_together(self) -> None:
        """Enqueue messages in memory now, or together with those being stored."""
        raise NotImplementedError

    def reject(
        self, entries: Iterable[MessageReference], *, requeue: bool, reason: str
    ) -> list[MessageReference]:
        """Requeue, dead-letter or drop rejected messages, as their queue's policy says."""
        raise NotImplementedError

    def move_to_dead_letters(self, entry: MessageReference, reason: str) -> bool:
        """Move a message to the dead letters of its queue; return False without room for it."""
        raise NotImplementedError

    def await_dead_letters(self, queue: Destination) -> None:
        """Register a queue to retry dead-lettering once its dead-letter queue has room."""
        raise NotImplementedError


class Totals(NamedTuple):
    """Counts of a destination's messages since it was created.

    ``delivered`` counts each delivery. ``settled`` counts messages that consumers have
    acknowledged, or received in the mode ``auto``. ``dropped`` counts those for which there was no
    room. A message that has expired may also be a dead letter.
    """

    received: int = 0
    delivered: int = 0
    settled: int = 0
    dropped: int = 0
    dead_lettered: int = 0
    expired: int = 0

    def plus(self, other: Totals) -> Totals:
        """Return the sum of each count."""
        return Totals(
            self.received + other.received,
            self.delivered + other.delivered,
            self.settled + other.settled,
            self.dropped + other.dropped,
            self.dead_lettered + other.dead_lettered,
            self.expired + other.expired,
        )


class BlockedError(RefusedError):
    """A full destination has no room for a message now; the sender can wait for room."""

    def __init__(self, message: str, destination: Destination) -> None:
        """Keep the destination to wait for."""
        super().__init__(message, "queue-full")
        self.destination = destination


class Destination(DestinationBase):
    """A named destination of messages."""

    def __init__(self, name: str, policy: Policy, host: HostBase) -> None:
        """Create an empty destination."""
        self.name = name
        self.policy = policy
        self.host = host
        self._charged_to = ""
        self.owner = None
        #: True if the broker created it to hold the dead letters of another destination.
        self.is_for_letters = False
        #: True if its messages are in the store.
        self.is_persistent = False
        #: Number of messages dropped because it, or a slow reader of it, was full.
        self.dropped = 0
        #: Numbers of messages received, of deliveries, and of other outcomes.
        self.received = self.delivered = 0
        self.dead_lettered = 0
        self.expired = 0
        #: True if an operator has paused deliveries; lasts until the broker stops.
        self.is_paused = False
        #: Number of users that need it to exist: operators who work on its messages, and
        #: transactions that are about to send to it.
        self.holds = 0
        #: True while it is still processing messages sent before.
        self.is_busy = False
        #: Number of copies of its messages that are held for slow subscribers.
        self.held = 0
        #: Number of ended connections whose messages are still being returned to it.
        self.returning = 0
        #: Number of removed messages that return if the store cannot apply the removal.
        self.in_doubt = 0

    def configure(self, policy: Policy) -> None:
        """Apply new settings."""
        self.policy = policy

    @property
    def charged_to(self) -> str:
        """The user whose limits count it; empty for an unnamed or unknown user."""
        return self._charged_to

    def charge(self, user: str) -> None:
        """Count it against the limits of a user."""
        self._charged_to = user

    @property
    def settings_name(self) -> str:
        """The name used to look up its settings."""
        return self.name

    @property
    def ready(self) -> int:
        """Number of messages that wait for delivery."""
        return 0

    @property
    def delayed(self) -> int:
        """Number of messages that are not due yet."""
        return 0

    @property
    def consumers(self) -> int:
        """Number of subscriptions that consume its messages, without browsers."""
        return 0

    @property
    def settled_count(self) -> int:
        """Number of messages that consumers have settled."""
        return 0

    @property
    def totals(self) -> Totals:
        """Counts since it was created."""
        return Totals(
            self.received,
            self.delivered,
            self.settled_count,
            self.dropped,
            self.dead_lettered,
            self.expired,
        )

    @property
    def is_disposable(self) -> bool:
        """True if it could be created again as it is: only patterns use it."""
        return self.is_idle

    def check(self, message: Message) -> None:
        """Raise :class:`RefusedError` for a message that this destination does not accept."""

    def shares(self, message: Message) -> Iterable[tuple[Destination, int]]:
        """Return the destinations that would keep a message, and its size in bytes there."""
        return ((self, message.size),)

    def put(self, message: Message) -> None:
        """Accept a message; the caller has checked that there is room."""
        raise NotImplementedError

    def enqueue(self, message: Message) -> None:
        """Accept a message that is due."""
        raise NotImplementedError

    def keep(self, sub_queue: SubQueue[MessageReference], entry: MessageReference) -> None:
        """Write a message to the store."""
        raise NotImplementedError

    def add(self, subscription: Subscription) -> None:
        """Start deliveries to a subscription."""
        raise NotImplementedError

    def offer_to(self, subscription: Subscription) -> None:
        """Offer existing messages to a new subscription, at the end of the cycle."""

    def forget_if_idle(self) -> None:
        """Remove it from its host if nothing would be lost."""
        self.host.forget_if_idle(self)

    def reject(
        self, entries: Iterable[MessageReference], *, requeue: bool, reason: str
    ) -> list[MessageReference]:
        """Requeue, dead-letter or drop rejected messages; return those that are dropped."""
        return self.host.reject(entries, requeue=requeue, reason=reason)

    # Messages in memory that are part of an atomic operation.

    #: Number of messages that wait until the rest of their write batch is stored.
    following: int

    def follow(self, entry: MessageReference) -> None:
        """Delay a message in memory until the store is done; :meth:`put_done` follows."""
        raise NotImplementedError

    def count_off(self, entry: MessageReference) -> None:
        """Remove a message from the count of incoming ones."""
        raise NotImplementedError

    def take_in(self, entry: MessageReference) -> None:
        """Append a message in memory."""
        raise NotImplementedError
