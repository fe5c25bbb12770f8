"""Keys over ZeroMQ: publisher and forwarder."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import zmq

from stompkit.replication.model.events import RowChange, Source, make_changeset
from stompkit.replication.model.signals import emit, signal
from stompkit.replication.sinks.forwarders import zmq_proxy, zmq_sub
from stompkit.replication.sinks.forwarders.zmq import ZmqPublisher
from stompkit.replication.workers.messages import KeysMessage, decode_parts, topic_frame

LONG_S = 30.0
ANYWHERE = "tcp://127.0.0.1:*"
_SOURCE = Source(kind="test")


def tell(table: str, action: Any, key: dict[str, Any], schema: str = "") -> None:
    """Send the signals of a change."""
    change = RowChange(table=table, action=action, key=key, schema=schema)
    emit(make_changeset("test", 1, [change], _SOURCE))


class Subscriber:
    """A subscribing socket, as in any program."""

    def __init__(self, address: str, *frames: bytes, hwm: int = 1000) -> None:
        """Connect."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self._context.socket(zmq.SUB)
        self.socket.setsockopt(zmq.RCVHWM, hwm)
        self.socket.setsockopt(zmq.RCVBUF, 4096)
        for frame in frames:
            self.socket.setsockopt(zmq.SUBSCRIBE, frame)
        self.socket.connect(address)

    def get(self) -> list[bytes]:
        """Return the next message."""
        assert self.socket.poll(int(LONG_S * 1000)), "nothing has come in time"
        return self.socket.recv_multipart()

    def messages(self, count: int) -> list[KeysMessage]:
        """Return the next messages."""
        return [decode_parts(self.get()) for _ in range(count)]

    def close(self) -> None:
        """Disconnect."""
        self.socket.close(linger=0)
        self._context.term()


@pytest.fixture
def subscribers() -> Iterator[list[Subscriber]]:
    """A list of subscribers, which are closed at the end."""
    made: list[Subscriber] = []
    yield made
    for each in made:
        each.close()


@pytest.fixture
def users() -> Iterator[ZmqPublisher]:
    """Publishes changes of users, and of the users of a schema."""
    with zmq_sub(ANYWHERE, ["users", "shop.users"]) as made:
        yield made


def connected(publisher: ZmqPublisher, *topics: str) -> Subscriber:
    subscriber = Subscriber(publisher.address, *map(topic_frame, topics))
    for topic in topics:
        assert publisher.wait_for_subscriber(LONG_S, topic)
    return subscriber


def contents(messages: Sequence[KeysMessage]) -> list[tuple[str, Any]]:
    return [(each.topic, key) for each in messages for key in each.keys]


def test_each_action_of_the_tables_is_published_under_its_own_name(
    users: ZmqPublisher, subscribers: list[Subscriber]
) -> None:
    """Bug of Meepo: late binding in a loop gave all the last name."""
    subscriber = connected(users, "users_write", "users_update", "users_delete")
    subscribers.append(subscriber)
    for action in ("write", "update", "delete", "read"):
        tell("users", action, {"id": action})
    tell("others", "write", {"id": 0})
    tell("users", "write", {"id": "last"})
    assert contents(subscriber.messages(5)) == [
        ("users_write", "write"),
        ("users_update", "update"),
        ("users_delete", "delete"),
        ("users_write", "read"),
        ("users_write", "last"),
    ]


def test_tables_can_be_those_of_a_schema(
    users: ZmqPublisher, subscribers: list[Subscriber]
) -> None:
    subscriber = connected(users, "shop.users_write")
    subscribers.append(subscriber)
    tell("users", "write", {"id": 1}, schema="other")
    tell("users", "write", {"id": 2}, schema="shop")
    assert contents(subscriber.messages(1)) == [("shop.users_write", 2)]


@pytest.mark.parametrize("key", [(2, 3), ("a b", "c"), "hello world", "7", 7, "", "(1, 2)"])
def test_a_key_arrives_as_the_one_that_it_was(
    users: ZmqPublisher, subscribers: list[Subscriber], key: Any
) -> None:
    """Bug of Meepo: (2, 3) and "hello world" arrived as two keys each, and 7 as text."""
    subscriber = connected(users, "users_write")
    subscribers.append(subscriber)
    columns = key if isinstance(key, tuple) else (key,)
    tell("users", "write", {f"c{number}": value for number, value in enumerate(columns)})
    ((_, found),) = contents(subscriber.messages(1))
    assert (type(found), found) == (type(key), key)


def test_who_wants_one_table_has_nothing_of_another_whose_name_begins_so(
    subscribers: list[Subscriber],
) -> None:
    """Bug of Meepo: a subscription to user_update also matched user_update2."""
    with zmq_sub(ANYWHERE, {"user", "user_update2"}) as publisher:
        publisher.follow(["user_update2"])
        subscriber = connected(publisher, "user_update")
        subscribers.append(subscriber)
        signal("user_update2").send(1)
        tell("user_update2", "write", {"id": 2})
        tell("user", "update", {"id": 3})
        assert contents(subscriber.messages(1)) == [("user_update", 3)]
        # Even a subscription without the delimiter can distinguish them.
        prefix = Subscriber(publisher.address, b"user_update")
        subscribers.append(prefix)
        assert publisher.wait_for_subscriber(LONG_S, "user_update2")
        signal("user_update2").send(1)
        tell("user", "update", {"id": 3})
        assert contents(prefix.messages(2)) == [("user_update2", 1), ("user_update", 3)]


