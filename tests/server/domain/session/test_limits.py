"""Every limit of BrokerConfig, at it and above it; test_transactions.py has its own limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stompkit.frames import AFTER_LOGIN, BEFORE_LOGIN
from stompkit.server import BrokerConfig
from stompkit.testing.memory import MemoryBroker, MemoryClient

QUEUE = "/queue/a"
CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n"


def refusal(client: MemoryClient) -> str | None:
    return None if client.error is None else client.error.headers["stompkit-code"]


def held(client: MemoryClient) -> int:
    """Return the number of messages of QUEUE that a new subscriber gets."""
    client.subscribe(QUEUE, id="count")
    count = len(client.take("MESSAGE"))
    client.send("UNSUBSCRIBE", id="count")
    return count


# Sizes of frames.


@pytest.mark.parametrize("split", [False, True], ids=["at-once", "octet-by-octet"])
@pytest.mark.parametrize(("past", "code"), [(0, None), (1, "header-too-large")])
def test_header_lines_are_bounded(past: int, code: str | None, *, split: bool) -> None:
    limits = replace(AFTER_LOGIN, max_header_line_bytes=50)
    client = MemoryBroker(BrokerConfig(limits=limits)).client()
    send(client, b"SEND\ndestination:/queue/a\nx:%b\n\n\0" % (b"y" * (48 + past)), split=split)
    assert refusal(client) == code


def send(client: MemoryClient, data: bytes, *, split: bool) -> None:
    for piece in [data[i : i + 1] for i in range(len(data))] if split else [data]:
        client.write(piece)


@pytest.mark.parametrize("split", [False, True], ids=["at-once", "octet-by-octet"])
@pytest.mark.parametrize(("past", "code"), [(0, None), (1, "too-many-headers")])
def test_headers_are_counted(past: int, code: str | None, *, split: bool) -> None:
    limits = replace(AFTER_LOGIN, max_headers=5)
    client = MemoryBroker(BrokerConfig(limits=limits)).client()
    more = b"".join(b"h%d:\n" % number for number in range(4 + past))
    send(client, b"SEND\ndestination:/queue/a\n%b\n\0" % more, split=split)
    assert refusal(client) == code


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("split", [False, True], ids=["at-once", "octet-by-octet"])
@pytest.mark.parametrize(("past", "code"), [(0, None), (1, "frame-too-large")])
def test_bodies_are_bounded(past: int, code: str | None, *, split: bool, declared: bool) -> None:
    limits = replace(AFTER_LOGIN, max_body_bytes=100)
    client = MemoryBroker(BrokerConfig(limits=limits)).client()
    size = 100 + past
    length = b"content-length:%d\n" % size if declared else b""
    send(client, b"SEND\ndestination:/queue/a\n%b\n%b\0" % (length, b"x" * size), split=split)
    assert refusal(client) == code


def test_a_body_that_is_announced_too_large_is_refused_before_it_comes() -> None:
    client = MemoryBroker().client()
    client.write(b"SEND\nreceipt:r\ndestination:/queue/a\ncontent-length:99999999999\n\n")
    assert refusal(client) == "frame-too-large"
    assert client.error is not None
    assert client.error.headers["receipt-id"] == "r"


@pytest.mark.parametrize(("past", "code"), [(0, None), (1, "frame-too-large")])
def test_whole_frames_are_bounded(past: int, code: str | None) -> None:
    head = b"SEND\ndestination:/queue/a\n\n"
    limits = replace(AFTER_LOGIN, max_frame_bytes=len(head) + 20, max_body_bytes=1_000)
    client = MemoryBroker(BrokerConfig(limits=limits)).client()
    client.write(head + b"x" * (20 + past) + b"\0")
    assert refusal(client) == code


def test_a_command_that_never_ends_is_refused() -> None:
    client = MemoryBroker().client()
    client.write(b"S" * (AFTER_LOGIN.max_command_bytes + 1))
    assert refusal(client) == "header-too-large"


@pytest.mark.parametrize(("past", "code"), [(0, None), (1, "header-too-large")])
def test_strangers_get_shorter_header_lines(past: int, code: str | None) -> None:
    limits = replace(BEFORE_LOGIN, max_header_line_bytes=50)
    client = MemoryBroker(BrokerConfig(limits_before_login=limits)).connect()
    client.write(CONNECT + b"x:%b\n\n\0" % (b"y" * (48 + past)))
    assert refusal(client) == code


@pytest.mark.parametrize(("past", "code"), [(0, None), (1, "too-many-headers")])
def test_strangers_get_fewer_headers(past: int, code: str | None) -> None:
    limits = replace(BEFORE_LOGIN, max_headers=5)
    client = MemoryBroker(BrokerConfig(limits_before_login=limits)).connect()
    client.write(CONNECT + b"".join(b"h%d:\n" % n for n in range(3 + past)) + b"\n\0")
    assert refusal(client) == code


@pytest.mark.parametrize(("past", "code"), [(0, None), (1, "frame-too-large")])
def test_strangers_get_a_smaller_frame(past: int, code: str | None) -> None:
    padding = b"x:%b\n\n" % (b"y" * 100)
    limits = replace(BEFORE_LOGIN, max_frame_bytes=len(CONNECT + padding))
    client = MemoryBroker(BrokerConfig(limits_before_login=limits)).connect()
    client.write(CONNECT + b"z" * past + padding + b"\0")
    assert refusal(client) == code


def test_strangers_limits_end_with_login() -> None:
    limits = replace(BEFORE_LOGIN, max_header_line_bytes=50, max_headers=3, max_body_bytes=0)
    client = MemoryBroker(BrokerConfig(limits_before_login=limits)).connect()
    client.write(CONNECT + b"\n\0")
    client.publish(QUEUE, b"body", a="x" * 100, b="", c="", d="")
    assert refusal(client) is None


# Connections and subscriptions.


def test_connections_are_counted_and_the_next_is_told() -> None:
    broker = MemoryBroker(BrokerConfig(max_connections=2))
    first, second = broker.client(), broker.connect()
    third = broker.connect()
    assert refusal(third) == "too-many-connections"
    assert third.eof
    third.write(CONNECT + b"\n\0")
    assert third.version is None
    second.write(CONNECT + b"\n\0")
    assert (first.error, second.version) == (None, "1.2")


@pytest.mark.parametrize("way", ["close", "drop", "disconnect", "error"])
def test_a_connection_that_ends_makes_room_for_another(way: str) -> None:
    broker = MemoryBroker(BrokerConfig(max_connections=1))
    for _ in range(3):
        client = broker.client()
        refused = broker.connect()
        assert refusal(refused) == "too-many-connections"
        refused.close()
        if way == "close":
            client.close()
        elif way == "drop":
            client.drop()
        elif way == "disconnect":
            client.send("DISCONNECT")
            broker.clock.advance(1.0)
        else:
            client.write(b"nonsense\n\n\0")
            broker.clock.advance(1.0)
    assert broker.broker.connections == set()


@pytest.mark.parametrize(("count", "code"), [(3, None), (4, "too-many-subscriptions")])
def test_subscriptions_of_a_connection_are_counted(count: int, code: str | None) -> None:
    broker = MemoryBroker(BrokerConfig(max_subscriptions=3))
    client, other = broker.client(), broker.client()
    other.subscribe(QUEUE)
    client.subscribe(QUEUE, id="before")
    client.send("UNSUBSCRIBE", id="before")  # ended subscriptions do not count
    for number in range(count):
        client.subscribe(QUEUE, id=str(number))
    assert refusal(client) == code


# Destinations.


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_destinations_are_counted(kind: str) -> None:
    broker = MemoryBroker(BrokerConfig(max_destinations=2))
    client, other = broker.client(), broker.client()
    client.subscribe("/queue/1", id="1")
    client.subscribe("/topic/2", id="2")
    other.publish("/queue/1", b"there is one already")
    other.publish("/topic/2", b"there is one already")
    assert len(client.take("MESSAGE")) == 2
    other.publish(f"/{kind}/3")
    assert refusal(other) == "too-many-destinations"
    client.send("UNSUBSCRIBE", id="2")
    client.subscribe(f"/{kind}/3", id="3")
    assert refusal(client) is None
    client.subscribe(f"/{kind}/4", id="4")
    assert refusal(client) == "too-many-destinations"


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
@pytest.mark.parametrize(("past", "code"), [(0, None), (1, "bad-destination")])
def test_names_of_destinations_are_bounded_in_octets(
    past: int, code: str | None, command: str
) -> None:
    client = MemoryBroker(BrokerConfig(max_destination_bytes=50)).client()
    name = "/queue/" + "é" * 21 + "x" * (1 + past)
    assert len(name.encode()) == 50 + past
    client.send(command, id="1", destination=name)
    assert refusal(client) == code


# Queues.


@pytest.mark.parametrize("first", [0, 2])
def test_messages_of_a_queue_are_counted(first: int) -> None:
    broker = MemoryBroker(BrokerConfig(max_queue_messages=3))
    client, consumer = broker.client(), broker.client()
    if first:  # delivered but unacknowledged messages count, too
        consumer.subscribe(QUEUE, ack="client", prefetch_count=str(first))
    for _ in range(3):
        client.publish(QUEUE)
    assert refusal(client) is None
    client.publish(QUEUE, receipt="r")
    assert refusal(client) == "queue-full"
    assert client.error is not None
    assert client.error.headers["receipt-id"] == "r"
    assert held(broker.client()) == 3 - first


@pytest.mark.parametrize(("past", "code"), [(0, None), (1, "queue-full")])
def test_octets_of_a_queue_are_counted(past: int, code: str | None) -> None:
    headers = len(b"destination" + b"/queue/a" + b"x" + b"yy" + b"content-length" + b"10")
    broker = MemoryBroker(BrokerConfig(max_queue_bytes=2 * (headers + 10)))
    client = broker.client()
    client.publish(QUEUE, b"b" * 10, x="yy")
    client.publish(QUEUE, b"b" * (10 + past), x="yy")
    assert refusal(client) == code
    assert held(broker.client()) == 2 - past


def test_a_message_larger_than_any_queue_is_refused_and_leaves_no_queue() -> None:
    broker = MemoryBroker(BrokerConfig(max_queue_bytes=10))
    client = broker.client()
    client.publish(QUEUE, b"x" * 100)
    assert refusal(client) == "queue-too-small"
    assert broker.destinations == {}


def test_the_limits_of_queues_do_not_concern_topics() -> None:
    config = BrokerConfig(max_queue_messages=1, max_queue_bytes=1, max_topic_backlog=10)
    broker = MemoryBroker(config)
    client = broker.client()
    client.subscribe("/topic/t")
    client.stop_reading()
    for _ in range(5):
        client.publish("/topic/t", b"x")
    client.start_reading()
    assert len(client.take("MESSAGE")) == 5


def test_a_full_queue_does_not_concern_others() -> None:
    broker = MemoryBroker(BrokerConfig(max_queue_messages=1))
    client = broker.client()
    for number in range(5):
        client.publish(f"/queue/{number}")
    assert refusal(client) is None


def test_a_queue_that_is_full_within_a_chunk_takes_what_fits() -> None:
    broker = MemoryBroker(BrokerConfig(max_queue_messages=2))
    client = broker.client()
    client.write(b"SEND\ndestination:/queue/a\nreceipt:r\n\n\0" * 3)
    assert len(client.take("RECEIPT")) == 2
    assert refusal(client) == "queue-full"
    assert held(broker.client()) == 2
