"""Effects of NACK on a message, by the setting of its queue."""

from __future__ import annotations

import pytest

from stompkit.server import DestinationConfig
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import MakeBroker, publish_all, stored, take_one
from tests.server.many_queues import numbered

QUEUE = "/queue/a"
DEAD = "/dlq/a"
POLICIES = ("requeue", "dead-letter", "discard", "requeue-then-dead-letter")
policies = pytest.mark.parametrize("nack", POLICIES)


def holder(broker: MemoryBroker, version: str = "1.2") -> MemoryClient:
    """Return a client that gets messages one by one."""
    client = broker.client(version)
    client.subscribe(QUEUE, ack="client-individual", prefetch_count="1")
    return client


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize(
    ("nack", "times", "dead"),
    [
        ("requeue", 20, []),
        ("dead-letter", 1, [b"x"]),
        ("discard", 1, []),
        ("requeue-then-dead-letter", 3, [b"x"]),
    ],
)
def test_a_message_is_delivered_until_the_policy_gives_it_up(
    broker_with: MakeBroker, version: str, nack: str, times: int, dead: list[bytes]
) -> None:
    broker = broker_with(nack=nack, max_deliveries=3)
    broker.client().publish(QUEUE, b"x")
    client = holder(broker, version)
    for _ in range(times):
        client.nack(take_one(client))
    back = client.bodies()
    assert back == ([b"x"] if nack == "requeue" else [])
    assert stored(broker, DEAD) == dead
    assert client.error is None


@policies
def test_requeue_false_is_heeded_unless_messages_are_discarded(
    broker_with: MakeBroker, nack: str
) -> None:
    broker = broker_with(nack=nack)
    broker.client().publish(QUEUE, b"x")
    client = holder(broker)
    client.nack(take_one(client), requeue="false")
    assert client.bodies() == []
    assert stored(broker, DEAD) == ([] if nack == "discard" else [b"x"])


@policies
@pytest.mark.parametrize("value", ["true", "True"])
def test_requeue_that_is_true_changes_nothing(
    broker_with: MakeBroker, nack: str, value: str
) -> None:
    broker = broker_with(nack=nack)
    broker.client().publish(QUEUE, b"x")
    client = holder(broker)
    client.nack(take_one(client), requeue=value)
    assert client.bodies() == ([b"x"] if nack.startswith("requeue") else [])


@policies
@pytest.mark.parametrize("value", ["", "0", "no"])
def test_requeue_that_is_neither_true_nor_false_is_refused(
    broker_with: MakeBroker, nack: str, value: str
) -> None:
    broker = broker_with(nack=nack)
    broker.client().publish(QUEUE, b"x")
    client = holder(broker)
    client.nack(take_one(client), requeue=value)
    assert client.error is not None
    assert client.error.headers["stompkit-code"] == "bad-header"
    assert stored(broker, QUEUE) == [b"x"]


@policies
def test_a_cumulative_nack_goes_for_all_of_it(broker_with: MakeBroker, nack: str) -> None:
    broker = broker_with(nack=nack)
    publish_all(broker.client(), QUEUE, numbered(1, 3))
    client = broker.client()
    client.subscribe(QUEUE, ack="client", prefetch_count="3")
    _, second, third = client.take("MESSAGE")
    client.nack(second)
    assert client.bodies() == (numbered(1, 2) if nack.startswith("requeue") else [])
    assert stored(broker, DEAD) == (numbered(1, 2) if nack == "dead-letter" else [])
    client.ack(third)
    client.close()
    assert stored(broker, QUEUE) == (numbered(1, 2) if nack.startswith("requeue") else [])


@policies
@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
def test_a_nack_of_a_transaction_counts_at_commit(
    broker_with: MakeBroker, nack: str, end: str
) -> None:
    broker = broker_with(nack=nack)
    broker.client().publish(QUEUE, b"x")
    client = holder(broker)
    message = take_one(client)
    client.send("BEGIN", transaction="t")
    client.nack(message, transaction="t", requeue="false")
    assert stored(broker, DEAD) == []
    client.send(end, transaction="t")
    dead = end == "COMMIT" and nack != "discard"
    assert stored(broker, DEAD) == ([b"x"] if dead else [])
    client.close()
    assert stored(broker, QUEUE) == ([] if end == "COMMIT" else [b"x"])


@policies
def test_the_loss_of_a_consumer_is_no_nack(broker_with: MakeBroker, nack: str) -> None:
    broker = broker_with(nack=nack, max_deliveries=1)
    broker.client().publish(QUEUE, b"x")
    for _ in range(3):
        client = holder(broker)
        assert client.bodies() == [b"x"]
        client.drop()
    assert stored(broker, QUEUE) == [b"x"]


@policies
def test_a_refused_message_makes_room_if_it_leaves_its_queue(
    broker_with: MakeBroker, nack: str
) -> None:
    table = DestinationConfig(name=QUEUE, max_queue_messages=1)
    broker = broker_with(nack=nack, destinations=(table,))
    producer = broker.client()
    producer.publish(QUEUE, b"1")
    client = holder(broker)
    client.nack(take_one(client))
    producer.publish(QUEUE, b"2", receipt="r")
    assert bool(producer.take("RECEIPT")) is not nack.startswith("requeue")


def test_each_queue_has_its_own_policy_and_the_last_table_that_matches_counts(
    broker_with: MakeBroker,
) -> None:
    tables = (
        DestinationConfig(name="/queue/>", nack="discard"),
        DestinationConfig(name="/queue/b.*", nack="dead-letter"),
        DestinationConfig(name="/queue/b.c", max_deliveries=2),
        DestinationConfig(name="/queue/b.d", nack="requeue"),
    )
    broker = broker_with(destinations=tables)
    client, producer = broker.client(), broker.client()
    for name in ("a", "b.c", "b.d"):
        client.subscribe(f"/queue/{name}", id=name, ack="client-individual")
        producer.publish(f"/queue/{name}", name.encode())
    for message in client.take("MESSAGE"):
        client.nack(message)
    assert client.bodies() == [b"b.d"]
    assert stored(broker, "/dlq/a") == []
    assert stored(broker, "/dlq/b.c") == [b"b.c"]


@policies
def test_topics_have_none_of_it(nack: str) -> None:
    broker = MemoryBroker()
    broker.broker.reload(broker.broker.config.changed(nack=nack))
    client = broker.client()
    client.subscribe("/topic/a", ack="client")
    client.publish("/topic/a", b"x")
    client.nack(take_one(client), requeue="false")
    assert client.take() == []
    assert list(broker.destinations) == ["/topic/a"]


def test_another_policy_goes_for_what_is_there_already(broker_with: MakeBroker) -> None:
    broker = broker_with(nack="requeue")
    broker.client().publish(QUEUE, b"x")
    client = holder(broker)
    client.nack(take_one(client))
    message = take_one(client)
    broker.broker.reload(broker.broker.config.changed(nack="discard"))
    client.nack(message)
    assert client.bodies() == []
    client.close()
    assert broker.destinations == {}
