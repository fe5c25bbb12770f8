"""``QueueReplicator`` and keys over ZeroMQ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import zmq

from stompkit.replication.model.signals import signal
from stompkit.replication.sinks.forwarders import zmq_proxy, zmq_sub
from stompkit.replication.sinks.forwarders.zmq import ZmqPublisher
from stompkit.replication.workers import QueueReplicator
from stompkit.replication.workers.messages import encode_keys, topic_frame
from stompkit.testing.proxy import Proxy
from tests.replication.workers.callbacks import (
    PATIENCE_S,
    Gated,
    Notes,
    Record,
    wait_for,
)

ANYWHERE = "tcp://127.0.0.1:*"


@pytest.fixture
def publisher() -> Iterator[ZmqPublisher]:
    """Publishes changes of users."""
    with zmq_sub(ANYWHERE, ["users", "users2"]) as made:
        yield made


def connect(
    replicator: QueueReplicator, publisher: ZmqPublisher, callback: Callable[[Any], bool]
) -> None:
    """Start it with a callback for new users, and wait until published keys reach it."""
    replicator.event("users_write")(callback)
    replicator.listen = publisher.address
    replicator.start()
    assert publisher.wait_for_subscriber(PATIENCE_S, "users_write")


def test_keys_that_are_published_reach_callbacks(
    replicator: QueueReplicator, record: Record, publisher: ZmqPublisher
) -> None:
    connect(replicator, publisher, Notes(record))
    for key in (1, "1", (2, 3), "hello world"):
        signal("users_write").send(key)
    wait_for(lambda: len(record.lines()) == 4)
    assert record.keys() == [1, "1", [2, 3], "hello world"]


def test_another_table_whose_name_begins_so_is_not_even_received(
    replicator: QueueReplicator, record: Record, publisher: ZmqPublisher
) -> None:
    """Bug of Meepo: one message of user2 ended a replicator for user."""
    replicator.event("users")(Notes(record))
    connect(replicator, publisher, Notes(record))
    publisher.publish("users_write2", [1])
    signal("users2_write").send(2)
    signal("users_write").send(3)
    wait_for(record.keys)
    assert record.keys() == [3]
    assert replicator.stats().unknown == 0


def test_messages_that_can_not_be_read_are_counted_and_stop_nothing(
    replicator: QueueReplicator, record: Record, publisher: ZmqPublisher
) -> None:
    connect(replicator, publisher, Notes(record))
    topic = topic_frame("users_write")
    for parts in [
        [topic],
        [topic + b"1 2 3"],
        [topic, b"users_write 1"],
        [topic, encode_keys("users_write", [1]), b"more"],
        [topic, encode_keys("users_delete", [1])],
        [topic, b'{"version":99}'],
    ]:
        publisher.socket.send_multipart(parts)
    publisher.publish("users_write", [7])
    wait_for(record.keys)
    assert record.keys() == [7]
    assert replicator.stats().corrupt == 6


def test_it_can_listen_to_several_publishers(
    replicator: QueueReplicator, record: Record, publisher: ZmqPublisher
) -> None:
    with zmq_sub(ANYWHERE, []) as other:
        replicator.event("users_write")(Notes(record))
        replicator.listen = [publisher.address, other.address]
        with replicator:
            for each in (publisher, other):
                assert each.wait_for_subscriber(PATIENCE_S, "users_write")
                each.publish("users_write", [each.address])
            wait_for(lambda: len(record.lines()) == 2)
        assert set(record.keys()) == {publisher.address, other.address}


def test_the_address_can_be_set_and_changed_while_it_runs(
    replicator: QueueReplicator, record: Record, publisher: ZmqPublisher
) -> None:
    replicator.event("users_write")(Notes(record))
    replicator.start()
    assert replicator.listen == ()
    replicator.listen = publisher.address
    assert publisher.wait_for_subscriber(PATIENCE_S, "users_write")
    publisher.publish("users_write", [1])
    wait_for(record.keys)
    with zmq_sub(ANYWHERE, []) as other:
        replicator.listen = [other.address]
        assert replicator.listen == (other.address,)
        assert other.wait_for_subscriber(PATIENCE_S, "users_write")
        other.publish("users_write", [2])
        wait_for(lambda: len(record.lines()) == 2)
        wait_for(lambda: not publisher.wait_for_subscriber(0.0))
    assert record.keys() == [1, 2]


def test_what_is_no_address_is_refused_and_changes_nothing(
    replicator: QueueReplicator, record: Record, publisher: ZmqPublisher
) -> None:
    connect(replicator, publisher, Notes(record))
    with pytest.raises(ValueError, match="cannot connect to 'nowhere'"):
        replicator.listen = "nowhere"
    assert replicator.listen == (publisher.address,)
    publisher.publish("users_write", [1])
    wait_for(record.keys)


def test_what_is_no_address_fails_the_start(record: Record) -> None:
    replicator = QueueReplicator("nowhere")
    replicator.event("users_write")(Notes(record))
    with pytest.raises(ValueError, match="cannot connect to 'nowhere'"):
        replicator.start()


def test_a_silent_publisher_is_connected_to_again(record: Record, publisher: ZmqPublisher) -> None:
    """A connection whose other end has vanished is silent for ever, without an error."""
    port = int(publisher.address.rpartition(":")[2])
    with Proxy("127.0.0.1", port) as relay:
        # It must not reconnect by itself before its connection vanishes.
        replicator = QueueReplicator(f"tcp://127.0.0.1:{relay.port}", reconnect_s=1.0)
        replicator.event("users_write")(Notes(record))
        with replicator:
            assert publisher.wait_for_subscriber(PATIENCE_S, "users_write")
            before = replicator.stats().reconnects
            relay.half_open()

            def has_come() -> bool:
                publisher.publish("users_write", ["x"])
                return bool(record.keys())

            wait_for(has_come)
            assert replicator.stats().reconnects > before


def test_keys_come_through_a_forwarder(replicator: QueueReplicator, record: Record) -> None:
    with (
        zmq_proxy(ANYWHERE, ANYWHERE) as proxy,
        zmq_sub(proxy.frontend, ["users"], forwarder=True) as publisher,
    ):
        replicator.event("users_write")(Notes(record))
        replicator.listen = proxy.backend
        replicator.start()
        assert publisher.wait_for_subscriber(PATIENCE_S, "users_write")
        signal("users_write").send(1)
        wait_for(record.keys)
        assert record.keys() == [1]


def test_stopping_hands_back_what_was_received_and_not_taken(
    replicator: QueueReplicator, record: Record, gate: Any, publisher: ZmqPublisher
) -> None:
    replicator.event("users_write", queue_limit=1, max_batch=1)(Gated(record, gate))
    replicator.listen = publisher.address
    replicator.start()
    assert publisher.wait_for_subscriber(PATIENCE_S, "users_write")
    publisher.publish("users_write", ["busy", "waiting", "no room"])
    wait_for(lambda: replicator.stats().waiting)
    back = {each.key for each in replicator.stop(0.0)}
    assert back == {"busy", "waiting", "no room"}


def test_the_socket_is_made_by_the_process_that_uses_it(
    replicator: QueueReplicator, record: Record, publisher: ZmqPublisher
) -> None:
    """Bug of Meepo: all its sockets belonged to one context, created when it was imported."""
    connect(replicator, publisher, Notes(record))
    zmq.Context.instance().destroy()
    publisher.publish("users_write", [1])
    wait_for(record.keys)
