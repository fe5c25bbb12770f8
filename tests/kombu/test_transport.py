"""kombu over STOMP: the behaviour that its users rely on, on each broker."""

from __future__ import annotations

import hashlib
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.messaging import Producer

from stompkit.testing import RunningBroker
from stompkit.testing.launching.polling import wait_until
from tests.kombu.conftest import Connect, url_of
from tests.kombu.consuming import LONG_S, Reader
from tests.server.secured import secured


def publish(connection: Connection, queue: str, *bodies: Any, **options: Any) -> None:
    """Send to a queue by its name."""
    producer = Producer(connection.channel())
    for body in bodies:
        producer.publish(body, routing_key=queue, **options)


def test_a_message_comes_as_it_was_sent(connect: Connect, name: str) -> None:
    with connect() as connection:
        headers = {"größe": ["x", 1, None], "a:b": "line\nline \\ end", "task": "t"}
        publish(
            connection,
            name,
            {"text": "ü\0"},
            headers=headers,
            correlation_id="c",
            reply_to="r",
            priority=3,
        )
        reader = Reader(connection, Queue(name))
        (message,) = reader.wait(1)
        assert message.decode() == {"text": "ü\0"}
        assert message.headers == headers
        assert message.content_type == "application/json"
        assert message.content_encoding == "utf-8"
        assert message.properties["correlation_id"] == "c"
        assert message.properties["reply_to"] == "r"
        assert message.properties["priority"] == 3
        assert message.delivery_info["routing_key"] == name
        assert message.delivery_info["redelivered"] is False
        message.ack()
        assert reader.gets_nothing_more()


def test_bodies_are_octets_of_any_kind_and_of_some_length(connect: Connect, name: str) -> None:
    body = bytes(range(256)) * 8_000
    with connect() as connection:
        octets = {"content_type": "application/data", "content_encoding": "binary"}
        publish(connection, name, body, b"", compression=None, **octets)
        publish(connection, name, {"n": list(range(10_000))}, compression="gzip")
        first, second, third = Reader(connection, Queue(name)).wait(3)
        assert hashlib.sha256(first.body).digest() == hashlib.sha256(body).digest()
        assert bytes(second.body) == b""
        assert third.decode() == {"n": list(range(10_000))}
        for message in (first, second, third):
            message.ack()


def test_other_programs_can_read_and_write(
    broker: RunningBroker, connect: Connect, name: str
) -> None:
    with connect() as connection, broker.client() as client:
        headers = {"content-type": "application/json", "x": "y"}
        client.send(broker.queue(), b'{"a": 1}', headers=headers)
        reader = Reader(connection, Queue(name))
        (message,) = reader.wait(1)
        assert message.decode() == {"a": 1}
        assert message.headers["x"] == "y"
        message.ack()
        reader.consumer.cancel()
        publish(connection, name, [1, 2], headers={"h": 1}, expiration=60)
        client.subscribe(broker.queue())
        frame = client.receive(LONG_S)
        assert frame.body == b"[1, 2]"
        assert frame.headers["content-type"].startswith("application/json")
        assert frame.headers["kombu-header-h"] == "1"
        # A duration needs no agreement of clocks.
        reads_clock = broker.name == "activemq"
        assert frame.headers.get("expiration") == (None if reads_clock else "60000")
        assert ("expires" in frame.headers) is reads_clock


def test_what_is_not_acknowledged_comes_again_when_the_connection_has_ended(
    connect: Connect, name: str
) -> None:
    first = connect()
    publish(first, name, *range(3))
    messages = Reader(first, Queue(name)).wait(3)
    messages[1].ack()
    first.release()
    again = Reader(connect(), Queue(name))
    for message in again.wait(2):
        assert message.delivery_info["redelivered"] is True
        message.ack()
    assert sorted(again.bodies) == [0, 2]
    assert again.gets_nothing_more()


def test_a_message_is_put_back_or_refused(connect: Connect, name: str) -> None:
    with connect() as connection:
        publish(connection, name, "back", "gone")
        reader = Reader(connection, Queue(name))
        back, gone = reader.wait(2)
        gone.reject()
        back.requeue()
        again = reader.wait(3)[2]
        assert again.decode() == "back"
        assert again.delivery_info["redelivered"] is True
        again.ack()
        assert reader.gets_nothing_more()


def test_prefetch_bounds_what_is_delivered_and_can_be_raised(connect: Connect, name: str) -> None:
    with connect() as connection:
        publish(connection, name, *range(12))
        reader = Reader(connection, Queue(name), prefetch=2)
        reader.wait(2)
        assert reader.gets_nothing_more()
        reader.channel.basic_qos(0, 3, False)
        reader.wait(3)
        assert reader.gets_nothing_more()
        # Higher limits than the one that was set when the consumer began.
        for number in range(4, 10):
            reader.channel.basic_qos(0, number, False)
            reader.wait(number)
        reader.channel.basic_qos(0, 2, False)
        for message in reader.messages[:8]:
            message.ack()
        assert reader.gets_nothing_more() or len(reader.messages) <= 10
        reader.messages[8].ack()
        reader.messages[9].ack()
        for message in reader.wait(12)[10:]:
            message.ack()
        assert reader.bodies == list(range(12))


