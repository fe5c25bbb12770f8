"""The client for tests: on the real brokers, and on scripted servers."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import struct
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stompkit.frames import Frame, FrameDecoder, LocalProtocolError
from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing.client import (
    BrokerSaidError,
    ClientFailureError,
    ConnectionLostError,
    NothingReceivedError,
    RefusedError,
    StompClient,
    UnexpectedMessageError,
)
from stompkit.testing.plugin import BrokerFactory
from tests.conformance.scripted import Line, ScriptedServer, connected, frame
from tests.effort import in_matrix
from tests.server.certificates import Authority

LONG_S = 60.0
#: Timeout in seconds for data that never arrives.
SHORT_S = 0.1
REAL = ("stompkit", "coilmq", in_matrix("activemq"), in_matrix("rabbitmq"))


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A stompkit broker."""
    with launch(LaunchConfig()) as broker:
        yield broker


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[StompClient]:
    """A session with it on STOMP 1.2."""
    with session(broker) as client:
        yield client


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A unique queue."""
    return f"/queue/{request.node.name}"


def session(broker: RunningBroker, version: str | None = None) -> StompClient:
    """Return a session with a broker, with a timeout for a busy machine."""
    return StompClient.connect(
        broker.host,
        broker.port,
        version=version,
        login=broker.login,
        passcode=broker.passcode,
        vhost=broker.vhost,
        timeout_s=LONG_S,
    )


class Wire:
    """The broker's end of a connection, controlled by the test."""

    def __init__(self) -> None:
        """Listen, connect a client, and accept it without sending anything."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.client = StompClient.open("127.0.0.1", listener.getsockname()[1], timeout_s=LONG_S)
            self.socket, _ = listener.accept()
        self.socket.settimeout(LONG_S)
        self._decoder = FrameDecoder("1.2")
        self._frames: list[Frame] = []

    def say(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        """Send a frame; headers with ``_`` for ``-``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.socket.sendall(frame(command, named, body))

    def next_frame(self) -> Frame:
        """Return the next frame that the client has sent."""
        while not self._frames:
            octets = self.socket.recv(65_536)
            assert octets, "the client has closed the connection"
            self._frames += self._decoder.feed(octets)
        return self._frames.pop(0)

    def open_session(self, version: str = "1.2") -> None:
        """Send CONNECTED, and wait until the client has read it."""
        self.say("CONNECTED", version=version)
        assert self.client.next_frame().command == "CONNECTED"

    def reset(self) -> None:
        """Reset the connection."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    """A connection whose other end the test controls."""
    wire = Wire()
    with contextlib.closing(wire.socket), wire.client:
        yield wire


def message(**headers: str) -> dict[str, str]:
    """Return the mandatory headers of MESSAGE, and more."""
    return {"destination": "/queue/q", "message-id": "7", "subscription": "s1", **headers}


# The four brokers.


@pytest.fixture(scope="module", params=REAL)
def real(
    request: pytest.FixtureRequest, stomp_broker_factory: BrokerFactory
) -> Iterator[RunningBroker]:
    """Each of the brokers that can be launched."""
    with stomp_broker_factory(request.param) as broker:
        yield broker


@pytest.mark.parametrize("version", ["1.1", None], ids=["1.1", "best"])
def test_the_whole_of_stomp_works_with_every_broker(
    real: RunningBroker, version: str | None
) -> None:
    queue = f"/queue/whole-{version}"
    with session(real, version) as client, session(real, version) as other:
        subscription = client.subscribe(queue, ack="client")
        other.send(queue, "häufig", content_type="text/plain")
        first = client.receive()
        assert (first.body, first.headers["content-type"]) == ("häufig".encode(), "text/plain")
        assert first.headers["subscription"] == subscription
        client.ack(first)
        other.begin("t")
        other.send(queue, b"committed", transaction="t")
        other.receive_nothing()
        other.commit("t")
        second = client.receive()
        assert second.body == b"committed"
        client.begin("t")
        client.ack(second, transaction="t")
        client.commit("t")
        other.begin("u")
        other.send(queue, b"aborted", transaction="u")
        other.abort("u")
        # More than one read of any broker, and with a NUL byte.
        body = b"\0" + b"x" * 100_000
        other.send(queue, body)
        third = client.receive()
        assert third.body == body
        client.ack(third)
        client.unsubscribe(subscription)
        other.send(queue, b"left")
        client.receive_nothing()
        client.subscribe(queue)
        assert client.receive().body == b"left"
        client.disconnect()
        assert not other.is_closed_by_broker


def test_an_error_of_a_real_broker_says_what_was_wrong(real: RunningBroker) -> None:
    with session(real, "1.1") as client:
        with pytest.raises(BrokerSaidError) as caught:
            client.commit("never begun")
        assert caught.value.frame.command == "ERROR"
        assert "COMMIT  transaction:'never begun'" in str(caught.value)
        assert caught.value.reason.startswith("no RECEIPT r1 of COMMIT came: the broker said ERROR")


# Opening a session.


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_session_has_the_version_that_was_asked_for(broker: RunningBroker, version: str) -> None:
    with session(broker, version) as client:
        assert client.version == version
        assert client.connected["version"] == version
        assert repr(client) == f"<StompClient on STOMP {version} to 127.0.0.1 port {broker.port}>"


def test_of_several_versions_the_broker_takes_the_best(broker: RunningBroker) -> None:
    with session(broker, "1.0,1.1") as client:
        assert client.version == "1.1"
    with session(broker) as client:
        assert client.version == "1.2"


def test_connect_has_the_headers_that_were_given_and_no_heart_beat() -> None:
    seen: list[dict[str, str]] = []

    def behaviour(line: Line) -> None:
        _, headers = line.frame()
        seen.append(headers)
        line.send(frame("CONNECTED", {"version": "1.1"}))
        line.wait()

    with ScriptedServer(behaviour) as server:
        StompClient.connect(
            "127.0.0.1",
            server.port,
            version="1.1",
            login="me",
            passcode="secret",
            vhost="/",
            headers={"client-id": "c", "host": "other"},
        ).close()
        StompClient.connect("127.0.0.1", server.port, heart_beat="100,0").close()
    assert seen[0] == {
        "accept-version": "1.1",
        "host": "other",
        "login": "me",
        "passcode": "secret",
        "client-id": "c",
    }
    assert seen[1] == {
        "accept-version": "1.0,1.1,1.2",
        "host": "127.0.0.1",
        "heart-beat": "100,0",
    }


def refusal_by(answer: bytes, *, stays: bool = False, timeout_s: float = LONG_S) -> RefusedError:
    """Return the client's error for this answer to CONNECT; by default the server closes then."""

    def behaviour(line: Line) -> None:
        line.frame()
        line.send(answer)
        if stays:
            line.wait()

    with ScriptedServer(behaviour) as server, pytest.raises(RefusedError) as caught:
        StompClient.connect(
            "127.0.0.1",
            server.port,
            version="1.1",
            login="me",
            passcode="open sesame",
            timeout_s=timeout_s,
        )
    assert "open sesame" not in str(caught.value)
    assert "> CONNECT  accept-version:1.1  host:127.0.0.1  login:me  passcode:***" in str(
        caught.value
    )
    return caught.value


