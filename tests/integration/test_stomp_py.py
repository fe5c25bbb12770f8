"""stomp.py, the usual client library of Python, against the broker as a real process."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import stomp

from stompkit.frames import VERSIONS
from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.effort import in_matrix

DEADLINE_S = 30.0
CONNECTIONS = {
    "1.0": stomp.StompConnection10,
    "1.1": stomp.StompConnection11,
    "1.2": stomp.StompConnection12,
}
#: Options of stomp.py: undecoded bodies, and no second attempt.
OPTIONS = {"auto_decode": False, "reconnect_attempts_max": 1}
ALL_OCTETS = bytes(range(256))


class Listener:
    """Stores the events of stomp.py's thread, for the test's thread."""

    def __init__(self) -> None:
        """Start empty."""
        self.messages: queue.Queue[Any] = queue.Queue()
        self.receipts: queue.Queue[str] = queue.Queue()
        self.errors: queue.Queue[Any] = queue.Queue()
        self.beats: queue.Queue[None] = queue.Queue()
        self.disconnected = threading.Event()
        self.timed_out = False

    def on_message(self, frame: Any) -> None:
        """Store a MESSAGE frame."""
        self.messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        """Store a RECEIPT frame."""
        self.receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        """Store an ERROR frame."""
        self.errors.put(frame)

    def on_heartbeat(self) -> None:
        """Count a heart-beat."""
        self.beats.put(None)

    def on_heartbeat_timeout(self) -> None:
        """Record the timeout."""
        self.timed_out = True

    def on_disconnected(self) -> None:
        """Record the end."""
        self.disconnected.set()


class Client:
    """A connection of stomp.py, with calls that wait for receipts."""

    def __init__(self, broker: RunningBroker, version: str, **options: Any) -> None:
        """Connect and log in."""
        self.version = version
        self.listener = Listener()
        self.stomp: Any = CONNECTIONS[version](
            [(broker.host, broker.port)], **{**OPTIONS, **options}
        )
        self.stomp.set_listener("test", self.listener)
        self.stomp.connect(wait=True)
        self._asked = 0

    def ask(self, method: str, *arguments: Any, **headers: Any) -> None:
        """Call a method of stomp.py, and wait for the receipt."""
        self._asked += 1
        receipt = f"receipt:{self._asked}"  # escaped, if the version has escapes
        getattr(self.stomp, method)(*arguments, receipt=receipt, **headers)
        assert self.listener.receipts.get(timeout=DEADLINE_S) == receipt

    def receive(self, count: int) -> list[Any]:
        """Wait for this many messages."""
        return [self.listener.messages.get(timeout=DEADLINE_S) for _ in range(count)]

    def bodies(self, count: int) -> list[bytes]:
        """Wait for this many messages, and return their bodies."""
        return [frame.body for frame in self.receive(count)]

    def answer(self, verb: str, message: Any, **headers: Any) -> None:
        """Send ACK or NACK with the headers of the version."""
        if self.version == "1.2":
            names = [message.headers["ack"]]
        elif self.version == "1.1":
            names = [message.headers["message-id"], message.headers["subscription"]]
        else:
            names = [message.headers["message-id"]]
        self.ask(verb, *names, **headers)

    def has_no_more(self) -> bool:
        """Return True if no other message has arrived, after a round trip to the broker."""
        self.ask("begin", "none")
        self.ask("abort", "none")
        return self.listener.messages.empty()

    def leave(self) -> None:
        """Disconnect, and wait until that is done."""
        if self.stomp.is_connected():
            self.stomp.disconnect()
            assert self.listener.disconnected.wait(DEADLINE_S)

    def drop(self) -> None:
        """Close the socket without DISCONNECT."""
        self.stomp.transport.disconnect_socket()
        assert self.listener.disconnected.wait(DEADLINE_S)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """One broker for all tests of this file."""
    running = launch(LaunchConfig(name="stompkit"))
    yield running
    running.stop()
    assert "Traceback" not in running.log


Connect = Callable[..., Client]


@pytest.fixture
def connect(broker: RunningBroker) -> Iterator[Connect]:
    """A function that connects clients, and ends those that are left."""
    clients: list[Client] = []

    def connect(version: str, **options: Any) -> Client:
        clients.append(Client(broker, version, **options))
        return clients[-1]

    yield connect
    for client in clients:
        client.leave()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A unique name for destinations."""
    return str(request.node.name)


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("version", VERSIONS)
def test_text_is_sent_and_received(connect: Connect, name: str, version: str, kind: str) -> None:
    client = connect(version)
    client.ask("subscribe", f"/{kind}/{name}", id="1")
    text = "Grüße, 世界 \U0001f680"
    client.ask("send", f"/{kind}/{name}", text, content_type="text/plain", x="y")
    [message] = client.receive(1)
    assert message.body == text.encode()
    assert message.headers["destination"] == f"/{kind}/{name}"
    assert message.headers["content-type"] == "text/plain"
    assert message.headers["x"] == "y"
    assert message.headers["subscription"] == "1"