def test_transient_messages_make_queues_that_others_can_read(connect: Connect, name: str) -> None:
    with connect() as one, connect() as two:
        publish(one, name, "x", delivery_mode=1)
        Reader(two, Queue(name)).wait(1)[0].ack()


def test_two_consumers_share_a_queue(connect: Connect, name: str) -> None:
    with connect() as one, connect() as two:
        first = Reader(one, Queue(name), prefetch=1)
        second = Reader(two, Queue(name), prefetch=1)
        publish(one, name, "a", "b")
        first.wait(1)
        second.wait(1)
        assert sorted(first.bodies + second.bodies) == ["a", "b"]
        first.messages[0].ack()
        second.messages[0].ack()


def test_a_consumer_that_is_cancelled_gives_back_what_it_has_not_had(
    connect: Connect, name: str
) -> None:
    with connect() as one, connect() as two:
        publish(one, name, *range(6))
        first = Reader(one, Queue(name), prefetch=4)
        first.wait(1)
        first.consumer.cancel()
        # The consumer can still acknowledge its messages; some brokers hold back the others until
        # then.
        for message in first.messages:
            message.ack()
        second = Reader(two, Queue(name))
        left = 6 - len(first.messages)
        for message in second.wait(left):
            message.ack()
        assert sorted(first.bodies + second.bodies) == list(range(6))


def test_a_channel_that_is_closed_gives_everything_back(connect: Connect, name: str) -> None:
    with connect() as connection:
        publish(connection, name, *range(4))
        first = Reader(connection, Queue(name), prefetch=3)
        first.wait(2)
        first.channel.close()
        second = Reader(connection, Queue(name))
        for message in second.wait(4):
            message.ack()
        assert sorted(second.bodies) == [0, 1, 2, 3]


def test_a_fanout_exchange_reaches_everybody(connect: Connect, name: str) -> None:
    exchange = Exchange(name, "fanout")
    with connect() as one, connect() as two, connect() as three:
        readers = [
            Reader(each, Queue(f"{name}.{number}", exchange, auto_delete=True), no_ack=True)
            for number, each in enumerate((one, two))
        ]
        Producer(three.channel(), exchange).publish({"a": 1}, routing_key="whatever")
        for reader in readers:
            reader.wait(1)
            assert reader.bodies == [{"a": 1}]
            assert reader.gets_nothing_more()


def test_a_topic_exchange_goes_by_patterns(connect: Connect, name: str) -> None:
    exchange = Exchange(name, "topic")
    patterns = {"all": "#", "tasks": "task.#", "ends": "*.done", "middle": "task.#.done"}
    with connect() as one, connect() as two:
        readers = {
            each: Reader(one, Queue(f"{name}.{each}", exchange, pattern, exclusive=True))
            for each, pattern in patterns.items()
        }
        # A message that matches two bindings of one queue arrives once.
        both = Queue(f"{name}.both", exchange, "task.#", exclusive=True)
        readers["both"] = Reader(one, both)
        both(readers["both"].channel).bind_to(exchange, "#")
        producer = Producer(two.channel(), exchange)
        for key in ("task.done", "task.a.done", "other.done", "task.begun", "last"):
            producer.publish(key, routing_key=key)
        everything = ["task.done", "task.a.done", "other.done", "task.begun", "last"]
        wanted = {
            "all": everything,
            "tasks": ["task.done", "task.a.done", "task.begun"],
            "ends": ["task.done", "other.done"],
            "middle": ["task.a.done"],
            "both": everything,
        }
        readers["all"].wait(5)
        readers["both"].wait(5)
        for each, keys in wanted.items():
            readers[each].wait(len(keys))
            assert sorted(readers[each].bodies) == sorted(keys), each


def test_queues_that_are_bound_are_filled_without_a_consumer(connect: Connect, name: str) -> None:
    exchange = Exchange(name, "direct")
    queue = Queue(f"{name}.q", exchange, "key")
    with connect() as connection:
        producer = Producer(connection.channel(), exchange)
        producer.publish("kept", routing_key="key", declare=[queue])
        producer.publish("not", routing_key="another", declare=[queue])
        reader = Reader(connect(), queue)
        reader.wait(1)[0].ack()
        assert reader.bodies == ["kept"]
        assert reader.gets_nothing_more()


def test_get_purge_and_delete(connect: Connect, name: str) -> None:
    with connect() as connection:
        queue = Queue(name)(connection.channel())
        queue.declare()
        assert queue.get() is None
        publish(connection, name, *range(5))
        message = queue.get()
        assert message is not None
        message.ack()
        queue.channel.close()
        queue = Queue(name)(connection.channel())
        assert queue.purge() == 4
        assert queue.get() is None
        queue.delete()


