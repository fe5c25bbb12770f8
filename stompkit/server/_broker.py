"""The broker: its destinations, and the turn in which one chunk of input takes effect.

All that one chunk of octets brought is applied first; then :meth:`Broker.flush` pumps each
destination that was touched once, and writes to each connection that has output once.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from stompkit.frames import Frame, Version
from stompkit.server._config import BrokerConfig
from stompkit.server._destinations import Destination, Entry, Queue, Topic
from stompkit.server._errors import Refused
from stompkit.server._messages import Message

if TYPE_CHECKING:
    from stompkit.server._connection import Connection
    from stompkit.server._transactions import Settlement

__all__ = ["Broker"]

_KINDS: dict[str, type[Destination]] = {
    "/queue/": Queue,
    "/topic/": Topic,
    "/dlq/": Queue,
}


class Broker:
    """Routes messages between connections; knows no transport and no clock."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        """Make a broker without destinations."""
        self.config = BrokerConfig() if config is None else config
        self.destinations: dict[str, Destination] = {}
        self.connections: set[Connection] = set()
        #: Distinguishes this process's message and session ids from those of the one before.
        self._boot = secrets.token_hex(4)
        self._last_message = 0
        self._last_session = 0
        #: The time of this turn, on the clock of whoever calls :meth:`Connection.receive`.
        self.now = 0.0
        self._dirty: dict[Destination, None] = {}
        self._written: dict[Connection, None] = {}

    # Connections.

    def connected(self, connection: Connection) -> None:
        """Count a connection in; raises :class:`Refused` where there are too many."""
        if len(self.connections) >= self.config.max_connections:
            raise Refused(
                f"too many connections: at most {self.config.max_connections}",
                "too-many-connections",
            )
        self.connections.add(connection)

    def new_session(self) -> str:
        """A session identifier that no other session has."""
        self._last_session += 1
        return f"{self._boot}-{self._last_session}"

    # Destinations.

    def destination(self, name: str) -> Destination:
        """The destination of that name, made if it is not there yet.

        Raises :class:`Refused` for a name that says no kind, and where there are too many.
        """
        destination = self.destinations.get(name)
        if destination is not None:
            return destination
        kind = self.check_name(name)
        if len(self.destinations) >= self.config.max_destinations:
            raise Refused(
                f"too many destinations: at most {self.config.max_destinations}",
                "too-many-destinations",
            )
        destination = self.destinations[name] = kind(name, self.config)
        return destination

    def check_name(self, name: str) -> type[Destination]:
        """The kind of destination that a name stands for; raises :class:`Refused` for none."""
        if len(name.encode("utf-8", "surrogateescape")) > self.config.max_destination_bytes:
            raise Refused(
                f"destination name too long: at most {self.config.max_destination_bytes} octets",
                "bad-destination",
            )
        for prefix, kind in _KINDS.items():
            if name.startswith(prefix) and name != prefix:
                return kind
        raise Refused(
            f"destination {name[:100]!a} is unknown: names begin with {' or '.join(_KINDS)}",
            "unknown-destination",
        )

    def message(self, frame: Frame, version: Version) -> Message:
        """Make a message of a SEND frame."""
        self._last_message += 1
        return Message.from_send(frame, f"{self._boot}-{self._last_message}", version)

    # What frames do.

    def send(self, message: Message) -> None:
        """Put a message into its destination; raises :class:`Refused` if it can't be taken."""
        destination = self.destination(message.destination)
        try:
            destination.check_room(1, message.size)
        finally:
            self._dirty[destination] = None
        destination.put(message)

    def commit(self, messages: Iterable[Message], settlements: Iterable[Settlement]) -> None:
        """Apply a transaction; where one message can't be taken, :class:`Refused` and nothing."""
        wanted: dict[Destination, list[int]] = defaultdict(list)
        for message in messages:
            destination = self.destination(message.destination)
            self._dirty[destination] = None
            wanted[destination].append(message.size)
        for destination, sizes in wanted.items():
            destination.check_room(len(sizes), sum(sizes))
        for message in messages:
            self.destinations[message.destination].put(message)
        for settlement in settlements:
            self.settle(settlement)

    def settle(self, settlement: Settlement) -> None:
        """Apply an ACK or NACK."""
        for entry in settlement.entries:
            entry.holder = None
            subscription = entry.subscription
            assert subscription is not None  # only delivered entries are settled
            subscription.connection.ledger.discard(entry)
            self._dirty[subscription.destination] = None
        if settlement.accepted:
            for entry in settlement.entries:
                self._home(entry).settled(entry)
        else:
            self._nack(settlement)

    def _nack(self, settlement: Settlement) -> None:
        """Requeue, or move to the dead letters what was delivered often enough."""
        back: dict[Destination, list[Entry]] = defaultdict(list)
        for entry in settlement.entries:
            home = self._home(entry)
            if not isinstance(home, Queue):
                continue
            if settlement.requeue and entry.deliveries < self.config.max_deliveries:
                back[home].append(entry)
            else:
                self._bury(home, entry, "max-deliveries" if settlement.requeue else "rejected")
        for destination, entries in back.items():
            destination.returned(entries)

    def _bury(self, home: Queue, entry: Entry, reason: str) -> None:
        """Move a message to the dead letters of its queue; dead letters themselves are dropped."""
        home.settled(entry)
        if home.name.startswith("/dlq/"):
            return
        message = entry.message.moved(
            "/dlq/" + home.name.removeprefix("/queue/"),
            {
                "original-destination": home.name,
                "dead-letter-reason": reason,
                "dead-letter-deliveries": str(entry.deliveries),
            },
        )
        try:
            self.send(message)
        except Refused:
            # Full dead letters must not fail the client that said NACK; the message waits for
            # its turn in the queue that it came from.
            home.put(entry.message)

    @staticmethod
    def _home(entry: Entry) -> Destination:
        assert entry.subscription is not None  # only delivered entries are settled
        return entry.subscription.destination

    def give_back(self, entries: Iterable[Entry]) -> None:
        """Return what a connection that has ended did not settle."""
        back: dict[Destination, list[Entry]] = defaultdict(list)
        for entry in entries:
            back[self._home(entry)].append(entry)
        for destination, returned in back.items():
            destination.returned(returned)
            self._dirty[destination] = None

    # The turn.

    def touch(self, destination: Destination) -> None:
        """Have a destination pumped at the end of the turn."""
        self._dirty[destination] = None

    def wrote(self, connection: Connection) -> None:
        """Have a connection's output written at the end of the turn."""
        self._written[connection] = None

    def flush(self) -> None:
        """End the turn: deliver and write until nothing more can be done now."""
        while self._dirty or self._written:
            dirty, self._dirty = self._dirty, {}
            for destination in dirty:
                destination.pump()
                self._forget_if_idle(destination)
            written, self._written = self._written, {}
            for connection in written:
                connection.write_out()

    def _forget_if_idle(self, destination: Destination) -> None:
        # A topic may have been forgotten while a delivery of it was unsettled; what bears its
        # name now is another one.
        if destination.is_idle and self.destinations.get(destination.name) is destination:
            del self.destinations[destination.name]