def test_an_error_instead_of_connected_is_a_refusal_with_that_frame() -> None:
    refused = refusal_by(frame("ERROR", {"message": "Bad CONNECT"}, b"not open sesame\nat 1\n"))
    assert refused.frame is not None
    assert refused.frame.headers["message"] == "Bad CONNECT"
    assert refused.reason == ("no CONNECTED came: the broker said ERROR 'Bad CONNECT: not ***'")


def test_the_end_of_the_connection_instead_of_connected_is_a_refusal() -> None:
    refused = refusal_by(b"")
    assert refused.reason == (
        "no CONNECTED came: the broker closed the connection; what came instead: nothing"
    )


def test_silence_instead_of_connected_is_a_refusal_when_time_is_up() -> None:
    refused = refusal_by(b"", stays=True, timeout_s=SHORT_S)
    assert refused.reason == "no CONNECTED came in 0.1 s; what came instead: nothing"


def test_another_frame_instead_of_connected_is_a_refusal_that_names_it() -> None:
    refused = refusal_by(frame("RECEIPT", {"receipt-id": "1"}), stays=True, timeout_s=SHORT_S)
    assert refused.reason == "no CONNECTED came in 0.1 s; what came instead: RECEIPT (1)"
    assert "< RECEIPT  receipt-id:1" in str(refused)