def test_simple_queues(connect: Connect, name: str) -> None:
    with connect() as connection:
        queue = connection.SimpleQueue(name)
        queue.put({"n": 1})
        message = queue.get(timeout=LONG_S)
        assert message.payload == {"n": 1}
        message.ack()
        with pytest.raises(queue.Empty):
            queue.get(timeout=0.2)
        queue.close()


def test_messages_survive_the_broker_and_kombu_reconnects(
    broker: RunningBroker, connect: Connect, name: str
) -> None:
    connection = connect()
    publish(connection, name, "before", "held")
    reader = Reader(connection, Queue(name))
    reader.wait(2)[0].ack()
    publish(connection, name, "after")
    broker.restart(kill=broker.name == "stompkit")
    with pytest.raises(ConnectionError):
        connection.drain_events(timeout=LONG_S)
    assert not connection.connected
    with pytest.raises(ConnectionError):
        reader.messages[1].ack()
    connection.ensure_connection(max_retries=60, interval_start=0.1)
    publish(connection, name, "new")
    again = Reader(connection, Queue(name))
    for message in again.wait(3):
        message.ack()
    if "before" in again.bodies:
        # The broker may have ended before it processed that acknowledgement, which has no reply.
        again.wait(4)[3].ack()
    assert sorted(set(again.bodies) - {"before"}) == ["after", "held", "new"]


def test_a_connection_without_consumers_that_was_lost_is_replaced_before_its_next_use(
    broker: RunningBroker, connect: Connect, name: str
) -> None:
    with connect() as connection:
        Producer(connection).publish("first", routing_key=name)
        broker.restart(kill=broker.name == "stompkit")
        assert wait_until(lambda: not connection.connected, LONG_S)
        Producer(connection).publish("second", routing_key=name)
        reader = Reader(connection, Queue(name))
        assert "second" in [message.decode() for message in reader.wait(2)]


def test_a_publisher_tries_again_by_its_policy(
    broker: RunningBroker, connect: Connect, name: str
) -> None:
    proxy = broker.proxy()
    connection = connect(url_of(broker, proxy.host, proxy.port))
    publish(connection, name, 1)
    proxy.disconnect()
    Producer(connection.channel()).publish(
        2, routing_key=name, retry=True, retry_policy={"max_retries": 20, "interval_step": 0.1}
    )
    reader = Reader(connect(), Queue(name))
    for message in reader.wait(2):
        message.ack()
    assert set(reader.bodies) == {1, 2}


def test_alternates_are_tried(broker: RunningBroker, connect: Connect, name: str) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        nowhere = f"stomp://127.0.0.1:{nobody.getsockname()[1]}//"
        connection = connect(f"{nowhere};{url_of(broker)}")
        connection.ensure_connection(max_retries=10, interval_start=0, interval_step=0.1)
        publish(connection, name, 1)
        Reader(connection, Queue(name)).wait(1)[0].ack()


def test_heartbeats_go_on_while_nobody_drains(
    broker: RunningBroker, connect: Connect, name: str
) -> None:
    proxy = broker.proxy()
    options = {"heartbeat_s": 0.5}
    url = url_of(broker, proxy.host, proxy.port)
    with connect(url, transport_options=options) as connection:
        publish(connection, name, 1)
        reader = Reader(connection, Queue(name))
        stop = threading.Event()
        assert not stop.wait(4)  # busy for several heart-beat intervals
        reader.wait(1)[0].ack()
        proxy.half_open(gone="broker")
        with pytest.raises(ConnectionError, match="heart-beat"):
            connection.drain_events(timeout=LONG_S)


def test_many_threads_publish_each_by_its_connection(connect: Connect, name: str) -> None:
    def work(number: int) -> None:
        with connect() as connection:
            publish(connection, name, *range(number * 20, number * 20 + 20))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    reader = Reader(connect(), Queue(name), no_ack=True)
    reader.wait(80)
    assert sorted(reader.bodies) == list(range(80))


def test_a_login_that_is_refused_says_so(broker: RunningBroker, connect: Connect) -> None:
    if broker.login is None:
        pytest.skip("takes everybody")
    url = f"stomp://nobody:wrong@{broker.host}:{broker.port}//"
    with pytest.raises(ConnectionError) as refused:
        connect(url).connect()
    assert "wrong" not in str(refused.value)


# TLS.


def test_messages_go_over_tls_to_whom_one_trusts(tmp_path: Path) -> None:
    with secured(tmp_path) as broker:
        where = f"{broker.host}:{broker.port}//"
        trusted = {"ca_certs": str(broker.authority)}
        with Connection(f"stomps://{where}", ssl=trusted) as connection:
            publish(connection, "secrets", "secret")
        with Connection(f"stomp://{where}", ssl=trusted) as connection:
            reader = Reader(connection, Queue("secrets"))
            assert reader.wait(1)[0].decode() == "secret"
        with Connection(f"stomps://{where}") as connection:
            with pytest.raises(ConnectionError, match="certificate verify failed"):
                connection.transport.establish_connection()
