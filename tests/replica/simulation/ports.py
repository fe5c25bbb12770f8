"""A node's connection to one broker: reconnecting, with an inbox."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Protocol

from stompkit.replication.model.frames import Packet
from tests.replica.simulation.network import Broker, Connection, Delivery
from tests.replica.simulation.world import World

__all__ = ["Owner", "Port"]

#: Range of the delay before a reconnect, in seconds.
RECONNECT_S = (0.2, 2.0)


class Owner(Protocol):
    """The owner of ports, which have numbers."""

    def on_connected(self, port: int) -> None:
        """Handle a new connection."""

    def on_disconnected(self, port: int) -> None:
        """Handle the loss of the connection."""

    def on_arrival(self, port: int) -> None:
        """Handle a message in the inbox."""


class Port:
    """One port: after ``open`` it reconnects until it is closed."""

    def __init__(self, world: World, broker: Broker, client: str, number: int) -> None:
        """Start closed."""
        self.broker = broker
        self.inbox: deque[Delivery] = deque()
        self.connection: Connection | None = None
        self._world = world
        self._client = client
        self._number = number
        self._owner: Owner | None = None
        #: Distinguishes later callbacks from those before the last close.
        self._opened = 0

    def open(self, owner: Owner) -> None:
        """Connect, and retry until that works."""
        self._owner = owner
        self._opened += 1
        self._connect(self._opened)

    def close(self) -> None:
        """Disconnect for good."""
        self._opened += 1
        self._owner = None
        self.inbox.clear()
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def subscribe(self, destinations: Iterable[str]) -> None:
        """Subscribe to more destinations."""
        if self.connection is not None:
            for each in destinations:
                self.connection.subscribe(each)

    def send(self, destination: str, packets: list[Packet]) -> None:
        """Send, if connected."""
        if self.connection is not None:
            self.connection.send(destination, packets)

    def sever(self) -> None:
        """Block the connection silently."""
        if self.connection is not None:
            self.connection.is_severed = True

    def mend(self, *, is_noticed: bool) -> None:
        """Unblock it: either the connection breaks, or it passes messages again."""
        connection = self.connection
        if connection is not None and connection.is_severed:
            connection.is_severed = False
            if is_noticed:
                connection.break_off()

    def _connect(self, opened: int) -> None:
        owner = self._owner
        if opened != self._opened or owner is None:
            return
        try:
            self.connection = self.broker.connect(
                self._client,
                self._on_message,
                partial(self._on_lost, opened),
            )
        except ConnectionRefusedError:
            self._again(opened)
            return
        owner.on_connected(self._number)

    def _again(self, opened: int) -> None:
        delay_s = self._world.random.uniform(*RECONNECT_S)
        self._world.after(delay_s, lambda: self._connect(opened))

    def _on_message(self, delivery: Delivery) -> None:
        self.inbox.append(delivery)
        if self._owner is not None:
            self._owner.on_arrival(self._number)

    def _on_lost(self, opened: int) -> None:
        if opened != self._opened or self._owner is None:
            return
        self.connection = None
        self.inbox.clear()
        owner = self._owner
        self._again(opened)
        owner.on_disconnected(self._number)