@pytest.mark.parametrize("chosen", ["1.2", "1.0", "9.9"])
def test_a_version_that_was_not_offered_is_a_refusal(chosen: str) -> None:
    refused = refusal_by(frame("CONNECTED", {"version": chosen}))
    assert refused.reason == f"the broker chose STOMP {chosen} where 1.1 was offered"
    assert refused.frame is not None


def test_octets_that_are_no_frame_instead_of_connected_are_a_refusal() -> None:
    refused = refusal_by(b"HTTP/1.1 400 Bad Request\r\n\r\n\0", stays=True)
    assert "what the broker sent cannot be read" in refused.reason


def test_a_port_where_nobody_listens_is_an_oserror() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        StompClient.connect("127.0.0.1", port)


def test_tls_is_spoken_where_there_is_a_context_for_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.server("127.0.0.1")
    endpoint = f"ssl:0:interface=127.0.0.1:privateKey={certificate}:certKey={certificate}"
    with launch(LaunchConfig(arguments=("--endpoint", endpoint))) as broker:
        assert broker.directory is not None
        announced = json.loads((broker.directory / "announce.json").read_text())
        (port,) = {each["port"] for each in announced["endpoints"]} - {broker.port}
        context = ssl.create_default_context(cafile=str(authority.file))
        with StompClient.connect("127.0.0.1", port, tls=context, timeout_s=LONG_S) as client:
            client.subscribe("/queue/tls")
            # More than one TLS record, in both directions.
            body = b"x" * 1_000_000
            client.send("/queue/tls", body)
            assert client.receive().body == body
            client.disconnect()
        with pytest.raises(ssl.SSLError):
            StompClient.connect("127.0.0.1", port, tls=ssl.create_default_context())


@pytest.mark.parametrize("end", [StompClient.close, StompClient.reset])
def test_a_forked_child_closes_its_copy_of_the_connection_only(
    wire: Wire, end: Callable[[StompClient], None]
) -> None:
    wire.open_session()
    wire.say("MESSAGE", b"x", **message())
    child = os.fork()
    if not child:
        try:
            end(wire.client)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert wire.client.next_frame().body == b"x"
    wire.client.close()
    assert wire.socket.recv(1) == b""


# Requests.


def test_headers_are_keywords_or_a_mapping_and_win(wire: Wire) -> None:
    wire.open_session()
    wire.client.send(
        "/queue/q",
        "é",
        receipt=False,
        headers={"AMQ_SCHEDULED_DELAY": "5", "reply-to": "/queue/a"},
        reply_to="/queue/b",
        content_type="text/plain",
    )
    assert wire.next_frame() == Frame(
        "SEND",
        {
            "destination": "/queue/q",
            "AMQ_SCHEDULED_DELAY": "5",
            "reply-to": "/queue/b",
            "content-type": "text/plain",
            "content-length": "2",
        },
        "é".encode(),
    )


def test_subscriptions_get_ids_of_their_own_unless_they_have_one(wire: Wire) -> None:
    wire.open_session()
    client = wire.client
    ids = [client.subscribe("/queue/q", receipt=False) for _ in range(2)]
    assert len(set(ids)) == 2
    assert client.subscribe("/queue/r", id="mine", ack="client", receipt=False) == "mine"
    assert [wire.next_frame().headers["id"] for _ in range(3)] == [*ids, "mine"]


