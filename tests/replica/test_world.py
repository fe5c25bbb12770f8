"""The simulated world behaves as real brokers do, and depends on its seed only."""

from __future__ import annotations

from functools import partial

import pytest

from stompkit.replication.model.frames import Packet
from tests.replica.simulation.network import (
    Broker,
    Connection,
    Delivery,
    Faults,
    Traits,
)
from tests.replica.simulation.ports import Port
from tests.replica.simulation.world import World

TOPIC = "/topic/t"


class Client:
    """A subscriber of a topic that records the messages."""

    def __init__(self, world: World, broker: Broker, name: str) -> None:
        """Connect and subscribe."""
        self.world = world
        self.name = name
        self.heard: list[str] = []
        self.deliveries: list[Delivery] = []
        self.lost = 0
        self.connect(broker)

    def connect(self, broker: Broker) -> None:
        """Connect, and subscribe."""
        self.connection: Connection = broker.connect(self.name, self._take, self._lose)
        self.connection.subscribe(TOPIC)

    def say(self, text: str) -> None:
        """Publish a message."""
        self.connection.send(TOPIC, [Packet({}, text.encode())])

    def acknowledge(self) -> None:
        """Acknowledge all received messages."""
        for delivery in self.deliveries:
            self.connection.acknowledge(delivery)

    def _take(self, delivery: Delivery) -> None:
        text = delivery.packet.body.decode()
        self.heard.append(text)
        self.deliveries.append(delivery)
        self.world.tell(self.name, "heard", text=text)

    def _lose(self) -> None:
        self.lost += 1


def broker_in(world: World, traits: Traits | None = None, faults: Faults | None = None) -> Broker:
    return Broker(world, "broker", traits or Traits(), faults or Faults())


def test_a_message_is_heard_by_all_in_order() -> None:
    world = World(1)
    broker = broker_in(world)
    one, other = Client(world, broker, "one"), Client(world, broker, "other")
    one.say("a")
    one.say("b")
    assert not other.heard, "it takes its time"
    assert world.run_until_idle(1)
    assert one.heard == other.heard == ["a", "b"]


def test_a_client_that_is_away_misses_messages_of_a_topic_that_is_not_durable() -> None:
    world = World(1)
    broker = broker_in(world)
    one, other = Client(world, broker, "one"), Client(world, broker, "other")
    other.connection.close()
    one.say("a")
    world.run(1)
    other.connect(broker)
    world.run(1)
    assert other.heard == []


def test_a_client_that_is_away_finds_messages_of_a_durable_topic() -> None:
    world = World(1)
    broker = broker_in(world, Traits(is_durable=True))
    one, other = Client(world, broker, "one"), Client(world, broker, "other")
    other.connection.close()
    one.say("a")
    world.run(1)
    other.connect(broker)
    world.run(1)
    assert other.heard == ["a"]
    other.connection.close()
    other.connect(broker)
    world.run(1)
    assert other.heard == ["a"], "without acknowledgements it is gone once it was delivered"


def test_what_was_not_acknowledged_comes_again() -> None:
    world = World(1)
    broker = broker_in(world, Traits(is_durable=True, acknowledges=True))
    one, other = Client(world, broker, "one"), Client(world, broker, "other")
    one.say("a")
    world.run(1)
    other.connection.close()
    other.connect(broker)
    world.run(1)
    assert other.heard == ["a", "a"]
    other.acknowledge()
    other.connection.close()
    other.connect(broker)
    world.run(1)
    assert other.heard == ["a", "a"]


def test_a_broker_that_is_replaced_has_nothing_and_tells_its_clients() -> None:
    world = World(1)
    broker = broker_in(world, Traits(is_durable=True))
    one, other = Client(world, broker, "one"), Client(world, broker, "other")
    one.say("a")
    broker.replace()
    world.run(1)
    assert one.lost == other.lost == 1
    other.connect(broker)
    world.run(1)
    assert other.heard == []
    broker.is_up = False
    with pytest.raises(ConnectionRefusedError):
        one.connect(broker)


def test_nothing_passes_a_connection_that_is_severed_and_nobody_is_told() -> None:
    world = World(1)
    broker = broker_in(world)
    one, other = Client(world, broker, "one"), Client(world, broker, "other")
    other.connection.is_severed = True
    one.say("a")
    other.say("b")
    world.run(1)
    assert (one.heard, other.heard, other.lost) == (["a"], [], 0)


@pytest.mark.parametrize(
    ("faults", "least", "most"),
    [(Faults(loss=0.5), 1, 99), (Faults(repeats=0.5), 101, 199), (Faults(late=0.5), 100, 100)],
)
def test_messages_are_lost_repeated_and_overtaken(faults: Faults, least: int, most: int) -> None:
    world = World(1)
    broker = broker_in(world, faults=faults)
    one, other = Client(world, broker, "one"), Client(world, broker, "other")
    texts = [f"{number:03}" for number in range(100)]
    for text in texts:
        one.say(text)
        world.run(0.001)
    world.run(10)
    assert least <= len(other.heard) <= most
    assert (other.heard == sorted(other.heard)) == (faults.late == 0)


class Owner:
    """An owner of a port."""

    def __init__(self) -> None:
        """Start empty."""
        self.told: list[str] = []

    def on_connected(self, port: int) -> None:
        """Record it."""
        self.told.append("connected")

    def on_disconnected(self, port: int) -> None:
        """Record it."""
        self.told.append("disconnected")

    def on_arrival(self, port: int) -> None:
        """Record it."""
        self.told.append("arrival")


def test_a_port_connects_again_until_it_is_closed() -> None:
    world = World(1)
    broker, owner = broker_in(world), Owner()
    port = Port(world, broker, "one", 0)
    port.open(owner)
    broker.is_up = False
    broker.replace()
    world.run(10)
    assert owner.told == ["connected", "disconnected"]
    broker.is_up = True
    world.run(10)
    assert owner.told == ["connected", "disconnected", "connected"]
    broker.replace()
    port.close()
    world.run(10)
    assert owner.told == ["connected", "disconnected", "connected", "disconnected"]


def test_a_port_that_was_severed_finds_out_or_goes_on() -> None:
    world = World(1)
    broker, owner = broker_in(world), Owner()
    port = Port(world, broker, "one", 0)
    port.open(owner)
    port.sever()
    port.mend(is_noticed=False)
    world.run(10)
    assert owner.told == ["connected"]
    port.sever()
    port.mend(is_noticed=True)
    world.run(10)
    assert owner.told == ["connected", "disconnected", "connected"]


def lines_of(seed: int) -> list[str]:
    """Return the trace of a world with faults of every kind."""
    world = World(seed, is_recording=True)
    faults = Faults(loss=0.2, repeats=0.2, late=0.2)
    broker = broker_in(world, Traits(is_durable=True, acknowledges=True), faults)
    clients = [Client(world, broker, name) for name in ("one", "other", "third")]
    for number in range(50):
        client = world.random.choice(clients)
        text = f"{number} {world.random.random()}"
        world.after(world.random.uniform(0, 10), partial(client.say, text))
    world.after(5, broker.replace)
    for client in clients:
        world.after(world.random.uniform(5, 6), partial(client.connect, broker))
    assert world.run_until_idle(100)
    return world.lines


def test_a_seed_is_all_that_a_world_depends_on() -> None:
    lines = lines_of(7)
    assert len(lines) > 100
    assert lines == lines_of(7)
    assert lines != lines_of(8)
