"""Brokers in memory, with all that goes wrong between them and their clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stompkit.replication.frames import Packet
from tests.replica.simulation.world import World

__all__ = ["Broker", "Connection", "Delivery", "Faults", "Traits"]


@dataclass(slots=True)
class Faults:
    """How much goes wrong on the way; everything has a probability, and times are in seconds."""

    #: A message is lost for one of those who should hear it.
    loss: float = 0.0
    #: A message comes twice.
    repeats: float = 0.0
    #: A message is overtaken by others: it takes up to ``late_s`` longer.
    late: float = 0.0
    late_s: float = 3.0


@dataclass(frozen=True, slots=True)
class Traits:
    """What a broker is capable of."""

    #: Topics are kept for clients that are away, where those have a name.
    is_durable: bool = False
    #: What was not acknowledged is delivered again to a client that comes back.
    acknowledges: bool = False
    #: How long a message takes at least, in seconds.
    latency_s: float = 0.01


@dataclass(slots=True, eq=False)
class Delivery:
    """A message on its way to one client."""

    number: int
    destination: str
    packet: Packet
    subscription: _Subscription


@dataclass(slots=True, eq=False)
class _Subscription:
    """Somebody who hears a destination."""

    destination: str
    client: str
    connection: Connection | None
    #: What has to be delivered, or was and is not acknowledged; in the order in which it came.
    kept: dict[int, Delivery] = field(default_factory=dict)


class Broker:
    """A broker with topics. It knows nothing about what its messages are about."""

    def __init__(self, world: World, name: str, traits: Traits, faults: Faults) -> None:
        """Begin empty."""
        self._world = world
        self.name = name
        self.traits = traits
        self.faults = faults
        #: All that was ever sent, in messages.
        self.sent = 0
        #: Whether clients can connect.
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
        """Let a client in; raises ConnectionRefusedError while nobody can be."""
        if not self.is_up:
            raise ConnectionRefusedError(self.name)
        connection = Connection(self, client, on_message, on_lost)
        self._connections.append(connection)
        return connection

    def replace(self) -> None:
        """Put an empty broker in the place of this one: all connections and messages are gone."""
        self._world.tell(self.name, "replaced")
        self._subscriptions.clear()
        for connection in list(self._connections):
            connection.break_off()

    def subscribe(self, connection: Connection, destination: str) -> None:
        """Have a connection hear a destination; a durable one gets what it has missed."""
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
        """Take a message, and have it delivered to all who hear its destination."""
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
            # The connection may be another by then, or the subscription of a broker that is gone.
            if delivery.number not in subscription.kept or subscription.connection is not to:
                return
            if not self.traits.acknowledges:
                del subscription.kept[delivery.number]
            assert to is not None
            to.deliver(delivery)

        to = delivery.subscription.connection
        self._world.after(delay_s, arrive)

    def leave(self, connection: Connection) -> None:
        """Forget a connection; of its subscriptions only durable ones are kept."""
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
        """Let the client hear messages, and of the end, if it is not of its own doing."""
        self.broker = broker
        self.client = client
        self.is_open = True
        #: Nothing passes any more, and nobody has noticed it yet.
        self.is_severed = False
        self._on_message = on_message
        self._on_lost = on_lost

    def subscribe(self, destination: str) -> None:
        """Hear a destination."""
        if self.is_open and not self.is_severed:
            self.broker.subscribe(self, destination)

    def send(self, destination: str, packets: Sequence[Packet]) -> None:
        """Send messages."""
        if not self.is_open or self.is_severed:
            return
        for packet in packets:
            self.broker.publish(destination, packet)

    def acknowledge(self, delivery: Delivery) -> None:
        """Say that a message was processed."""
        if self.is_open and not self.is_severed:
            delivery.subscription.kept.pop(delivery.number, None)

    def deliver(self, delivery: Delivery) -> None:
        """Have a message arrive at the client."""
        if self.is_open and not self.is_severed:
            self._on_message(delivery)

    def close(self) -> None:
        """Go; the client knows."""
        if self.is_open:
            self.is_open = False
            self.broker.leave(self)

    def break_off(self) -> None:
        """End, and tell the client."""
        if self.is_open:
            self.close()
            self._on_lost()