def test_unsubscribe_names_id_and_destination(wire: Wire) -> None:
    wire.open_session()
    wire.client.subscribe("/queue/q", id="1", receipt=False)
    wire.client.unsubscribe("1", receipt=False)
    wire.client.unsubscribe("unknown", receipt=False)
    wire.next_frame()
    assert wire.next_frame().headers == {"id": "1", "destination": "/queue/q"}
    assert wire.next_frame().headers == {"id": "unknown"}


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize(
    ("version", "more", "expected"),
    [
        ("1.0", {}, {"message-id": "7"}),
        ("1.1", {}, {"message-id": "7", "subscription": "s1"}),
        ("1.2", {"ack": "a9"}, {"id": "a9"}),
        ("1.2", {}, {"message-id": "7", "id": "s1"}),
    ],
    ids=["1.0", "1.1", "1.2", "1.2-without-ack"],
)
def test_acknowledgements_have_the_headers_of_the_version(
    wire: Wire, command: str, version: str, more: dict[str, str], expected: dict[str, str]
) -> None:
    wire.open_session(version)
    wire.say("MESSAGE", **message(**more))
    act = wire.client.ack if command == "ACK" else wire.client.nack
    act(wire.client.receive(), receipt=False)
    act(wire.client.received[-1], transaction="t")
    sent = wire.next_frame()
    assert (sent.command, sent.headers) == (command, expected)
    # Without a receipt: some brokers send it only when the transaction is committed.
    assert wire.next_frame().headers == {**expected, "transaction": "t"}


def test_a_request_is_over_when_its_own_receipt_has_come(wire: Wire) -> None:
    wire.open_session()
    wire.say("RECEIPT", receipt_id="of somebody else")
    wire.say("MESSAGE", b"1", **message())
    wire.say("RECEIPT", receipt_id="r1")
    answer = wire.client.call("BEGIN", {"transaction": "t"})
    assert answer.headers["receipt-id"] == "r1"
    assert wire.next_frame().headers == {"transaction": "t", "receipt": "r1"}
    # Other frames can still be received.
    assert wire.client.receive().body == b"1"
    assert wire.client.next_frame().headers["receipt-id"] == "of somebody else"


def test_receipts_are_waited_for_in_vain_only_as_long_as_was_said(wire: Wire) -> None:
    wire.open_session()
    wire.say("MESSAGE", **message())
    wire.client.timeout_s = SHORT_S
    with pytest.raises(NothingReceivedError) as caught:
        wire.client.send("/queue/q", b"x")
    assert caught.value.reason == (
        "no RECEIPT r1 of SEND came in 0.1 s; what came instead: MESSAGE (1)"
    )
    assert "  > SEND  destination:/queue/q  receipt:r1  'x'\n" in str(caught.value)
    assert "  < MESSAGE  destination:/queue/q  message-id:7  subscription:s1" in str(caught.value)


def test_a_frame_that_stomp_has_no_words_for_is_a_local_mistake(wire: Wire) -> None:
    wire.open_session()
    with pytest.raises(LocalProtocolError):
        wire.client.write_frame(Frame("SHOUT"))


@pytest.mark.parametrize("body", [memoryview(array("H", [1, 2])), bytearray(4)], ids=type)
def test_a_body_is_any_octets(wire: Wire, body: bytes) -> None:
    wire.open_session()
    wire.client.send("/queue/q", body, receipt=False)
    sent = wire.next_frame()
    assert sent.body == bytes(body)
    assert sent.headers["content-length"] == "4"


