"""Queues, exchanges and bindings of kombu's channel: what ends them, and what keeps messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kombu.entity import Exchange, Queue
from kombu.messaging import Producer

from stompkit.testing import RunningBroker
from tests.kombu.conftest import Connect
from tests.kombu.consuming import LONG_S, Reader

#: Every request that ends something, but not the messages of a queue.
ENDING: dict[str, Callable[[Any, Any], object]] = {
    "queue if empty": lambda queue, exchange: queue.delete(if_empty=True),
    "queue if unused": lambda queue, exchange: queue.delete(if_unused=True),
    "queue if both": lambda queue, exchange: queue.delete(if_unused=True, if_empty=True),
    "exchange": lambda queue, exchange: exchange.delete(),
    "exchange if unused": lambda queue, exchange: exchange.delete(if_unused=True),
    "binding": lambda queue, exchange: queue.unbind_from(exchange, "key"),
    "bindings": lambda queue, exchange: queue.queue_unbind("key"),
}


@pytest.mark.parametrize("ending", ENDING)
def test_only_purge_and_unconditional_delete_drop_messages(
    connect: Connect, name: str, ending: str
) -> None:
    with connect() as connection:
        channel = connection.channel()
        exchange = Exchange(name, "direct")(channel)
        queue = Queue(f"{name}.q", exchange, "key")(channel)
        queue.declare()
        producer = Producer(channel, exchange)
        for number in range(3):
            producer.publish(number, routing_key="key")
        ENDING[ending](queue, exchange)
        reader = Reader(connect(), Queue(f"{name}.q"), no_ack=True)
        reader.wait(3)
        assert reader.bodies == [0, 1, 2]


def test_an_exchange_that_is_deleted_has_no_bindings(connect: Connect, name: str) -> None:
    with connect() as connection:
        channel = connection.channel()
        exchange = Exchange(name, "direct")(channel)
        queue = Queue(f"{name}.q", exchange, "key")(channel)
        queue.declare()
        exchange.delete(if_unused=True)
        Producer(channel, exchange).publish("bound", routing_key="key")
        exchange.delete()
        exchange.delete()
        exchange.declare()
        Producer(channel, exchange).publish("not bound", routing_key="key")
        queue.declare()
        Producer(channel, exchange).publish("bound again", routing_key="key")
        reader = Reader(connect(), Queue(f"{name}.q"), no_ack=True)
        reader.wait(2)
        assert reader.bodies == ["bound", "bound again"]


def test_a_queue_fed_by_topics_ends_only_on_its_conditions(connect: Connect, name: str) -> None:
    exchange = Exchange(name, "fanout")
    with connect() as connection:
        reader = Reader(connection, Queue(f"{name}.q", exchange, auto_delete=True), no_ack=True)
        publish = Producer(connect().channel(), exchange).publish
        channel: Any = connection.channel()
        channel.queue_delete(f"{name}.q", if_unused=True)
        publish("used")
        reader.wait(1)
        reader.channel.queue_declare(f"{name}.kept", auto_delete=True)
        reader.channel.queue_bind(f"{name}.kept", name)
        publish("waits")
        reader.wait(2)
        channel.queue_delete(f"{name}.kept", if_empty=True)
        kept = channel.basic_get(f"{name}.kept", no_ack=True)
        assert kept is not None
        assert kept.decode() == "waits"
        channel.queue_delete(f"{name}.kept", if_unused=True, if_empty=True)
        assert list(connection.transport.private) == [f"{name}.q"]


def test_a_queue_fed_by_topics_is_bound_again_after_a_reconnection(
    broker: RunningBroker, connect: Connect, name: str
) -> None:
    exchange = Exchange(name, "fanout")
    queue = Queue(f"{name}.q", exchange, exclusive=True)
    connection = connect()
    reader = Reader(connection, queue, no_ack=True)
    broker.restart(kill=broker.name == "stompkit")
    with pytest.raises(ConnectionError):
        connection.drain_events(timeout=LONG_S)
    connection.ensure_connection(max_retries=60, interval_start=0.1)
    reader.consumer.revive(connection.channel())
    reader.consumer.consume()
    assert list(connection.transport.private) == [f"{name}.q"]
    Producer(connect().channel(), exchange).publish("again", routing_key="any")
    reader.wait(1)
    assert reader.bodies == ["again"]


@pytest.mark.parametrize("deletes", [False, True], ids=["unbind", "delete exchange"])
def test_a_queue_fed_by_topics_gets_nothing_from_ended_bindings(
    connect: Connect, name: str, *, deletes: bool
) -> None:
    exchanges = [Exchange(f"{name}.{kind}", kind) for kind in ("topic", "fanout", "direct")]
    with connect() as connection:
        reader = Reader(
            connection, Queue(f"{name}.q", exchanges[0], "#", auto_delete=True), no_ack=True
        )
        queues: Any = reader.consumer.queues
        queue = queues[0]
        for exchange, key in zip(exchanges, ("a.*", "", "a.b"), strict=True):
            exchange(reader.channel).declare()
            queue.bind_to(exchange, key)
        producer = Producer(connect().channel())

        def publish(*wanted: str) -> None:
            """Send to each exchange and then wait for the messages that are wanted."""
            for exchange in exchanges:
                producer.publish(
                    exchange.type, exchange=exchange, routing_key="a.b", declare=[exchange]
                )
            before = len(reader.messages)
            reader.wait(before + len(wanted))
            assert sorted(reader.bodies[before:]) == sorted(wanted)

        publish("topic", "fanout", "direct")
        # Two bindings match; the first of them ends.
        queue.unbind_from(exchanges[0], "#")
        publish("topic", "fanout", "direct")
        for ended, rest in ((0, ("fanout", "direct")), (2, ("fanout",))):
            if deletes:
                exchanges[ended](reader.channel).delete()
            else:
                queue.unbind_from(exchanges[ended], ("a.*", "", "a.b")[ended])
            publish(*rest)
        assert reader.gets_nothing_more()


def test_an_old_tag_acknowledges_no_later_messages(connect: Connect, name: str) -> None:
    with connect() as connection:
        for number in range(4):
            Producer(connection.channel()).publish(number, routing_key=name)
        reader = Reader(connection, Queue(name))
        first, second, *_ = reader.wait(4)
        first.ack()
        for tag in (first.delivery_tag, "unknown"):
            reader.channel.basic_ack(tag, multiple=True)
            assert len(reader.channel.qos.incoming) == 3
        reader.channel.basic_ack(second.delivery_tag, multiple=True)
        assert len(reader.channel.qos.incoming) == 2
