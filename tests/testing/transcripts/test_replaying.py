"""Replaying transcripts: against running brokers, and to clients."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from stompkit.frames import Frame, LocalProtocolError, Version
from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing.frames.log import FrameLog
from stompkit.testing.transcripts import (
    Closed,
    Octets,
    Opened,
    ReplayFailedError,
    ReplayServer,
    SeenFrame,
    Transcript,
    play_client,
)
from tests.testing.transcripts.replays import (
    LOGIN,
    LONG_S,
    SHORT_S,
    Client,
    client_of,
    commands,
    work_of_two,
    written,
)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker for all tests, each of which has separate destinations."""
    with launch(LaunchConfig()) as broker:
        yield broker


def work(client: Client, destination: str, version: Version = "1.2", ids: str = "") -> None:
    """Run all kinds of requests in a short session; ``ids`` changes the ids of the client."""
    client.connect(version, login="me", passcode="swordfish")
    client.call("SUBSCRIBE", id=f"s{ids}", destination=destination, ack="client", receipt=f"1{ids}")
    for number, body in enumerate((b"one\0", b"two", b"")):
        receipt = f"{number}-{ids}"
        client.call("SEND", body, destination=destination, receipt=f"a{receipt}", foo="b")
        message = client.receive("MESSAGE")
        assert message.body == body
        client.send("BEGIN", transaction=f"t{receipt}")
        client.ack(message, transaction=f"t{receipt}", receipt=f"b{receipt}")
        client.call("COMMIT", transaction=f"t{receipt}", receipt=f"c{receipt}")
    client.call("DISCONNECT", receipt=f"2{ids}")


def recorded(broker: RunningBroker, destination: str, version: Version = "1.2") -> Transcript:
    """Return the transcript of one client's work."""
    with client_of(broker) as client:
        work(client, destination, version)
    return client.log.transcript()


def is_empty(broker: RunningBroker, destination: str) -> bool:
    """Return True if a queue has no message before a last one that is sent now."""
    with client_of(broker) as client:
        client.connect()
        client.send("SUBSCRIBE", id="s", destination=destination)
        client.send("SEND", b"the last", destination=destination)
        return client.receive("MESSAGE").body == b"the last"


# Clients' transcripts, against a broker.


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_session_is_replayed_with_the_ids_of_the_broker(
    version: Version, broker: RunningBroker
) -> None:
    destination = f"/queue/session-{version}"
    before = recorded(broker, destination, version)
    # The placeholders are ids that the broker has never sent.
    after = play_client(before.normalised(), broker.host, broker.port)
    expected = str(before.normalised()).replace("passcode:***\n", "")
    assert str(after.normalised()) == expected
    assert is_empty(broker, destination)


def test_a_replay_uses_other_ids_than_its_transcript(broker: RunningBroker) -> None:
    before = recorded(broker, "/queue/ids")
    after = play_client(before, broker.host, broker.port)
    ids = [
        {
            event.headers["message-id"]
            for event in transcript.events
            if isinstance(event, SeenFrame) and event.command == "MESSAGE"
        }
        for transcript in (before, after)
    ]
    assert ids[0].isdisjoint(ids[1])


def test_a_transcript_is_replayed_from_its_file(broker: RunningBroker) -> None:
    before = Transcript.parse(str(recorded(broker, "/queue/file")))
    after = play_client(before, broker.host, broker.port)
    assert commands(after) == commands(before)


def test_another_destination_can_be_put_in(broker: RunningBroker) -> None:
    before = recorded(broker, "/queue/first").replaced({"/queue/first": "/queue/second"})
    after = play_client(before, broker.host, broker.port)
    assert "destination:/queue/second" in str(after)
    assert "/queue/first" not in str(after)


def test_two_clients_are_replayed_on_two_connections(broker: RunningBroker) -> None:
    log = FrameLog()
    work_of_two(broker, log, "/topic/two")
    before = log.transcript()
    after = play_client(before, broker.host, broker.port)
    assert str(after.by_connection().normalised()) == str(before.by_connection().normalised())


def test_one_client_waits_until_the_broker_has_dealt_with_the_other(broker: RunningBroker) -> None:
    """Messages to a topic must not be sent before the broker has processed the subscription."""
    transcript = written(
        LOGIN
        + """
        1 <-
        SUBSCRIBE
        id:s
        destination:/topic/turns

        2 <-
        CONNECT
        accept-version:1.2
        host:localhost

        2 ->
        CONNECTED
        version:1.2

        2 <-
        SEND
        destination:/topic/turns
        body hello

        1 ->
        MESSAGE
        subscription:s
        message-id:1
        destination:/topic/turns
        body hello
        """
    )
    for _ in range(5):
        after = play_client(transcript, broker.host, broker.port)
        assert commands(after) == commands(transcript)
    with ReplayServer(after, timeout_s=LONG_S) as server:
        play_client(transcript, server.host, server.port, receipts=False)
    with pytest.raises(ReplayFailedError) as error, ReplayServer(after) as server:
        play_client(transcript, server.host, server.port)
    assert error.value.differences == [
        "#1 SUBSCRIBE: receipt: wanted none, was 'stompkit-replay-2'"
    ]


