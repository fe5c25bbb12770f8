"""One subscription of one connection."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Final

from stompkit.frames import Version
from stompkit.server.domain.messages import Message, header_line
from stompkit.server.domain.names import Pattern
from stompkit.server.domain.queues.references import MessageReference
from stompkit.server.selectors import Selector

if TYPE_CHECKING:
    from stompkit.server.domain.destinations import Destination
    from stompkit.server.domain.queues.queue import Queue
    from stompkit.server.domain.session.connection import Connection

__all__ = ["AckMode", "Subscription"]


#: Size in bytes from which the encoded message is discarded and built again on redelivery.
_LARGE_BYTES: Final = 16 * 1024


class AckMode(Enum):
    """The values of SUBSCRIBE's ``ack`` header (1.2, "SUBSCRIBE ack Header")."""

    AUTO = "auto"
    CLIENT = "client"
    CLIENT_INDIVIDUAL = "client-individual"


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
        connection: Connection,
        subscription_id: str | None,
        mode: AckMode,
        prefetch: int,
        version: Version,
    ) -> None:
        """Create a subscription to nothing; ``subscription_id`` may be missing on 1.0 only."""
        self.connection = connection
        #: Its destinations: one, or all that match its pattern.
        self.homes: dict[Destination, None] = {}
        self.pattern: Pattern | None = None
        self.id = subscription_id
        self.mode = mode
        self.is_auto = self._was_auto = mode is AckMode.AUTO
        self.prefetch = prefetch
        #: Maximum number of unsettled deliveries: the prefetch, plus those that open transactions
        #: have acknowledged.
        self.room = prefetch
        self.selector: Selector | None = None
        self.is_exclusive = False
        self._is_over = False
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
        self.waiting: dict[Queue, None] = {}
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
        tail = message.tail(connection.version)
        connection.emit(self._head, lines.encode(), tail if connection.has_eol else tail[:-1])
        if message.size >= _LARGE_BYTES and entry.home.is_queue:
            # Otherwise it would be in memory twice until it is acknowledged.
            message.forget_tail()
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

    def _dequeue(self) -> MessageReference:
        """Remove and return the oldest held message."""
        entry = self.backlog.popleft()
        self.backlog_bytes -= entry.message.size
        self.connection.backlog -= 1
        return entry

    def drop_oldest(self) -> None:
        """Drop the oldest held message."""
        self.lose(self._dequeue())

    def lose(self, entry: MessageReference) -> None:
        """Count a lost topic message."""
        home = entry.home
        home.host.broker.traps.warn(
            "slow-reader",
            home.host.name,
            home.name,
            "{destination}: a subscriber reads too slowly, and loses messages, whether or not their"
            " senders got receipts; see max_topic_backlog, or subscribe durably",
        )
        self.dropped += 1
        home.dropped += 1

    def drop_backlog(self) -> None:
        """Discard all held topic messages."""
        self.connection.backlog -= len(self.backlog)
        self.backlog.clear()
        self.backlog_bytes = 0

    def end_of_browsing(self) -> None:
        """Write the MESSAGE that marks the end of browsing."""
        name = next((home.name for home in self.homes), "")
        line = header_line("destination", name, self.connection.version)
        end = line + self.connection.end_of_frame
        self.connection.emit(self._head, b"message-id:end\nbrowser:end\n", end)
