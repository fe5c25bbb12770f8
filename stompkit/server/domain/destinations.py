"""Base class of queues, topics and fan-out destinations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues.references import MessageReference
from stompkit.server.domain.session.subscriptions import Subscription
from stompkit.server.interfaces import StoreError
from stompkit.server.settings.broker import Policy

if TYPE_CHECKING:
    from stompkit.server.domain.hosts import VirtualHost
    from stompkit.server.domain.queues.sub_queue import SubQueue
    from stompkit.server.domain.session.connection import Connection

__all__ = ["BlockedError", "Destination", "Totals"]


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


class Destination:
    """A named destination of messages."""

    #: True if each message goes to one subscriber, and stays until it is acknowledged.
    is_queue: ClassVar[bool] = False

    def __init__(self, name: str, policy: Policy, host: VirtualHost) -> None:
        """Create an empty destination."""
        self.name = name
        self.policy = policy
        self.host = host
        self._charged_to = ""
        #: The connection that owns a temporary destination, which ends with it.
        self.owner: Connection | None = None
        #: True if the broker created it to hold the dead letters of another destination.
        self.is_for_letters = False
        #: True if its messages are in the store.
        self.is_persistent = False
        #: Number of messages dropped because it, or a slow reader of it, was full.
        self.dropped = 0
        #: Numbers of messages received, of deliveries, and of other outcomes.
        self.received = 0
        self.delivered = 0
        self.dead_lettered = 0
        self.expired = 0
        #: True if an operator has paused deliveries; lasts until the broker stops.
        self.is_paused = False
        #: Number of users that need it to exist: operators who work on its messages, and
        #: transactions that are about to send to it.
        self.holds = 0
        #: True while it is still processing messages sent before.
        self.is_busy = False
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
    def is_stored(self) -> bool:
        """True if the store holds a part of it."""
        return False

    @property
    def is_idle(self) -> bool:
        """True if nothing would be lost if the destination were removed."""
        raise NotImplementedError

    @property
    def depends_on_takers(self) -> bool:
        """True if others may receive messages when a subscription ends, for example with groups."""
        return False

    @property
    def is_disposable(self) -> bool:
        """True if it could be created again as it is: only patterns use it."""
        return self.is_idle

    def check(self, message: Message) -> None:
        """Raise :class:`RefusedError` for a message that this destination does not accept."""

    def shares(self, message: Message) -> Iterable[tuple[Destination, int]]:
        """Return the destinations that would keep a message, and its size in bytes there."""
        return ((self, message.size),)

    def check_room(self, messages: int, size: int) -> None:
        """Raise :class:`RefusedError` if there is no room for that many more messages and bytes."""

    def check_delays(self, messages: int, size: int) -> None:
        """Raise :class:`RefusedError` if there is no room for that many more delayed messages."""

    def let_in(self) -> None:
        """Resume the senders that wait for it."""

    def put(self, message: Message) -> None:
        """Accept a message; the caller has checked that there is room."""
        raise NotImplementedError

    def enqueue(self, message: Message) -> None:
        """Accept a message that is due."""
        raise NotImplementedError

    def keep(self, lane: SubQueue, entry: MessageReference) -> None:
        """Write a message to the store."""
        raise NotImplementedError

    def pump(self) -> None:
        """Deliver everything deliverable now."""

    def add(self, subscription: Subscription) -> None:
        """Start deliveries to a subscription."""
        raise NotImplementedError

    def offer_to(self, subscription: Subscription) -> None:
        """Offer existing messages to a new subscription, at the end of the cycle."""

    def remove(self, subscription: Subscription) -> None:
        """Stop deliveries to a subscription."""
        raise NotImplementedError

    def put_last(self, subscription: Subscription) -> None:
        """Move a subscription to the end of the rotation."""

    def settled(self, entry: MessageReference) -> None:
        """Remove an acknowledged message."""

    def settled_many(self, messages: int, octets: int) -> None:
        """Remove many acknowledged messages; :meth:`let_go` follows for each."""

    def let_go(self, entry: MessageReference) -> None:
        """Stop the timers of an acknowledged message that is already removed."""

    def returned(self, entries: Iterable[MessageReference]) -> None:
        """Take back messages that were delivered but not acknowledged."""

    def given_back(self, entries: Iterable[MessageReference]) -> None:
        """Take back a part of an ended connection's messages, the newest part first."""
        self.returned(entries)

    def taken_back(self, entry: MessageReference) -> None:
        """Take back a message whose settlement could not be applied."""

    def arrived(self, entry: MessageReference) -> None:
        """Remove a message from the count of incoming ones, before :meth:`put_done`."""

    def put_done(self, entry: MessageReference, error: StoreError | None) -> None:
        """Deliver a message that the store has, or forget one that it could not store."""