def test_any_number_of_threads_can_publish(
    users: ZmqPublisher, subscribers: list[Subscriber]
) -> None:
    """Bug of Meepo: its socket was used by any thread that sent a signal."""
    subscriber = connected(users, "users_write")
    subscribers.append(subscriber)

    def publish(number: int) -> None:
        for n in range(200):
            users.publish("users_write", [(number, n)])

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    found = [key for _, key in contents(subscriber.messages(1600))]
    for thread in threads:
        thread.join(LONG_S)
    for number in range(8):
        assert [key for key in found if key[0] == number] == [(number, n) for n in range(200)]
    assert users.sent == 1600
    assert users.dropped == 0


def test_what_a_slow_subscriber_misses_is_counted_and_told_and_others_have_it(
    subscribers: list[Subscriber], caplog: pytest.LogCaptureFixture
) -> None:
    """Bug of Meepo: beyond the high-water mark messages were lost silently."""
    with zmq_sub(ANYWHERE, ["users"], hwm=10) as publisher:
        publisher.socket.setsockopt(zmq.SNDBUF, 4096)
        slow = Subscriber(publisher.address, topic_frame("slow_topic"), hwm=1)
        quick = Subscriber(publisher.address, b"", hwm=1)
        subscribers.extend([slow, quick])
        assert publisher.wait_for_subscriber(LONG_S, "slow_topic")
        assert publisher.wait_for_subscriber(LONG_S, "any_other")
        sent = 0
        while not publisher.dropped:
            publisher.publish("slow_topic", ["x" * 10_000])
            decode_parts(quick.get())
            sent += 1
            assert sent < 20_000
        publisher.publish("users_write", ["for the quick one"])
        assert contents(quick.messages(1)) == [("users_write", "for the quick one")]
        assert publisher.sent == sent + 1
    assert [each for each in caplog.messages if "too slow" in each]


def test_a_publisher_can_wait_for_a_subscriber_with_too_much_before_it(
    subscribers: list[Subscriber],
) -> None:
    with zmq_sub(ANYWHERE, ["users"], hwm=10, wait_s=LONG_S) as publisher:
        subscriber = Subscriber(publisher.address, b"", hwm=1)
        subscribers.append(subscriber)
        assert publisher.wait_for_subscriber(LONG_S)

        def publish() -> None:
            for number in range(500):
                publisher.publish("users_write", [(number, "x" * 10_000)])

        thread = threading.Thread(target=publish)
        thread.start()
        found = [key[0] for _, key in contents(subscriber.messages(500))]
        thread.join(LONG_S)
        assert found == list(range(500))
        assert publisher.dropped == 0


def test_nobody_is_waited_for_in_vain(users: ZmqPublisher) -> None:
    """A late subscriber misses earlier messages: the publisher can wait for it."""
    assert not users.wait_for_subscriber(0.0)
    users.publish("users_write", [1])
    subscriber = connected(users, "users_write")
    try:
        assert not users.wait_for_subscriber(0.0, "users_update")
        users.publish("users_write", [2])
        assert contents(subscriber.messages(1)) == [("users_write", 2)]
    finally:
        subscriber.close()


@pytest.mark.parametrize("tables", ["users", b"users", None, 7])
def test_tables_are_a_list_or_a_set(tables: Any) -> None:
    with pytest.raises(ValueError, match="tables are a list or a set of names"):
        zmq_sub(ANYWHERE, tables)


@pytest.mark.parametrize("address", ["", "nowhere", "tcp://127.0.0.1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="cannot publish at"):
        zmq_sub(address, ["users"])
    with pytest.raises(ValueError, match="cannot bind to"):
        zmq_proxy(ANYWHERE, address)


def test_a_closed_publisher_follows_no_signals_and_frees_its_address() -> None:
    publisher = zmq_sub(ANYWHERE, ["users"])
    publisher.close()
    publisher.close()
    assert not signal("users_write").receivers
    assert not publisher.wait_for_subscriber(0.0)
    with pytest.raises(RuntimeError, match="closed"):
        publisher.publish("users_write", [1])
    with zmq_sub(publisher.address, ["users"]) as again:
        assert again.address == publisher.address


# The forwarder.


def test_a_forwarder_takes_from_many_publishers_to_many_subscribers(
    subscribers: list[Subscriber],
) -> None:
    with (
        zmq_proxy(ANYWHERE, ANYWHERE) as proxy,
        zmq_sub(proxy.frontend, ["users"], forwarder=True) as first,
        zmq_sub(proxy.frontend, ["orders"], forwarder=True) as second,
    ):
        # One after the other: the second subscription includes the first.
        for prefix, wanted in ((topic_frame("users_write"), "users_write"), (b"", "orders_delete")):
            subscribers.append(Subscriber(proxy.backend, prefix))
            for publisher in (first, second):
                assert publisher.wait_for_subscriber(LONG_S, wanted)
        some, everything = subscribers
        tell("users", "write", {"id": 1})
        tell("orders", "delete", {"id": 2})
        assert contents(some.messages(1)) == [("users_write", 1)]
        assert sorted(contents(everything.messages(2))) == [
            ("orders_delete", 2),
            ("users_write", 1),
        ]


def test_a_forwarder_can_be_stopped_and_frees_its_addresses() -> None:
    proxy = zmq_proxy(ANYWHERE, ANYWHERE)
    began = time.monotonic()
    assert not proxy.wait(0.1)
    assert time.monotonic() - began > 0.05
    proxy.close()
    proxy.close()
    assert proxy.wait(LONG_S)
    with zmq_proxy(proxy.frontend, proxy.backend) as again:
        assert again.frontend == proxy.frontend