@pytest.mark.parametrize("order", ["RECEIPT first", "MESSAGE first"])
def test_the_order_of_answers_need_not_be_the_recorded_one(
    order: str, broker: RunningBroker
) -> None:
    answers = [
        "1 ->\nRECEIPT\nreceipt-id:r",
        "1 ->\nMESSAGE\nsubscription:s\nmessage-id:1\ndestination:/queue/order\nbody hello",
    ]
    if order == "MESSAGE first":
        answers.reverse()
    begin = "1 <-\nSUBSCRIBE\nid:s\ndestination:/queue/order"
    send = "1 <-\nSEND\ndestination:/queue/order\nreceipt:r\nbody hello"
    transcript = written("\n\n".join([LOGIN.strip(), begin, send, *answers]))
    after = play_client(transcript, broker.host, broker.port)
    assert commands(after) == commands(transcript)


def test_messages_of_several_subscriptions_are_told_apart(broker: RunningBroker) -> None:
    with client_of(broker) as client:
        client.connect()
        for name in ("a", "b"):
            client.call("SUBSCRIBE", id=name, destination=f"/queue/apart-{name}", receipt=name)
        for name in ("b", "a", "b"):
            client.call("SEND", b"same", destination=f"/queue/apart-{name}", receipt=f"s{name}")
        for _ in range(3):
            client.receive("MESSAGE")
    before = client.log.transcript()
    after = play_client(before, broker.host, broker.port)
    assert str(after.normalised()) == str(before.normalised())


def test_a_subscription_that_the_broker_names_is_found_by_its_destination(
    broker: RunningBroker,
) -> None:
    transcript = written(
        """
        1 <-
        CONNECT

        1 ->
        CONNECTED
        session:x

        1 <-
        SUBSCRIBE
        destination:/queue/unnamed
        ack:client

        1 <-
        SEND
        destination:/queue/unnamed
        body hello

        1 ->
        MESSAGE
        destination:/queue/unnamed
        message-id:m
        subscription:of-another-broker
        body hello

        1 <-
        ACK
        message-id:m
        receipt:r

        1 ->
        RECEIPT
        receipt-id:r

        1 <-
        DISCONNECT
        """
    )
    after = play_client(transcript, broker.host, broker.port)
    assert commands(after) == commands(transcript)
    assert is_empty(broker, "/queue/unnamed")


def test_a_destination_for_replies_is_that_of_the_replay(broker: RunningBroker) -> None:
    with client_of(broker) as client:
        client.connect()
        client.call("SUBSCRIBE", id="replies", destination="/temp-queue/mine", receipt="r1")
        client.call("SUBSCRIBE", id="requests", destination="/queue/requests", receipt="r2")
        client.call(
            "SEND",
            b"how much?",
            destination="/queue/requests",
            reply_to="/temp-queue/mine",
            receipt="r3",
        )
        request = client.receive("MESSAGE")
        assert request.headers["reply-to"] != "/temp-queue/mine"
        client.call("SEND", b"7", destination=request.headers["reply-to"], receipt="r4")
        client.receive("MESSAGE")
        client.call("DISCONNECT", receipt="r5")
    before = client.log.transcript()
    after = play_client(before, broker.host, broker.port)
    assert commands(after) == commands(before)
    assert request.headers["reply-to"] not in str(after)


def test_frames_without_content_length_stay_without(broker: RunningBroker) -> None:
    transcript = written(LOGIN + "\n    1 <-\n    SEND\n    destination:/queue/a\n    body hello")
    with ReplayServer(transcript) as server:
        play_client(transcript, server.host, server.port)
    (sent,) = server.frames.find("SEND")
    assert sent.headers == {"destination": "/queue/a"}
    assert sent.text == "hello"


def test_a_masked_body_gets_the_length_that_it_has_now() -> None:
    log = FrameLog(secrets=["swordfish"])
    frame = Frame("SEND", {"destination": "/queue/a", "content-length": "9"}, b"swordfish")
    log.record("received", 1, Frame("CONNECT", {"accept-version": "1.2"}))
    log.record("sent", 1, Frame("CONNECTED", {"version": "1.2"}))
    log.record("received", 1, frame)
    with ReplayServer(log.transcript()) as server:
        play_client(log.transcript(), server.host, server.port)
    assert server.frames.find("SEND")[0].headers["content-length"] == "3"


