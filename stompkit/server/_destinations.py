"""What queues, topics and fan-out destinations have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from stompkit.server._config import Policy
from stompkit.server._entries import Entry
from stompkit.server._messages import Message
from stompkit.server._subscriptions import Subscription
from stompkit.server.interfaces import StoreError

if TYPE_CHECKING:
    from stompkit.server._connection import Connection
    from stompkit.server._hosts import VirtualHost
    from stompkit.server._lanes import Lane

__all__ = ["Destination"]


class Destination:
    """A place that messages are sent to by name."""

    #: Whether each message goes to one subscriber and stays until that has acknowledged it.
    is_queue: ClassVar[bool] = False

    def __init__(self, name: str, policy: Policy, host: VirtualHost) -> None:
        """Make an empty destination."""
        self.name = name
        self.policy = policy
        self.host = host
        #: The connection that a temporary destination lives and dies with.
        self.owner: Connection | None = None
        #: Whether its messages are in the store.
        self.is_persistent = False
        #: Messages that it has dropped: it, or a slow reader of it, was full.
        self.dropped = 0

    def configure(self, policy: Policy) -> None:
        """Go by other settings from now on."""
        self.policy = policy

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
    def is_idle(self) -> bool:
        """Whether nothing would be lost if the destination were forgotten."""
        raise NotImplementedError

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

    def put(self, message: Message) -> None:
        """Take a message; the caller has checked that there is room."""
        raise NotImplementedError

    def enqueue(self, message: Message) -> None:
        """Take a message whose time has come."""
        raise NotImplementedError

    def keep(self, lane: Lane, entry: Entry) -> None:
        """Have the store keep a message."""
        raise NotImplementedError

    def pump(self) -> None:
        """Deliver what can be delivered now."""

    def add(self, subscription: Subscription) -> None:
        """Begin to deliver to a subscription."""
        raise NotImplementedError

    def remove(self, subscription: Subscription) -> None:
        """Deliver no more to a subscription."""
        raise NotImplementedError

    def put_last(self, subscription: Subscription) -> None:
        """Have a subscription wait until all others have had their turn."""

    def settled(self, entry: Entry) -> None:
        """Forget an acknowledged entry."""

    def returned(self, entries: Iterable[Entry]) -> None:
        """Take back entries that were delivered but not acknowledged."""

    def taken_back(self, entry: Entry) -> None:
        """Take back an entry that was settled by what could not be done."""

    def put_done(self, entry: Entry, error: StoreError | None) -> None:
        """Deliver a message that the store has, or forget one that it could not take."""
