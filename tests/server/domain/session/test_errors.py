"""ERROR: refused frames, the replies to them, and no effect on other clients."""

from __future__ import annotations

import pytest
from twisted.logger import capturedLogs, formatEvent

from stompkit.frames import VERSIONS
from stompkit.server import BrokerConfig
from stompkit.testing.memory import MemoryBroker, MemoryClient

QUEUE = "/queue/a"


def refusal(client: MemoryClient) -> str | None:
    return None if client.error is None else client.error.headers["stompkit-code"]


#: Errors of a client of 1.2, with the code of the reply. Each is sent by a client with one
#: subscription, "s".
MISTAKES = {
    "unknown-command": (b"JUMP\nreceipt:r\n\n\0", "unknown-command"),
    "lower-case-command": (b"send\ndestination:/queue/a\nreceipt:r\n\n\0", "unknown-command"),
    "command-of-a-server": (b"MESSAGE\nreceipt:r\n\n\0", "unexpected-frame"),
    "second-connect": (b"CONNECT\naccept-version:1.2\nreceipt:r\n\n\0", "unexpected-frame"),
    "header-without-colon": (b"SEND\nreceipt:r\ndestination\n\n\0", "bad-header"),
    "empty-header-name": (b"SEND\nreceipt:r\n:x\n\n\0", "bad-header"),
    "undefined-escape": (b"SEND\nreceipt:r\ndestination:/queue/\\t\n\n\0", "bad-escape"),
    "invalid-utf8": (b"SEND\nreceipt:r\ndestination:/queue/\xff\n\n\0", "bad-utf8"),
    "content-length-too-small": (
        b"SEND\nreceipt:r\ndestination:/queue/a\ncontent-length:1\n\nxx\0",
        "bad-content-length",
    ),
    "content-length-no-number": (
        b"SEND\nreceipt:r\ndestination:/queue/a\ncontent-length:x\n\n\0",
        "bad-content-length",
    ),
    "send-without-destination": (b"SEND\nreceipt:r\n\n\0", "missing-header"),
    "send-to-nowhere": (b"SEND\nreceipt:r\ndestination:a\n\n\0", "unknown-destination"),
    "send-to-a-kind": (b"SEND\nreceipt:r\ndestination:/queue/\n\n\0", "unknown-destination"),
    "send-to-an-unknown-kind": (
        b"SEND\nreceipt:r\ndestination:/queues/a\n\n\0",
        "unknown-destination",
    ),
    "send-to-nothing": (b"SEND\nreceipt:r\ndestination:\n\n\0", "unknown-destination"),
    "subscribe-without-id": (
        b"SUBSCRIBE\nreceipt:r\ndestination:/queue/a\n\n\0",
        "missing-header",
    ),
    "subscribe-without-destination": (b"SUBSCRIBE\nreceipt:r\nid:1\n\n\0", "missing-header"),
    "subscribe-to-nowhere": (
        b"SUBSCRIBE\nreceipt:r\nid:1\ndestination:x\n\n\0",
        "unknown-destination",
    ),
    "subscription-id-in-use": (
        b"SUBSCRIBE\nreceipt:r\nid:s\ndestination:/queue/b\n\n\0",
        "duplicate-id",
    ),
    "selector": (
        b"SUBSCRIBE\nreceipt:r\nid:1\ndestination:/queue/b\nselector:a = = 1\n\n\0",
        "bad-selector",
    ),
    "unknown-ack-mode": (
        b"SUBSCRIBE\nreceipt:r\nid:1\ndestination:/queue/b\nack:Client\n\n\0",
        "bad-ack-mode",
    ),
    "unsubscribe-unknown": (b"UNSUBSCRIBE\nreceipt:r\nid:x\n\n\0", "unknown-subscription"),
    "unsubscribe-by-destination": (
        b"UNSUBSCRIBE\nreceipt:r\ndestination:/queue/a\n\n\0",
        "missing-header",
    ),
    "ack-without-id": (b"ACK\nreceipt:r\nmessage-id:1\n\n\0", "missing-header"),
    "ack-unknown": (b"ACK\nreceipt:r\nid:999\n\n\0", "unknown-acknowledgement"),
    "begin-without-name": (b"BEGIN\nreceipt:r\n\n\0", "missing-header"),
    "commit-unknown": (b"COMMIT\nreceipt:r\ntransaction:t\n\n\0", "unknown-transaction"),
    "abort-unknown": (b"ABORT\nreceipt:r\ntransaction:t\n\n\0", "unknown-transaction"),
}


