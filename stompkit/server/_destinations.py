"""Queues and topics."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from stompkit.server._config import BrokerConfig
from stompkit.server._errors import Refused
from stompkit.server._messages import Message
from stompkit.server._subscriptions import Subscription

if TYPE_CHECKING:
    from stompkit.server._transactions import Transaction

__all__ = ["Destination", "Entry", "Queue", "Topic"]


class Entry:
    """A message's place in a destination, and who has it."""

    __slots__ = ("deliveries", "holder", "key", "message", "place", "subscription")

    def __init__(self, message: Message, place: int) -> None:
        """Take a place: a number that grows with each message of the destination."""
        self.message = message
        self.place = place
        self.deliveries = 0
        #: The subscription that it was delivered to, with its key in that connection's ledger.
        self.subscription: Subscription | None = None
        self.key = ""
        #: The open transaction that has acknowledged it.
        self.holder: Transaction | None = None


def _place(entry: Entry) -> int:
    return entry.place


class Destination:
    """What queues and topics have in common."""

    def __init__(self, name: str, config: BrokerConfig) -> None:
        """Make an empty destination."""
        self.name = name
        self.subscriptions: deque[Subscription] = deque()
        self._config = config
        self._next_place = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost if the destination were forgotten."""
        return not self.subscriptions

    def check_room(self, messages: int, size: int) -> None:
        """Raise :class:`Refused` if that many more messages and octets can't be taken."""

    def put(self, message: Message) -> None:
        """Take a message."""
        raise NotImplementedError

    def pump(self) -> None:
        """Deliver what can be delivered now."""
        raise NotImplementedError

    def settled(self, entry: Entry) -> None:
        """Forget an acknowledged entry."""

    def returned(self, entries: Iterable[Entry]) -> None:
        """Take back entries that were delivered but not acknowledged."""

    def add(self, subscription: Subscription) -> None:
        """Begin to deliver to a subscription."""
        self.subscriptions.append(subscription)

    def remove(self, subscription: Subscription) -> None:
        """Deliver no more to a subscription."""
        self.subscriptions.remove(subscription)

    def _entry(self, message: Message) -> Entry:
        self._next_place += 1
        return Entry(message, self._next_place)


class Queue(Destination):
    """Each message goes to one subscriber, in order, and stays until it is acknowledged."""

    def __init__(self, name: str, config: BrokerConfig) -> None:
        """Make an empty queue."""
        super().__init__(name, config)
        self.ready: deque[Entry] = deque()
        self._back: list[Entry] = []
        #: Messages and octets in the queue, delivered but unsettled ones included.
        self.messages = 0
        self.octets = 0

    @property
    def is_idle(self) -> bool:
        """Whether the queue has neither messages nor subscribers."""
        return not self.messages and not self.subscriptions

    def check_room(self, messages: int, size: int) -> None:
        """Raise :class:`Refused` if that many more messages and octets can't be taken."""
        config = self._config
        if self.messages + messages > config.max_queue_messages:
            raise Refused(f"{self.name} is full: it has {self.messages} messages", "queue-full")
        if self.octets + size > config.max_queue_bytes:
            raise Refused(f"{self.name} is full: it has {self.octets} octets", "queue-full")

    def put(self, message: Message) -> None:
        """Append a message; the caller has checked that there is room."""
        self.messages += 1
        self.octets += message.size
        self.ready.append(self._entry(message))

    def pump(self) -> None:
        """Deliver from the front, to the subscribers in turn."""
        if self._back:
            self._put_back()
        ready, subscriptions = self.ready, self.subscriptions
        unable = 0
        while ready and unable < len(subscriptions):
            subscription = subscriptions[0]
            subscriptions.rotate(-1)
            if not subscription.wants():
                unable += 1
                continue
            unable = 0
            entry = ready.popleft()
            subscription.deliver(entry)
            if subscription.is_auto:
                self.settled(entry)

    def settled(self, entry: Entry) -> None:
        """Forget an acknowledged entry."""
        self.messages -= 1
        self.octets -= entry.message.size

    def returned(self, entries: Iterable[Entry]) -> None:
        """Take entries back; they get their old places before anything else is delivered."""
        for entry in entries:
            entry.subscription = None
            self._back.append(entry)

    def _put_back(self) -> None:
        """Keep the original order, by moving no more than what has been delivered before."""
        back, ready = self._back, self.ready
        last = max(map(_place, back))
        while ready and ready[0].place < last:
            back.append(ready.popleft())
        back.sort(key=_place)
        ready.extendleft(reversed(back))
        back.clear()


class Topic(Destination):
    """Each subscriber gets a copy of what is sent while it is subscribed."""

    def put(self, message: Message) -> None:
        """Hand a message to every subscriber, or keep it for those that can't take it now."""
        for subscription in self.subscriptions:
            backlog = subscription.backlog
            entry = self._entry(message)
            if not backlog and subscription.wants():
                subscription.deliver(entry)
                continue
            backlog.append(entry)
            subscription.backlog_bytes += message.size
            while (
                len(backlog) > self._config.max_topic_backlog
                or subscription.backlog_bytes > self._config.max_topic_backlog_bytes
            ):
                subscription.backlog_bytes -= backlog.popleft().message.size
                subscription.dropped += 1

    def pump(self) -> None:
        """Deliver what was kept for subscribers that can take it now."""
        for subscription in self.subscriptions:
            backlog = subscription.backlog
            while backlog and subscription.wants():
                entry = backlog.popleft()
                subscription.backlog_bytes -= entry.message.size
                subscription.deliver(entry)
