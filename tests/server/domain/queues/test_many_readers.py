"""Fan-out to hundreds of subscribers is written in parts: other clients are served between."""

from __future__ import annotations

from stompkit.server import BrokerConfig
from stompkit.testing.memory import MemoryBroker, MemoryClient

TOPIC = "/topic/t"
QUEUE = "/queue/q"
READERS = 300


def crowded() -> tuple[MemoryBroker, list[MemoryClient]]:
    """Return a broker, and many clients that have subscribed to the topic."""
    broker = MemoryBroker(BrokerConfig(max_connections_per_address=2 * READERS))
    readers = [broker.client() for _ in range(READERS)]
    for reader in readers:
        reader.subscribe(TOPIC)
    return broker, readers


def test_others_are_served_before_the_last_of_many_has_its_copy() -> None:
    broker, readers = crowded()
    sender = broker.client()
    sender.publish(TOPIC, b"x")
    assert 0 < sum(bool(reader.bodies()) for reader in readers) < READERS / 2
    sender.publish(QUEUE, b"y", receipt="r")
    assert sender.take("RECEIPT")
    assert not readers[-1].bodies()
    broker.clock.advance(0.0)
    assert all(reader.bodies() == [b"x"] for reader in readers[-1:])


def test_many_have_every_message_once_and_in_order() -> None:
    broker, readers = crowded()
    sender = broker.client()
    bodies = [b"%d" % number for number in range(20)]
    for body in bodies:
        sender.publish(TOPIC, body)
    for _ in range(READERS):
        broker.clock.advance(0.0)
    assert [reader.bodies() for reader in readers] == [bodies] * READERS


def test_who_comes_again_before_it_was_written_to_loses_nothing() -> None:
    broker, readers = crowded()
    broker.client().publish(TOPIC, b"x")
    last = readers[-1]
    last.publish(QUEUE, b"y", receipt="r")
    last.send("DISCONNECT", receipt="s")
    assert last.bodies() == [b"x"]


def test_who_leaves_before_it_was_written_to_is_in_nobodys_way() -> None:
    broker, readers = crowded()
    broker.client().publish(TOPIC, b"x")
    for reader in readers[100:200]:
        reader.close()
    for _ in range(READERS):
        broker.clock.advance(0.0)
    rest = [*readers[:100], *readers[200:]]
    assert [reader.bodies() for reader in rest] == [[b"x"]] * len(rest)
    assert not broker.clock.getDelayedCalls()


def test_a_broker_that_is_reset_goes_on_with_as_many() -> None:
    broker, readers = crowded()
    broker.client().publish(TOPIC, b"x")
    broker.broker.reset()
    assert all(reader.bodies() == [b"x"] for reader in readers)
    again = [broker.client() for _ in range(READERS)]
    for reader in again:
        reader.subscribe(TOPIC)
    broker.client().publish(TOPIC, b"z")
    for _ in range(READERS):
        broker.clock.advance(0.0)
    assert all(reader.bodies() == [b"z"] for reader in again)
