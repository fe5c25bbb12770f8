"""Brokers in memory, with faults between them and their clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stompkit.replication.model.frames import Packet
from tests.replica.simulation.world import World

__all__ = ["Broker", "Connection", "Delivery", "Faults", "Traits"]


@dataclass(slots=True)
class Faults:
    """Rates of the faults on the network: probabilities, and times in seconds."""

    #: A message is lost for one of its subscribers.
    loss: float = 0.0
    #: A message is delivered twice.
    repeats: float = 0.0
    #: A message is overtaken by others: it takes up to ``late_s`` longer.
    late: float = 0.0
    late_s: float = 3.0


@dataclass(frozen=True, slots=True)
class Traits:
    """The capabilities of a broker."""

    #: Topics are kept for named clients that are offline.
    is_durable: bool = False
    #: Unacknowledged messages are redelivered to a client that reconnects.
    acknowledges: bool = False
    #: Minimum latency of a message, in seconds.
    latency_s: float = 0.01


@dataclass(slots=True, eq=False)
class Delivery:
    """A message in flight to one client."""

    number: int
    destination: str
    packet: Packet
    subscription: _Subscription


@dataclass(slots=True, eq=False)
class _Subscription:
    """A subscription of a client to a destination."""

    destination: str
    client: str
    connection: Connection | None
    #: Messages to be delivered, or delivered and not acknowledged, in their order.
    kept: dict[int, Delivery] = field(default_factory=dict)


class Broker:
    """A broker with topics, which does not parse the messages."""

    def __init__(self, world: World, name: str, traits: Traits, faults: Faults) -> None:
        """Start empty."""
        self._world = world
        self.name = name
        self.traits = traits
        self.faults = faults
        #: Number of all sent messages.
        self.sent = 0
        #: True if clients can connect.
        self.is_up = True
        self._numbers = 0
        self._connections: list[Connection] = []
        self._subscriptions: dict[str, list[_Subscription]] = {}

    def connect(
        self,
        client: str,
        on_message: Callable[[Delivery], object],
        on_lost: Callable[[], object],
    ) -> Connection:
        """Accept a client; raise ConnectionRefusedError while the broker is down."""
        if not self.is_up:
            raise ConnectionRefusedError(self.name)
        connection = Connection(self, client, on_message, on_lost)
        self._connections.append(connection)
        return connection

    def replace(self) -> None:
        """Replace this broker by an empty one: all connections and messages are lost."""
        self._world.tell(self.name, "replaced")
        self._subscriptions.clear()
        for connection in list(self._connections):
            connection.break_off()

    def subscribe(self, connection: Connection, destination: str) -> None:
        """Subscribe a connection to a destination; a durable one gets its missed messages."""
        found = self._subscriptions.setdefault(destination, [])
        for each in found:
            if each.connection is connection:
                return
            if self.traits.is_durable and each.client == connection.client:
                each.connection = connection
                for delivery in each.kept.values():
                    self._hand_over(delivery, self.traits.latency_s)
                return
        found.append(_Subscription(destination, connection.client, connection))

    def publish(self, destination: str, packet: Packet) -> None:
        """Accept a message, and deliver it to all subscribers of its destination."""
        self.sent += 1
        world, faults = self._world, self.faults
        for subscription in self._subscriptions.get(destination, ()):
            if world.chance(faults.loss):
                world.tell(self.name, "lost", to=subscription.client, message=self.sent)
                continue
            for _ in range(2 if world.chance(faults.repeats) else 1):
                self._numbers += 1
                delivery = Delivery(self._numbers, destination, packet, subscription)
                subscription.kept[delivery.number] = delivery
                late_s = world.random.uniform(0, faults.late_s) if world.chance(faults.late) else 0
                if subscription.connection is not None:
                    self._hand_over(delivery, self.traits.latency_s + late_s)

    def _hand_over(self, delivery: Delivery, delay_s: float) -> None:
        def arrive() -> None:
            subscription = delivery.subscription
            # The connection may have changed, or the broker may have been replaced.
            if delivery.number not in subscription.kept or subscription.connection is not to:
                return
            if not self.traits.acknowledges:
                del subscription.kept[delivery.number]
            assert to is not None
            to.deliver(delivery)

        to = delivery.subscription.connection
        self._world.after(delay_s, arrive)

    def leave(self, connection: Connection) -> None:
        """Remove a connection; only its durable subscriptions are kept."""
        self._connections.remove(connection)
        for destination, subscriptions in list(self._subscriptions.items()):
            for each in subscriptions:
                if each.connection is connection:
                    each.connection = None
            if not self.traits.is_durable:
                left = [each for each in subscriptions if each.connection is not None]
                self._subscriptions[destination] = left


class Connection:
    """A client's connection to a broker."""

    def __init__(
        self,
        broker: Broker,
        client: str,
        on_message: Callable[[Delivery], object],
        on_lost: Callable[[], object],
    ) -> None:
        """Connect the client's handlers of messages, and of an end that it did not request."""
        self.broker = broker
        self.client = client
        self.is_open = True
        #: The connection passes nothing any more, but has not ended.
        self.is_severed = False
        self._on_message = on_message
        self._on_lost = on_lost

    def subscribe(self, destination: str) -> None:
        """Subscribe to a destination."""
        if self.is_open and not self.is_severed:
            self.broker.subscribe(self, destination)

    def send(self, destination: str, packets: Sequence[Packet]) -> None:
        """Send messages."""
        if not self.is_open or self.is_severed:
            return
        for packet in packets:
            self.broker.publish(destination, packet)

    def acknowledge(self, delivery: Delivery) -> None:
        """Acknowledge a message."""
        if self.is_open and not self.is_severed:
            delivery.subscription.kept.pop(delivery.number, None)

    def deliver(self, delivery: Delivery) -> None:
        """Deliver a message to the client."""
        if self.is_open and not self.is_severed:
            self._on_message(delivery)

    def close(self) -> None:
        """Close the connection without notifying the client."""
        if self.is_open:
            self.is_open = False
            self.broker.leave(self)

    def break_off(self) -> None:
        """Close the connection, and notify the client."""
        if self.is_open:
            self.close()
            self._on_lost()