def test_who_logs_in_can_be_replaced_and_stays_secret() -> None:
    transcript = written(
        """
        1 <-
        CONNECT
        accept-version:1.2
        host:localhost
        login:somebody
        passcode:***
        heart-beat:1000,1000

        1 ->
        CONNECTED
        version:1.2
        """
    )
    with launch(LaunchConfig(login="me", passcode="swordfish")) as broker:
        address = broker.host, broker.port
        with pytest.raises(ReplayFailedError, match="ERROR came instead") as error:
            play_client(transcript, *address)
        assert "passcode" not in str(error.value).partition("the last that happened")[2]
        after = play_client(transcript, *address, login="me", passcode="swordfish", vhost="x")
    connect = after.events[1]
    assert isinstance(connect, SeenFrame)
    assert connect.headers == {
        "accept-version": "1.2",
        "host": "x",
        "login": "me",
        "passcode": "***",
        "heart-beat": "0,0",
    }
    assert "swordfish" not in str(after)


def test_an_error_is_replayed_like_any_answer(broker: RunningBroker) -> None:
    transcript = written(
        LOGIN
        + """
        1 <-
        SEND
        foo:bar

        1 ->
        ERROR
        message:something else

        1 closed-by-broker
        """
    )
    after = play_client(transcript, broker.host, broker.port)
    assert commands(after) == ["CONNECT", "CONNECTED", "SEND", "ERROR"]
    assert isinstance(after.events[-1], Closed)


def test_octets_that_are_no_frame_are_sent_as_they_are(broker: RunningBroker) -> None:
    transcript = Transcript(
        (
            Octets("received", 1, b"GET / HTTP/1.1\n\n\0"),
            SeenFrame("sent", 1, 0.0, Frame("ERROR")),
            Closed(1, by="broker"),
        )
    )
    assert commands(play_client(transcript, broker.host, broker.port)) == ["ERROR"]


def test_frames_that_were_not_recorded_come_at_the_end() -> None:
    begin = "\n\n1 <-\nSUBSCRIBE\nid:s\ndestination:/queue/a"
    message = "\n\n1 ->\nMESSAGE\nsubscription:s\nmessage-id:1\nbody more"
    end = "\n\n1 <-\nDISCONNECT\nreceipt:r\n\n1 ->\nRECEIPT\nreceipt-id:r\n\n1 closed"
    with ReplayServer(written(LOGIN + begin + message + end)) as server:
        after = play_client(written(LOGIN + begin + end), server.host, server.port)
    assert commands(after)[-2:] == ["RECEIPT", "MESSAGE"]
    assert isinstance(after.events[-1], Closed)


def test_an_answer_that_does_not_come_is_told_with_what_came(broker: RunningBroker) -> None:
    transcript = written(
        LOGIN
        + """
        1 <-
        SUBSCRIBE
        id:s
        destination:/queue/wrong
        receipt:r

        1 ->
        MESSAGE
        subscription:s
        message-id:1
        destination:/queue/wrong
        """
    )
    with pytest.raises(ReplayFailedError) as error:
        play_client(transcript, broker.host, broker.port, timeout_s=SHORT_S)
    lines = str(error.value).splitlines()
    assert lines[0].startswith("replaying #1 sent     MESSAGE  subscription:s")
    assert lines[0].endswith("it did not come within 0.2 s")
    assert lines[1:3] == ["what came and was not waited for:", "  RECEIPT  receipt-id:r"]
    assert "#1 received SUBSCRIBE" in lines[-1]


@pytest.mark.parametrize("answer", ["RECEIPT\nreceipt-id:r", "MESSAGE\nmessage-id:1"])
def test_an_error_instead_of_an_answer_is_told_at_once(answer: str, broker: RunningBroker) -> None:
    transcript = written(f"{LOGIN}\n\n1 <-\nSEND\nreceipt:r\n\n1 ->\n{answer}")
    began = time.monotonic()
    with pytest.raises(ReplayFailedError, match=r"ERROR came instead\n.*\n  ERROR .*destination"):
        play_client(transcript, broker.host, broker.port, timeout_s=LONG_S)
    assert time.monotonic() - began < LONG_S


def test_a_broker_that_closes_too_early_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.listen()
        transcript = written(LOGIN)
        server.settimeout(LONG_S)

        def play() -> None:
            play_client(transcript, *server.getsockname(), timeout_s=LONG_S)

        with answering(server, b""), pytest.raises(ReplayFailedError, match="closed instead"):
            play()
        with answering(server, b"HTTP/1.1 400 Bad Request\n\n"):
            with pytest.raises(ReplayFailedError, match=r"what is no frame .*unknown command"):
                play()


