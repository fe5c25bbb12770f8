"""One subscription of one connection."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from stompkit.frames import Version
from stompkit.server._messages import header_line

if TYPE_CHECKING:
    from stompkit.server._connection import Connection
    from stompkit.server._destinations import Destination, Entry

__all__ = ["AckMode", "Subscription"]


class AckMode(Enum):
    """The values of SUBSCRIBE's ``ack`` header (1.2, "SUBSCRIBE ack Header")."""

    AUTO = "auto"
    CLIENT = "client"
    CLIENT_INDIVIDUAL = "client-individual"


class Subscription:
    """Takes messages from a destination to a connection, and knows which are unsettled."""

    __slots__ = (
        "_head",
        "backlog",
        "backlog_bytes",
        "connection",
        "destination",
        "dropped",
        "id",
        "is_auto",
        "mode",
        "prefetch",
        "unsettled",
    )

    def __init__(
        self,
        connection: Connection,
        destination: Destination,
        subscription_id: str | None,
        mode: AckMode,
        prefetch: int,
        version: Version,
    ) -> None:
        """Make a subscription; ``subscription_id`` may be missing on 1.0 only."""
        self.connection = connection
        self.destination = destination
        self.id = subscription_id
        self.mode = mode
        self.is_auto = mode is AckMode.AUTO
        self.prefetch = prefetch
        #: Deliveries that wait for ACK or NACK, oldest first, by their key in the ledger.
        self.unsettled: dict[str, Entry] = {}
        #: Messages of a topic that wait for this subscriber, and how many it has lost.
        self.backlog: deque[Entry] = deque()
        self.backlog_bytes = 0
        self.dropped = 0
        self._head = b"MESSAGE\n"
        if subscription_id is not None:
            self._head += header_line("subscription", subscription_id, version)

    def wants(self) -> bool:
        """Whether one more message can be delivered now."""
        return self.connection.has_room and (self.is_auto or len(self.unsettled) < self.prefetch)

    def deliver(self, entry: Entry) -> None:
        """Write a MESSAGE frame; unless the mode is auto the entry is unsettled from now on."""
        message = entry.message
        entry.deliveries += 1
        if self.is_auto:
            lines = f"message-id:{message.id}\n"
        else:
            lines = self.connection.ledger.add(entry, self)
        if entry.deliveries > 1:
            lines += f"redelivered:true\ndelivery-count:{entry.deliveries}\n"
        connection = self.connection
        connection.emit(self._head, lines.encode(), message.tail(connection.version))