@pytest.mark.parametrize("body", [5, None, {"a": 1}], ids=type)
def test_a_body_that_is_neither_octets_nor_text_is_refused(wire: Wire, body: bytes) -> None:
    wire.open_session()
    with pytest.raises(TypeError, match=f"not {type(body).__name__}: encode it"):
        wire.client.send("/queue/q", body, receipt=False)


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ({"priority": 9}, "header 'priority' is 9, which is int, not str: convert it"),
        ({"header": {"a": "b"}}, r"which is dict, not str: headers=\{\.\.\.\} adds several"),
        ({"timeout": 1}, "header 'timeout' is 1, .* timeout_s of the client limits"),
        ({"passcode": 1234}, r"header 'passcode' is \*\*\*, which is int"),
    ],
)
def test_a_header_that_is_not_text_is_named(wire: Wire, header: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        wire.client.send("/queue/a", "x", **header)
    with pytest.raises(TypeError, match=problem):
        wire.client.subscribe("/queue/a", headers=header)


def test_any_octets_can_be_written(wire: Wire) -> None:
    wire.client.write(b"anything\n\n\0")
    assert wire.socket.recv(100) == b"anything\n\n\0"


def test_what_is_written_is_read_by_a_broker_that_waits_for_the_client_to_read() -> None:
    size, number = 1_048_576, 40

    def echo(line: Line) -> None:
        connected(line)
        for command, headers in line.frames():
            if command == "SEND":
                # Blocks as soon as the client does not read.
                line.send(frame("MESSAGE", {**headers, "message-id": "1"}, b"y" * size))

    with (
        ScriptedServer(echo) as server,
        StompClient.connect("127.0.0.1", server.port, timeout_s=LONG_S) as client,
    ):
        for _ in range(number):
            client.send("/queue/q", b"x" * size, receipt=False)
        assert len(client.receive_many(number)) == number


def test_a_broker_that_does_not_read_is_told_from_one_that_does(wire: Wire) -> None:
    wire.open_session()
    wire.client.timeout_s = SHORT_S
    with pytest.raises(
        ClientFailureError, match=r"the broker took only \d+ of \d+ octets in 0\.1 s"
    ):
        wire.client.send("/queue/q", b"x" * 64_000_000, receipt=False)


# Answers.


def test_receive_gives_messages_in_the_order_of_their_coming(
    client: StompClient, queue: str
) -> None:
    client.subscribe(queue)
    for body in (b"1", b"2", b"3"):
        client.send(queue, body)
    assert client.receive().body == b"1"
    assert [frame.body for frame in client.receive_many(2)] == [b"2", b"3"]
    assert [frame.command for frame in client.received].count("MESSAGE") == 3


def test_too_few_messages_are_counted(wire: Wire) -> None:
    wire.open_session()
    wire.say("MESSAGE", **message())
    with pytest.raises(NothingReceivedError) as caught:
        wire.client.receive_many(3, SHORT_S)
    assert caught.value.reason == "no MESSAGE 2 of 3 came in 0.1 s; what came instead: nothing"


def test_receive_without_time_gives_what_has_come(wire: Wire) -> None:
    wire.open_session()
    with pytest.raises(NothingReceivedError, match="in 0 s"):
        wire.client.receive(0)
    wire.say("MESSAGE", b"1", **message())
    assert wire.client.receive().body == b"1"


def test_an_error_is_raised_behind_the_messages_before_it(wire: Wire) -> None:
    wire.open_session()
    wire.say("MESSAGE", b"1", **message())
    wire.say("ERROR", b"the reason\nand where", message="oh")
    wire.say("MESSAGE", b"2", **message())
    assert wire.client.receive().body == b"1"
    with pytest.raises(BrokerSaidError) as caught:
        wire.client.receive()
    assert caught.value.reason == "no MESSAGE came: the broker said ERROR 'oh: the reason'"
    assert caught.value.frame.body == b"the reason\nand where"
    # Not all brokers close the connection then.
    assert wire.client.receive().body == b"2"


def test_next_frame_gives_an_error_as_it_is(wire: Wire) -> None:
    wire.open_session()
    wire.say("ERROR", message="oh")
    assert wire.client.next_frame().command == "ERROR"


def test_an_error_that_came_unasked_is_why_the_connection_is_lost(wire: Wire) -> None:
    wire.open_session()
    wire.say("ERROR", message="oh")
    wire.socket.close()
    wire.client.wait_closed()
    with pytest.raises(BrokerSaidError, match="not all was sent: the broker said ERROR 'oh'"):
        wire.client.send("/queue/q")
    with pytest.raises(ConnectionLostError, match="not all was sent: the broker closed"):
        wire.client.send("/queue/q")


def test_nothing_is_received_where_a_round_trip_brings_no_message(
    client: StompClient, queue: str
) -> None:
    client.subscribe(queue)
    client.receive_nothing()
    client.send(queue, b"1")
    with pytest.raises(UnexpectedMessageError) as caught:
        client.receive_nothing()
    assert caught.value.frame.body == b"1"
    assert caught.value.reason == f"a MESSAGE came from {queue!r}, where none was expected"
    assert client.receive().body == b"1"


def test_nothing_is_received_only_if_nothing_comes_in_the_time_after_it() -> None:
    def late(line: Line) -> None:
        connected(line, **{"heart-beat": "0,50"})
        for command, headers in line.frames():
            line.send(frame("RECEIPT", {"receipt-id": headers["receipt"]}))
            if command == "ABORT":
                break
        # A heart-beat: the client continues to read after its answer.
        line.receive()
        line.send(frame("MESSAGE", message()))
        line.wait()

    with (
        ScriptedServer(late) as server,
        StompClient.connect(
            "127.0.0.1", server.port, version="1.0,1.1", heart_beat="50,0", timeout_s=LONG_S
        ) as client,
        pytest.raises(UnexpectedMessageError),
    ):
        client.receive_nothing(for_s=LONG_S)


@pytest.mark.parametrize(
    ("octets", "closes", "error"),
    [
        (b"", True, ConnectionLostError),
        (frame("ERROR", {"message": "oh"}), True, BrokerSaidError),
        (frame("ERROR", {"message": "oh"}), False, BrokerSaidError),
        (b"\xff\xfe\n\n\0", False, ConnectionLostError),
    ],
    ids=("closed", "error", "error-and-open", "unreadable"),
)
def test_the_end_of_the_connection_is_no_proof_that_nothing_comes(
    octets: bytes, *, closes: bool, error: type[ClientFailureError]
) -> None:
    def cut_off(line: Line) -> None:
        connected(line, **{"heart-beat": "0,50"})
        for command, headers in line.frames():
            line.send(frame("RECEIPT", {"receipt-id": headers["receipt"]}))
            if command == "ABORT":
                break
        # A heart-beat: the client continues to read after its answer.
        line.receive()
        if octets:
            line.send(octets)
        if not closes:
            line.wait()

    with (
        ScriptedServer(cut_off) as server,
        StompClient.connect(
            "127.0.0.1", server.port, version="1.0,1.1", heart_beat="50,0", timeout_s=LONG_S
        ) as client,
        pytest.raises(error, match="whether a MESSAGE comes within 60 s cannot be known"),
    ):
        client.receive_nothing(for_s=LONG_S)


def test_octets_that_are_no_frame_are_the_end_of_the_connection(wire: Wire) -> None:
    wire.open_session()
    wire.say("MESSAGE", b"1", **message())
    wire.socket.sendall(b"\xff\xfe\n\n\0")
    assert wire.client.receive().body == b"1"
    with pytest.raises(
        ConnectionLostError, match="no MESSAGE came: what the broker sent cannot be read"
    ):
        wire.client.receive()


# Heart-beats.


def test_heart_beats_are_sent_while_the_client_waits() -> None:
    def behaviour(line: Line) -> None:
        connected(line, **{"heart-beat": "0,50"})
        beats = b""
        while len(beats) < 3:
            beats += line.receive()
        line.send(frame("MESSAGE", message(), beats.replace(b"\n", b"beat ")))
        line.wait()

    with (
        ScriptedServer(behaviour) as server,
        StompClient.connect(
            "127.0.0.1", server.port, version="1.0,1.1", heart_beat="50,0", timeout_s=LONG_S
        ) as client,
    ):
        assert client.receive().body.split() == [b"beat"] * 3


@pytest.mark.parametrize("answer", ["0,0", "nonsense", None])
def test_no_heart_beats_are_sent_where_the_broker_wants_none(answer: str | None) -> None:
    read = bytearray()

    def behaviour(line: Line) -> None:
        connected(line, **({} if answer is None else {"heart-beat": answer}))
        while True:
            read.extend(line.receive())

    with (
        ScriptedServer(behaviour) as server,
        StompClient.connect(
            "127.0.0.1", server.port, version="1.0,1.1", heart_beat="1,0", timeout_s=LONG_S
        ) as client,
    ):
        with pytest.raises(NothingReceivedError):
            client.receive(SHORT_S)
        client.send("/queue/q", receipt=False)
    assert read.startswith(b"SEND\n")


def test_a_line_end_behind_a_frame_is_no_heart_beat(wire: Wire) -> None:
    wire.open_session()
    wire.socket.sendall(b"\n")
    with pytest.raises(NothingReceivedError, match=r"no heart-beat came in 0\.1 s"):
        wire.client.wait_for_beat(SHORT_S)
    wire.socket.sendall(b"\n")
    wire.client.wait_for_beat()


def test_a_line_end_within_a_frame_is_no_heart_beat(wire: Wire) -> None:
    wire.open_session()
    wire.socket.sendall(b"\nMESSAGE\ndestination:/queue/q\ncontent-length:2\n\n")
    with pytest.raises(NothingReceivedError):
        wire.client.wait_for_beat(SHORT_S)
    wire.socket.sendall(b"\n\n")
    with pytest.raises(NothingReceivedError):
        wire.client.wait_for_beat(SHORT_S)
    wire.socket.sendall(b"\0")
    assert wire.client.receive().body == b"\n\n"


def test_a_heart_beat_of_a_real_broker_is_noticed(broker: RunningBroker) -> None:
    with StompClient.connect(
        broker.host, broker.port, heart_beat="0,1000", timeout_s=LONG_S
    ) as client:
        client.wait_for_beat()


# The end.


def test_disconnect_is_answered_before_the_connection_is_closed(wire: Wire) -> None:
    wire.open_session()
    wire.say("RECEIPT", receipt_id="r1")
    wire.client.disconnect()
    assert wire.next_frame() == Frame("DISCONNECT", {"receipt": "r1"})
    assert wire.socket.recv(1) == b""


def test_disconnect_need_not_be_answered(wire: Wire) -> None:
    wire.open_session()
    wire.client.disconnect(receipt=False)
    assert wire.next_frame() == Frame("DISCONNECT")
    assert wire.socket.recv(1) == b""


def test_close_is_an_orderly_end_without_a_word_even_if_something_was_not_read(wire: Wire) -> None:
    wire.open_session()
    wire.say("MESSAGE", **message())
    wire.say("RECEIPT", receipt_id="1")
    # Both have arrived, and one has been received.
    wire.client.receive()
    wire.say("MESSAGE", **message())
    wire.client.close()
    wire.client.close()
    assert wire.socket.recv(1) == b""
    with pytest.raises(ConnectionLostError, match="the client has closed the connection"):
        wire.client.send("/queue/q")
    assert not wire.client.is_closed_by_broker


def test_reset_cuts_the_connection_off(wire: Wire) -> None:
    wire.client.reset()
    with pytest.raises(ConnectionResetError):
        wire.socket.recv(1)


def test_a_connection_that_the_broker_has_closed_is_known(wire: Wire) -> None:
    wire.open_session()
    is_closed = wire.client.is_closed_by_broker
    assert not is_closed
    with pytest.raises(NothingReceivedError, match=r"no end of the connection came in 0\.1 s"):
        wire.client.wait_closed(SHORT_S)
    wire.say("MESSAGE", b"1", **message())
    wire.socket.close()
    wire.client.wait_closed()
    assert wire.client.is_closed_by_broker
    assert wire.client.receive().body == b"1"
    with pytest.raises(ConnectionLostError) as caught:
        wire.client.receive()
    assert caught.value.reason == (
        "no MESSAGE came: the broker closed the connection; what came instead: nothing"
    )


def test_a_reset_by_the_broker_is_told_from_a_close(wire: Wire) -> None:
    wire.open_session()
    wire.reset()
    with pytest.raises(ConnectionLostError, match="the broker reset the connection"):
        wire.client.receive()
    assert wire.client.is_closed_by_broker


# The contents of error messages.


def test_passcodes_are_not_shown_even_where_they_are_written_as_octets(wire: Wire) -> None:
    wire.client.write(b"CONNECT\npasscode:hush hush\n\n\0")
    with pytest.raises(NothingReceivedError) as caught:
        wire.client.receive(0)
    assert "hush" not in str(caught.value)
    assert "CONNECT" in str(caught.value)


def test_only_the_last_frames_are_shown(wire: Wire) -> None:
    wire.open_session()
    for n in range(100):
        wire.client.send("/queue/q", f"body {n}", receipt=False)
    with pytest.raises(NothingReceivedError) as caught:
        wire.client.receive(0)
    assert "'body 99'" in str(caught.value)
    assert "'body 50'" not in str(caught.value)


def test_a_connection_on_which_nothing_happened_says_so(wire: Wire) -> None:
    with pytest.raises(NothingReceivedError, match="no frame was sent or received"):
        wire.client.next_frame(0)