@pytest.mark.parametrize(("octets", "code"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_answered_with_an_error_and_the_end(octets: bytes, code: str) -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.subscribe(QUEUE, id="s")
    client.take()
    client.write(octets)
    [error] = client.take()
    assert error.command == "ERROR"
    assert error.headers["stompkit-code"] == code
    assert error.headers["receipt-id"] == "r"
    assert error.headers["content-type"] == "text/plain"
    assert int(error.headers["content-length"]) == len(error.body) > 0
    assert error.headers["message"].isprintable()
    assert client.eof
    assert broker.destinations == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_errors_come_in_every_version(version: str) -> None:
    client = MemoryBroker().client(version)
    client.publish("a:nowhere", receipt="a:b\\c")
    assert client.error is not None
    assert client.error.headers["receipt-id"] == "a:b\\c"
    assert refusal(client) == "unknown-destination"


def test_an_error_without_a_receipt_names_none() -> None:
    client = MemoryBroker().client()
    client.publish("nowhere")
    assert client.error is not None
    assert "receipt-id" not in client.error.headers


def test_a_refused_frame_gets_no_receipt() -> None:
    client = MemoryBroker().client()
    client.publish("nowhere", receipt="r")
    assert client.take("RECEIPT") == []


def test_names_that_are_very_long_are_not_repeated_whole() -> None:
    client = MemoryBroker(BrokerConfig(max_destination_bytes=100_000)).client()
    client.publish("x" * 10_000)
    assert client.error is not None
    assert len(client.error.headers["message"]) < 300


def test_what_came_before_the_mistake_counts_and_what_came_behind_does_not() -> None:
    broker = MemoryBroker()
    client, consumer = broker.client(), broker.client()
    consumer.subscribe(QUEUE)
    client.write(
        b"SEND\ndestination:/queue/a\nreceipt:1\n\nbefore\0"
        b"SEND\ndestination:nowhere\nreceipt:2\n\nmistake\0"
        b"SEND\ndestination:/queue/a\nreceipt:3\n\nbehind\0"
    )
    client.publish(QUEUE, b"much later", receipt="4")
    assert consumer.bodies() == [b"before"]
    answers = [(f.command, f.headers.get("receipt-id")) for f in client.take()]
    assert answers[1:] == [("RECEIPT", "1"), ("ERROR", "2")]


@pytest.mark.parametrize("second", [b"CONNECT\n\n\0", b"SEND\n\n\0", b"nonsense\n\n\0", b"\0"])
def test_of_two_mistakes_only_the_first_is_answered(second: bytes) -> None:
    client = MemoryBroker().client()
    client.write(b"SEND\ndestination:nowhere\n\n\0" + second)
    client.write(second)
    assert [frame.command for frame in client.take()] == ["CONNECTED", "ERROR"]
    assert refusal(client) == "unknown-destination"


def test_a_mistake_of_the_grammar_comes_after_the_answers_to_what_was_before() -> None:
    broker = MemoryBroker()
    client, consumer = broker.client(), broker.client()
    consumer.subscribe(QUEUE)
    client.write(b"SEND\ndestination:/queue/a\nreceipt:1\n\nbefore\0nonsense\n\n\0")
    assert consumer.bodies() == [b"before"]
    assert [frame.command for frame in client.take()] == ["CONNECTED", "RECEIPT", "ERROR"]


def test_a_message_that_is_on_its_way_arrives_before_the_error() -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.subscribe("/topic/t")
    client.write(b"SEND\ndestination:/topic/t\n\nx\0nonsense\n\n\0")
    assert [frame.command for frame in client.take()] == ["CONNECTED", "MESSAGE", "ERROR"]


@pytest.mark.parametrize("octets", [octets for octets, _ in MISTAKES.values()], ids=MISTAKES)
def test_a_mistake_of_one_client_harms_no_other(octets: bytes) -> None:
    broker = MemoryBroker()
    bad, producer, consumer = broker.client(), broker.client(), broker.client()
    bad.subscribe(QUEUE, id="s", ack="client", prefetch_count="2")
    consumer.subscribe("/topic/t", id="t")
    for number in range(4):
        producer.publish(QUEUE, b"%d" % number)
    bad.stop_reading()
    bad.write(b"BEGIN\ntransaction:u\n\n\0SEND\ntransaction:u\ndestination:/queue/a\n\nx\0")
    bad.write(octets)
    consumer.subscribe(QUEUE, id="q")
    producer.publish("/topic/t", b"4")
    assert sorted(consumer.bodies()) == [b"0", b"1", b"2", b"3", b"4"]
    producer.send("BEGIN", transaction="t", receipt="r")
    assert len(producer.take("RECEIPT")) == 1
    assert (consumer.error, producer.error) == (None, None)


def test_before_login_a_receipt_that_cannot_be_repeated_is_left_out() -> None:
    client = MemoryBroker().connect()
    client.write(b"SEND\ndestination:/queue/a\nreceipt:a\rb\n\n\0")
    assert client.error is not None
    assert "receipt-id" not in client.error.headers
    assert refusal(client) == "unexpected-frame"
    assert client.eof


# CONNECT.


@pytest.mark.parametrize(
    ("octets", "code"),
    [
        (b"SEND\ndestination:/queue/a\n\n\0", "unexpected-frame"),
        (b"DISCONNECT\n\n\0", "unexpected-frame"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\0", "wrong-protocol"),
        (b"\0", "bad-frame-start"),
        (b"CONNECT\naccept-version:3.0\n\n\0", "no-common-version"),
        (b"CONNECT\naccept-version:\n\n\0", "no-common-version"),
        (b"CONNECT\naccept-version:1.2\nheart-beat:1\n\n\0", "bad-heart-beat"),
        (b"CONNECT\naccept-version:1.2\nheart-beat:-1,0\n\n\0", "bad-heart-beat"),
        (b"CONNECT\naccept-version:1.2\nheart-beat:a,b\n\n\0", "bad-heart-beat"),
    ],
)
def test_a_bad_beginning_is_refused(octets: bytes, code: str) -> None:
    broker = MemoryBroker()
    client = broker.connect()
    client.write(octets)
    assert refusal(client) == code
    assert client.version is None
    assert client.eof


def test_a_version_that_nobody_shares_is_answered_with_those_there_are() -> None:
    client = MemoryBroker().connect()
    client.send("CONNECT", accept_version="2.0,2.1", host="x")
    assert client.error is not None
    assert client.error.headers["version"] == "1.0,1.1,1.2"


@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_without_accept_version_the_session_is_1_0(command: str) -> None:
    client = MemoryBroker().connect()
    client.write(command.encode() + b"\n\n\0")
    assert client.connected["version"] == "1.0"


def test_connected_tells_session_and_server() -> None:
    broker = MemoryBroker()
    first, second = broker.client(), broker.client()
    assert first.connected["server"].startswith("stompkit/")
    assert first.connected["session"] != second.connected["session"]
    assert first.connected.keys() == {"version", "heart-beat", "session", "server"}


def test_connect_gets_no_receipt() -> None:
    client = MemoryBroker().client(receipt="r")
    assert [frame.command for frame in client.take()] == ["CONNECTED"]
    assert "receipt-id" not in client.connected


# The log.


def test_the_log_says_who_was_refused_and_why() -> None:
    with capturedLogs() as events:
        MemoryBroker().client().publish("nowhere")
        MemoryBroker().client().send("DISCONNECT")
    [line] = map(formatEvent, events)
    assert "127.0.0.1" in line
    assert "unknown-destination" in line
    assert "'nowhere'" in line