@pytest.mark.parametrize("receiver", VERSIONS)
@pytest.mark.parametrize("sender", VERSIONS)
def test_binary_bodies_arrive_octet_for_octet(
    connect: Connect, name: str, sender: str, receiver: str
) -> None:
    producer, consumer = connect(sender), connect(receiver)
    consumer.ask("subscribe", f"/queue/{name}", id="1")
    bodies = [ALL_OCTETS, b"", b"\0", b"\n\n\0\n", ALL_OCTETS * 8_000]
    for body in bodies:
        producer.ask("send", f"/queue/{name}", body)
    assert consumer.bodies(len(bodies)) == bodies


@pytest.mark.parametrize(
    ("version", "value"),
    [
        *[(version, value) for version in VERSIONS for value in ("a:b", "::", " a ", "ü", "")],
        *[(version, value) for version in ("1.1", "1.2") for value in ("\\", "a\nb", "\\n", "\\c")],
        *[("1.2", value) for value in ("a\rb", "\r\n", "\\:\r\n:\\")],
    ],
)
def test_header_values_survive(connect: Connect, name: str, version: str, value: str) -> None:
    client = connect(version)
    queue_name = "/queue/escapes." + name.encode("ascii", "backslashreplace").hex()
    client.ask("subscribe", queue_name, id="1")
    client.ask("send", queue_name, "body", headers={"x": value})
    [message] = client.receive(1)
    assert message.headers["x"] == value


@pytest.mark.parametrize("version", VERSIONS)
def test_auto_acknowledges_by_itself(connect: Connect, name: str, version: str) -> None:
    client = connect(version)
    client.ask("subscribe", f"/queue/{name}", id="1", ack="auto")
    client.ask("send", f"/queue/{name}", "1")
    client.receive(1)
    client.drop()
    other = connect(version)
    other.ask("subscribe", f"/queue/{name}", id="1")
    assert other.has_no_more()


@pytest.mark.parametrize("mode", ["client", "client-individual"])
@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_not_acknowledged_comes_again(
    connect: Connect, name: str, version: str, mode: str
) -> None:
    client = connect(version)
    client.ask("subscribe", f"/queue/{name}", id="1", ack=mode)
    for number in range(4):
        client.ask("send", f"/queue/{name}", str(number))
    messages = client.receive(4)
    client.answer("ack", messages[1])
    client.drop()
    other = connect(version)
    other.ask("subscribe", f"/queue/{name}", id="1")
    wanted = [b"2", b"3"] if mode == "client" else [b"0", b"2", b"3"]
    again = other.receive(len(wanted))
    assert [message.body for message in again] == wanted
    assert all(message.headers["redelivered"] == "true" for message in again)
    assert other.has_no_more()


@pytest.mark.parametrize("mode", ["client", "client-individual"])
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_nack_brings_a_message_back_and_then_to_the_dead_letters(
    connect: Connect, name: str, version: str, mode: str
) -> None:
    client = connect(version)
    client.ask("subscribe", f"/queue/{name}", id="1", ack=mode)
    client.ask("subscribe", f"/dlq/{name}", id="2")
    client.ask("send", f"/queue/{name}", "poison")
    for delivery in range(1, 7):
        [message] = client.receive(1)
        assert message.headers["subscription"] == "1"
        assert message.headers.get("delivery-count", "1") == str(delivery)
        client.answer("nack", message)
    [letter] = client.receive(1)
    assert letter.headers["subscription"] == "2"
    assert letter.headers["dead-letter-reason"] == "max-deliveries"
    assert letter.body == b"poison"
    assert client.has_no_more()