@contextmanager
def answering(
    server: socket.socket, *answers: bytes, reset: bool = False, keep: bool = False
) -> Iterator[None]:
    """Answer the first bytes of each client, and end the connection, in another thread.

    ``reset`` ends it with a reset, and ``keep`` only when the context is left.
    """
    left = threading.Event()

    def answer() -> None:
        with ExitStack() as stack:
            for octets in answers:
                client = stack.enter_context(server.accept()[0])
                client.recv(65_536)
                client.sendall(octets)
                if reset:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    client.close()
                elif not keep:
                    client.shutdown(socket.SHUT_WR)
            left.wait(LONG_S)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join(LONG_S)
    assert not thread.is_alive()


def test_a_broker_that_has_closed_before_something_is_sent_is_told() -> None:
    second = LOGIN.replace("1 <-", "2 <-").replace("1 ->", "2 ->")
    transcript = written(f"{LOGIN}\n{second}\n1 <-\nSEND\nfoo:bar")
    answer = b"CONNECTED\nversion:1.2\n\n\0"
    with socket.create_server(("127.0.0.1", 0)) as server:
        with (
            answering(server, answer, answer, reset=True),
            pytest.raises(ReplayFailedError) as error,
        ):
            play_client(transcript, *server.getsockname(), timeout_s=LONG_S)
    assert error.value.differences == ["replaying #1 received SEND  foo:bar: the broker has closed"]


def test_octets_that_are_no_frame_at_the_end_are_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with answering(server, b"CONNECTED\nversion:1.2\n\n\0HELLO\n\n\0"):
            with pytest.raises(
                ReplayFailedError, match=r"what is no frame .*unknown command 'HELLO'"
            ):
                play_client(written(LOGIN), *server.getsockname(), timeout_s=LONG_S)


@pytest.mark.parametrize("refusal", ["ERROR\nmessage:no\n\n\0", ""])
def test_a_frame_that_is_refused_is_not_waited_for_before_the_next_client(refusal: str) -> None:
    """The broker of the replay sends ERROR, or closes, where another one did not answer."""
    second = LOGIN.replace("1 <-", "2 <-").replace("1 ->", "2 ->")
    transcript = written(f"{LOGIN}\n1 <-\nBEGIN\ntransaction:t\n\n{second}")
    answers = [f"CONNECTED\nversion:1.2\n\n\0{refusal}", "CONNECTED\nversion:1.2\n\n\0"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        with answering(server, *[answer.encode() for answer in answers]):
            after = play_client(transcript, *server.getsockname(), timeout_s=LONG_S)
    assert commands(after)[:5] == ["CONNECT", "CONNECTED", "BEGIN", "CONNECT", "CONNECTED"]


def test_a_broker_that_keeps_the_connection_is_left_after_the_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer = b"CONNECTED\nversion:1.2\n\n\0"
        with answering(server, answer, keep=True):
            after = play_client(written(LOGIN), *server.getsockname(), timeout_s=SHORT_S)
    assert commands(after) == ["CONNECT", "CONNECTED"]


def test_a_broker_that_does_not_close_as_it_did_is_told(broker: RunningBroker) -> None:
    transcript = written(LOGIN + "\n    1 closed-by-broker")
    with pytest.raises(ReplayFailedError, match=r"it did not close within 0\.2 s"):
        play_client(transcript, broker.host, broker.port, timeout_s=SHORT_S)


def test_nobody_to_replay_to_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    with pytest.raises(ConnectionRefusedError):
        play_client(written(LOGIN), *address)


@pytest.mark.parametrize(
    ("transcript", "problem"),
    [
        (Transcript((Opened(1),), forgotten=2), "2 events are missing before the first one"),
        (
            Transcript((Opened(1), SeenFrame("received", 1, 0.0, Frame("SEND"), cut_bytes=5))),
            r"its body is not complete \(event 2: #1 received SEND  \(5 more octets\)\)",
        ),
        (
            Transcript((Octets("sent", 1, b"x"),)),
            r"what is no frame cannot be waited for \(event 1: #1 sent     no frame but b'x'\)",
        ),
    ],
)
def test_what_can_not_be_replayed_is_told_before_anything_happens(
    transcript: Transcript, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        play_client(transcript, "host.invalid", 1)


def test_a_frame_that_stomp_can_not_express_is_told_before_anything_happens() -> None:
    frame = Frame("CONNECT", {"login": "a\nb"})
    transcript = Transcript((SeenFrame("received", 1, 0.0, frame),))
    with pytest.raises(LocalProtocolError, match="'login'"):
        play_client(transcript, "host.invalid", 1)
