"""What queues, topics and fan-out destinations have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from stompkit.server.domain.errors import Refused
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues.references import MessageReference
from stompkit.server.domain.session.subscriptions import Subscription
from stompkit.server.interfaces import StoreError
from stompkit.server.settings.broker import Policy

if TYPE_CHECKING:
    from stompkit.server.domain.hosts import VirtualHost
    from stompkit.server.domain.queues.sub_queue import SubQueue
    from stompkit.server.domain.session.connection import Connection

__all__ = ["Blocked", "Destination", "Totals"]


class Totals(NamedTuple):
    """How many messages have come to a destination, and what became of them, ever since.

    ``delivered`` counts each delivery. ``settled`` are those that consumers have acknowledged, or
    got in the mode ``auto``; ``dropped`` those for which there was no room. A message that has
    expired may be a dead letter, too.
    """

    received: int = 0
    delivered: int = 0
    settled: int = 0
    dropped: int = 0
    dead_lettered: int = 0
    expired: int = 0

    def plus(self, other: Totals) -> Totals:
        """The sum of each."""
        return Totals(
            self.received + other.received,
            self.delivered + other.delivered,
            self.settled + other.settled,
            self.dropped + other.dropped,
            self.dead_lettered + other.dead_lettered,
            self.expired + other.expired,
        )


class Blocked(Refused):
    """A message that a full destination has no room for now; its sender can wait for room."""

    def __init__(self, message: str, destination: Destination) -> None:
        """Keep whom to wait for."""
        super().__init__(message, "queue-full")
        self.destination = destination


class Destination:
    """A place that messages are sent to by name."""

    #: Whether each message goes to one subscriber and stays until that has acknowledged it.
    is_queue: ClassVar[bool] = False

    def __init__(self, name: str, policy: Policy, host: VirtualHost) -> None:
        """Make an empty destination."""
        self.name = name
        self.policy = policy
        self.host = host
        self._charged_to = ""
        #: The connection that a temporary destination lives and dies with.
        self.owner: Connection | None = None
        #: Whether the broker has made it for itself: it has the dead letters of another.
        self.is_for_letters = False
        #: Whether its messages are in the store.
        self.is_persistent = False
        #: Messages that it has dropped: it, or a slow reader of it, was full.
        self.dropped = 0
        #: Messages that have come, deliveries, and what else became of messages.
        self.received = 0
        self.delivered = 0
        self.dead_lettered = 0
        self.expired = 0
        #: Whether an operator has stopped deliveries, for as long as the broker runs.
        self.is_paused = False
        #: Those who count on it being there, so that it must not be forgotten: operators who work
        #: on its messages, and transactions that are about to send to it.
        self.holds = 0
        #: Whether it is still busy with messages that were sent before.
        self.is_busy = False
        #: Connections that have ended, and whose messages are still being given back to it.
        self.returning = 0
        #: Messages that are gone, and come back if the store can't do what took them.
        self.in_doubt = 0

    def configure(self, policy: Policy) -> None:
        """Go by other settings from now on."""
        self.policy = policy

    @property
    def charged_to(self) -> str:
        """The user whose limits count it; empty for one without a name, or one not known."""
        return self._charged_to

    def charge(self, user: str) -> None:
        """Have it count against the limits of a user."""
        self._charged_to = user

    @property
    def settings_name(self) -> str:
        """The name by which it finds its settings."""
        return self.name

    @property
    def ready(self) -> int:
        """Messages that wait to be delivered, and could be to one who takes them."""
        return 0

    @property
    def delayed(self) -> int:
        """Messages whose time has not come."""
        return 0

    @property
    def consumers(self) -> int:
        """Subscriptions that get its messages; those that only look are not counted."""
        return 0

    @property
    def settled_count(self) -> int:
        """Messages that consumers are done with."""
        return 0

    @property
    def totals(self) -> Totals:
        """What has happened since it was made."""
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
        """Whether the store has a part of it."""
        return False

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost if the destination were forgotten."""
        raise NotImplementedError

    @property
    def depends_on_takers(self) -> bool:
        """Whether others may get messages when a subscription ends: with groups, for example."""
        return False

    @property
    def is_disposable(self) -> bool:
        """Whether it could be made again as it is: nothing but patterns keep it."""
        return self.is_idle

    def check(self, message: Message) -> None:
        """Raise :class:`Refused` for a message that is not for this destination."""

    def shares(self, message: Message) -> Iterable[tuple[Destination, int]]:
        """Where a message would be kept, and the octets that it would take there."""
        return ((self, message.size),)

    def check_room(self, messages: int, size: int) -> None:
        """Raise :class:`Refused` if that many more messages and octets can't be taken."""

    def check_delays(self, messages: int, size: int) -> None:
        """Raise :class:`Refused` if that many more messages can't wait for their time."""

    def let_in(self) -> None:
        """Have those who wait for it go on."""

    def put(self, message: Message) -> None:
        """Take a message; the caller has checked that there is room."""
        raise NotImplementedError

    def enqueue(self, message: Message) -> None:
        """Take a message whose time has come."""
        raise NotImplementedError

    def keep(self, lane: SubQueue, entry: MessageReference) -> None:
        """Have the store keep a message."""
        raise NotImplementedError

    def pump(self) -> None:
        """Deliver what can be delivered now."""

    def add(self, subscription: Subscription) -> None:
        """Begin to deliver to a subscription."""
        raise NotImplementedError

    def offer_to(self, subscription: Subscription) -> None:
        """Have a subscription that was added look at what is there, at the end of the turn."""

    def remove(self, subscription: Subscription) -> None:
        """Deliver no more to a subscription."""
        raise NotImplementedError

    def put_last(self, subscription: Subscription) -> None:
        """Have a subscription wait until all others have had their turn."""

    def settled(self, entry: MessageReference) -> None:
        """Forget an acknowledged entry."""

    def settled_many(self, messages: int, octets: int) -> None:
        """Have many acknowledged messages gone; :meth:`let_go` follows for each."""

    def let_go(self, entry: MessageReference) -> None:
        """Wait for nothing more of an acknowledged entry, which is gone."""

    def returned(self, entries: Iterable[MessageReference]) -> None:
        """Take back entries that were delivered but not acknowledged."""

    def given_back(self, entries: Iterable[MessageReference]) -> None:
        """Take back a part of what a connection has had that ended, the newest part first."""
        self.returned(entries)

    def taken_back(self, entry: MessageReference) -> None:
        """Take back an entry that was settled by what could not be done."""

    def arrived(self, entry: MessageReference) -> None:
        """Count a message no longer among those on their way, ahead of :meth:`put_done`."""

    def put_done(self, entry: MessageReference, error: StoreError | None) -> None:
        """Deliver a message that the store has, or forget one that it could not take."""
