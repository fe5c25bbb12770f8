"""Deliveries: references to messages, subscriptions, and base classes of what these call.

The classes refer to each other, and to destinations and connections, which are implemented in
modules above. These derive from the base classes here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import ClassVar, Final

from mypy_extensions import mypyc_attr

from stompkit.frames import Frame, Version
from stompkit.server.domain.ack_mode import AckMode
from stompkit.server.domain.contracts import ScheduledConnection, ScheduledDestination
from stompkit.server.domain.header_lines import header_line
from stompkit.server.domain.messages import Message
from stompkit.server.domain.names import Pattern
from stompkit.server.domain.sub_queue import Placed, SubQueue
from stompkit.server.interfaces import StoreError
from stompkit.server.selectors import Selector

__all__ = [
    "ConnectionBase",
    "DestinationBase",
    "MessageReference",
    "PendingAcksBase",
    "Subscription",
]

#: Size in bytes from which the encoded message is discarded and built again on redelivery.
_LARGE_BYTES: Final = 16 * 1024


class MessageReference(Placed):
    """One message in one destination, until it is settled."""

    __slots__ = ("deliveries", "holder", "home", "key", "sub_queue", "subscription")

    def __init__(self, message: Message, home: DestinationBase, place: int) -> None:
        """Start at a place: a number that increases with each message of the destination."""
        self.message = message
        self.home = home
        self.place = place
        self.deliveries = 0
        #: The sub-queue that contains it.
        self.sub_queue: SubQueue[MessageReference] | None = None
        #: The subscription that it was delivered to; its key among the pending acknowledgements
        #: follows.
        self.subscription: Subscription | None = None
        self.key = ""
        #: The open transaction that has acknowledged it, or the unfinished settlement that includes
        #: it.
        self.holder: object | None = None


class DestinationBase(ScheduledDestination):
    """A destination as deliveries and the store see it."""

    #: True if each message goes to one subscriber, and stays until it is acknowledged.
    is_queue: ClassVar[bool] = False
    #: The connection that owns a temporary destination, which ends with it.
    owner: ConnectionBase | None
    #: Number of messages moved to the dead letters.
    dead_lettered: int
    #: Number of deliveries; the number of copies held for slow subscribers of a topic follows.
    delivered: int
    held: int
    #: Number of ended connections whose messages are still being returned to it.
    returning: int
    #: Number of removed messages that return if the store cannot apply the removal.
    in_doubt: int

    @property
    def charged_to(self) -> str:
        """The user whose limits count it; empty for an unnamed or unknown user."""
        return ""

    @property
    def is_stored(self) -> bool:
        """True if the store holds a part of it."""
        return False

    @property
    def depends_on_takers(self) -> bool:
        """True if others may receive messages when a subscription ends, for example with groups."""
        return False

    def serve(self, subscription: Subscription) -> bool:
        """Deliver one message to one subscription; return False if there is none for it."""
        return False

    def remove(self, subscription: Subscription) -> None:
        """Stop deliveries to a subscription."""
        raise NotImplementedError

    def put_last(self, subscription: Subscription) -> None:
        """Move a subscription to the end of the rotation."""

    def count_lost_copy(self) -> None:
        """Count a message that a subscriber does not get, since it reads too slowly."""

    def check_room(self, messages: int, size: int) -> None:
        """Raise :class:`RefusedError` if there is no room for that many more messages and bytes."""

    def check_delays(self, messages: int, size: int) -> None:
        """Raise :class:`RefusedError` if there is no room for that many more delayed messages."""

    def settled(self, entry: MessageReference) -> None:
        """Remove an acknowledged message."""

    def settled_many(self, messages: int, octets: int) -> None:
        """Remove many acknowledged messages; :meth:`let_go` follows for each."""

    def let_go(self, entry: MessageReference) -> None:
        """Stop the timers of an acknowledged message that is already removed."""

    def reject(
        self, entries: Iterable[MessageReference], *, requeue: bool, reason: str
    ) -> list[MessageReference]:
        """Requeue, dead-letter or drop rejected messages; return those that are dropped."""
        return []

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


@mypyc_attr(allow_interpreted_subclasses=True)
class PendingAcksBase:
    """Deliveries of a connection that wait for ACK or NACK."""

    #: True if nothing more may be delivered before something is settled.
    is_full: bool

    def __iter__(self) -> Iterator[MessageReference]:
        """Yield the pending deliveries, oldest first."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Return the number of pending deliveries."""
        raise NotImplementedError

    def find(self, frame: Frame) -> list[MessageReference]:
        """Return the entries that an ACK or NACK frame settles, oldest first."""
        raise NotImplementedError

    def clear(self) -> list[MessageReference]:
        """Remove and return all entries, since the connection has ended."""
        raise NotImplementedError

    def add(self, entry: MessageReference, subscription: Subscription) -> str:
        """Add a delivery; return the header lines with which the client can acknowledge it."""
        raise NotImplementedError

    def discard(self, entry: MessageReference) -> None:
        """Remove a settled entry."""
        raise NotImplementedError

    def lapse(self, entry: MessageReference) -> None:
        """Withdraw an entry; a late acknowledgement of it is ignored."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class ConnectionBase(ScheduledConnection):
    """A connection as the rest of the domain sees it."""

    ledger: PendingAcksBase
    subscriptions: dict[str, Subscription]
    #: Number of topic messages held for its subscriptions, counting each copy.
    backlog: int

    def log_message(self, subscription: Subscription, entry: MessageReference) -> None:
        """Log a MESSAGE frame without its body."""
        raise NotImplementedError

    def served(self, subscription: Subscription) -> None:
        """Record that a subscription has been served."""
        raise NotImplementedError

    def log_lost_copy(self, home: DestinationBase) -> None:
        """Log that it reads a topic too slowly and loses a message."""
        raise NotImplementedError

    def drop_from_longest_backlog(self) -> None:
        """Drop the oldest message of the subscription with the longest backlog."""
        raise NotImplementedError

    def try_again(self) -> bool:
        """Handle the frame that has waited for room; return False if there is still none."""
        raise NotImplementedError

    def committed(self, receipt: str | None, error: StoreError | None) -> None:
        """Reply to a frame whose write batch has succeeded or failed."""
        raise NotImplementedError


class Subscription:
    """Delivers messages from destinations to a connection, and tracks unsettled ones."""

    __slots__ = (
        "_head",
        "_is_over",
        "_was_auto",
        "backlog",
        "backlog_bytes",
        "connection",
        "dropped",
        "homes",
        "id",
        "is_auto",
        "is_exclusive",
        "mode",
        "pattern",
        "prefetch",
        "room",
        "selector",
        "serial",
        "turn",
        "unsettled",
        "waiting",
    )

    def __init__(
        self,
        connection: ConnectionBase,
        subscription_id: str | None,
        mode: AckMode,
        prefetch: int,
        version: Version,
    ) -> None:
        """Create a subscription to nothing; ``subscription_id`` may be missing on 1.0 only."""
        self.connection = connection
        #: Its destinations: one, or all that match its pattern.
        self.homes: dict[DestinationBase, None] = {}
        self.pattern: Pattern | None = None
        self.id = subscription_id
        self.mode = mode
        self.is_auto = self._was_auto = mode is AckMode.AUTO
        self.prefetch = prefetch
        #: Maximum number of unsettled deliveries: the prefetch, plus those that open transactions
        #: have acknowledged.
        self.room = prefetch
        self.selector: Selector | None = None
        self.is_exclusive = self._is_over = False
        #: Serial number, increasing with each subscription of a broker.
        self.serial = 0
        #: Number of its last service, increasing with each service of a subscription of its
        #: connection.
        self.turn = 0
        #: Deliveries that wait for ACK or NACK, oldest first, by their key.
        self.unsettled: dict[str, MessageReference] = {}
        #: Topic messages held for this subscriber; the number of lost ones follows.
        self.backlog: deque[MessageReference] = deque()
        self.backlog_bytes = 0
        self.dropped = 0
        #: Queues with more messages than it could receive; the first is the next to be served.
        self.waiting: dict[DestinationBase, None] = {}
        self._head = b"MESSAGE\n"
        if subscription_id is not None:
            self._head += header_line("subscription", subscription_id, version)

    @property
    def is_over(self) -> bool:
        """True if it receives nothing more, even before it is removed."""
        return self._is_over

    @is_over.setter
    def is_over(self, value: bool) -> None:
        self._is_over = value
        if value:
            # It then wants nothing, which is checked far more often.
            self.is_auto = False
            self.prefetch = self.room = 0
            self.waiting.clear()

    def limit(self, prefetch: int) -> None:
        """Limit the number of unacknowledged messages."""
        self.prefetch = self.room = prefetch

    def hold(self) -> None:
        """Receive nothing until :meth:`begin`."""
        self._was_auto = self.is_auto
        self.is_auto = False
        self.room = 0

    def begin(self) -> None:
        """Start receiving messages, within the prefetch."""
        if not self._is_over:
            self.is_auto = self._was_auto
            self.room = self.prefetch

    def wants(self) -> bool:
        """Return True if one more message of a queue can be delivered now."""
        connection = self.connection
        return connection.has_room and (
            self.is_auto
            or (
                len(self.unsettled) < self.room
                and connection.slots > 0
                and not connection.ledger.is_full
            )
        )

    def wants_copy(self) -> bool:
        """Return True if one more message of a topic can be delivered now."""
        connection = self.connection
        return connection.has_room and (
            self.is_auto or (len(self.unsettled) < self.room and not connection.ledger.is_full)
        )

    def takes(self, message: Message) -> bool:
        """Return True if the selector, if there is one, takes a message."""
        return self.selector is None or self.selector.takes(message.headers)

    def deliver(self, entry: MessageReference) -> None:
        """Write a MESSAGE frame; unless the mode is auto, the entry is then unsettled."""
        message = entry.message
        entry.deliveries += 1
        connection = self.connection
        if self.is_auto:
            lines = f"message-id:{message.id}\n"
        else:
            lines = connection.ledger.add(entry, self)
            if connection.is_limited and entry.home.is_queue:
                connection.slots -= 1
                connection.served(self)
        if entry.deliveries > 1:
            lines += f"redelivered:true\ndelivery-count:{entry.deliveries}\n"
        if message.size >= _LARGE_BYTES and entry.home.is_queue:
            # The tail would be one more copy of the body, in memory until it is acknowledged.
            passed = message.passed_lines(connection.version)
            head = b"".join((self._head, lines.encode(), passed, b"\n"))
            connection.emit(head, message.body, b"\0\n" if connection.has_eol else b"\0")
        else:
            tail = message.tail(connection.version)
            connection.emit(self._head, lines.encode(), tail if connection.has_eol else tail[:-1])
        if connection.is_logged:
            connection.log_message(self, entry)

    def catch_up(self, now: float) -> None:
        """Deliver held topic messages, as far as the client can receive them now."""
        backlog = self.backlog
        while backlog and (backlog[0].message.is_expired(now) or self.wants_copy()):
            entry = self._dequeue()
            if not entry.message.is_expired(now):
                self.deliver(entry)
                entry.home.delivered += 1

    def enqueue(self, entry: MessageReference) -> None:
        """Hold a topic message until it can be delivered."""
        self.backlog.append(entry)
        self.backlog_bytes += entry.message.size
        self.connection.backlog += 1
        entry.home.held += 1

    def _dequeue(self) -> MessageReference:
        """Remove and return the oldest held message."""
        entry = self.backlog.popleft()
        self.backlog_bytes -= entry.message.size
        self.connection.backlog -= 1
        entry.home.held -= 1
        return entry

    def drop_oldest(self) -> None:
        """Drop the oldest held message."""
        self.lose(self._dequeue())

    def lose(self, entry: MessageReference) -> None:
        """Count a lost topic message."""
        self.dropped += 1
        entry.home.count_lost_copy()
        self.connection.log_lost_copy(entry.home)

    def drop_backlog(self) -> None:
        """Discard all held topic messages."""
        while self.backlog:
            self._dequeue()

    def end_of_browsing(self, name: str, remaining: int) -> None:
        """Write the MESSAGE that marks the end; *remaining* messages are behind the window."""
        line = header_line("destination", name, self.connection.version)
        end = line + self.connection.end_of_frame
        left = b"browser-remaining:%d\n" % remaining if remaining else b""
        self.connection.emit(self._head, b"message-id:end\nbrowser:end\n" + left, end)