@pytest.mark.parametrize("version", VERSIONS)
def test_transactions_commit_and_abort(connect: Connect, name: str, version: str) -> None:
    client = connect(version)
    client.ask("subscribe", f"/queue/{name}", id="1", ack="client-individual")
    client.ask("send", f"/queue/{name}", "before")
    [message] = client.receive(1)
    client.ask("begin", "aborted")
    client.ask("send", f"/queue/{name}", "dropped", transaction="aborted")
    client.answer("ack", message, transaction="aborted")
    client.ask("abort", "aborted")
    client.ask("begin", "committed")
    client.ask("send", f"/queue/{name}", "after", transaction="committed")
    client.answer("ack", message, transaction="committed")
    assert client.has_no_more()
    client.ask("commit", "committed")
    assert client.bodies(1) == [b"after"]
    client.drop()
    other = connect(version)
    other.ask("subscribe", f"/queue/{name}", id="1")
    assert other.bodies(1) == [b"after"]
    assert other.has_no_more()


@pytest.mark.parametrize("version", VERSIONS)
def test_disconnect_is_answered_before_the_end(connect: Connect, name: str, version: str) -> None:
    client = connect(version)
    client.stomp.disconnect(receipt="bye")
    assert client.listener.receipts.get(timeout=DEADLINE_S) == "bye"
    assert client.listener.disconnected.wait(DEADLINE_S)
    assert client.listener.errors.empty()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_is_read_before_the_end(connect: Connect, name: str, version: str) -> None:
    client = connect(version)
    # Unread bytes after the error must not reset the connection before ERROR is read. After a
    # reset, stomp.py closes the socket, perhaps before all is sent.
    with contextlib.suppress(OSError, stomp.exception.NotConnectedException):
        for _ in range(100):
            client.stomp.send("nowhere", "x" * 1_000, receipt="mistake")
    error = client.listener.errors.get(timeout=DEADLINE_S)
    assert error.headers["stompkit-code"] == "unknown-destination"
    assert error.headers["receipt-id"] == "mistake"
    assert client.listener.disconnected.wait(DEADLINE_S)


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_heart_beats_keep_an_idle_connection(connect: Connect, name: str, version: str) -> None:
    client = connect(version, heartbeats=(100, 100))
    idle = connect(version, heartbeats=(0, 0))
    # Beats are sent every second, the broker's minimum. Without the client's own ones the broker
    # would have closed the connection before the last.
    for _ in range(5):
        client.listener.beats.get(timeout=DEADLINE_S)
    assert client.has_no_more()
    assert not client.listener.timed_out
    assert idle.has_no_more()
    assert idle.listener.beats.empty()


@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
@pytest.mark.parametrize("version", [*map(in_matrix, VERSIONS[:-1]), VERSIONS[-1]])
def test_ten_thousand_messages_arrive_in_order(
    connect: Connect, name: str, version: str, mode: str
) -> None:
    producer, consumer = connect(version), connect(version)
    consumer.ask("subscribe", f"/queue/{name}", id="1", ack=mode)
    count = 10_000

    def produce() -> None:
        for number in range(count):
            producer.stomp.send(f"/queue/{name}", str(number))

    thread = threading.Thread(target=produce)
    thread.start()
    for number in range(count):
        [message] = consumer.receive(1)
        assert message.body == str(number).encode()
        if mode == "client-individual" or (mode == "client" and number % 50 == 49):
            names = {
                "1.0": [message.headers["message-id"]],
                "1.1": [message.headers["message-id"], "1"],
                "1.2": [message.headers.get("ack")],
            }
            consumer.stomp.ack(*names[version])
    thread.join(DEADLINE_S)
    consumer.ask("unsubscribe", id="1")
    consumer.ask("subscribe", f"/queue/{name}", id="2")
    assert consumer.has_no_more()
