"""Replaying a broker's transcript to clients that act equally or differently."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from stompkit.frames import Frame, LocalProtocolError
from stompkit.testing import LaunchConfig, launch
from stompkit.testing.frames.log import FrameLog
from stompkit.testing.transcripts import (
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
    client_of,
    commands,
    work_of_two,
    written,
)

#: A client that subscribes, receives two messages, acknowledges one in a transaction, and
#: disconnects.
SESSION = (
    LOGIN
    + """
    1 <-
    SUBSCRIBE
    id:s
    destination:/queue/a
    receipt:r1

    1 ->
    RECEIPT
    receipt-id:r1

    1 ->
    MESSAGE
    subscription:s
    message-id:m1
    ack:a1
    destination:/queue/a
    body one

    1 <-
    BEGIN
    transaction:t

    1 <-
    ACK
    id:a1
    transaction:t

    1 <-
    COMMIT
    transaction:t

    1 <-
    DISCONNECT
    receipt:r2

    1 ->
    RECEIPT
    receipt-id:r2

    1 closed
"""
)


def refused(server: ReplayServer) -> bool:
    """Return True if the server no longer listens."""
    try:
        socket.create_connection((server.host, server.port), LONG_S).close()
    except ConnectionRefusedError:
        return True
    return False


def differences(transcript: Transcript, *frames: Frame) -> list[str]:
    """Return the differences when a client logs in and sends these frames."""
    with pytest.raises(ReplayFailedError) as error, ReplayServer(transcript) as server:
        with client_of(server) as client:
            client.connect()
            for frame in frames:
                client.send(frame.command, frame.body, **frame.headers)
            while client.read():
                pass
    assert error.value.differences == server.differences
    assert all(line in str(error.value) for line in server.differences)
    return server.differences


def test_a_client_is_answered_with_the_ids_that_it_chooses() -> None:
    with ReplayServer(written(SESSION)) as server, client_of(server) as client:
        client.connect()
        client.call("SUBSCRIBE", id="mine", destination="/queue/a", receipt="other-1")
        message = client.receive("MESSAGE")
        assert message.headers["subscription"] == "mine"
        assert message.body == b"one"
        client.send("BEGIN", transaction="x")
        client.send("ACK", id=message.headers["ack"], transaction="x")
        client.send("COMMIT", transaction="x")
        client.call("DISCONNECT", receipt="other-2")
        assert client.read() == b""
    assert server.differences == []
    assert [seen.command for seen in server.frames.all] == commands(written(SESSION))
    assert refused(server)


def test_what_a_real_broker_did_is_replayed_to_the_same_clients() -> None:
    log = FrameLog()
    with launch(LaunchConfig()) as broker:
        work_of_two(broker, log, "/queue/a")
    with ReplayServer(log.transcript()) as server:
        again = FrameLog()
        work_of_two(server, again, "/queue/a")
    before, after = log.transcript(), again.transcript()
    # A replay negotiates no heart-beats.
    expected = str(before.by_connection().normalised()).replace("1000,1000", "0,0")
    assert str(after.by_connection().normalised()) == expected


@pytest.mark.parametrize("normalised", ["as it is", "normalised"])
def test_a_transcript_can_be_played_against_itself(normalised: str) -> None:
    transcript = written(SESSION)
    if normalised == "normalised":
        transcript = transcript.normalised()
    with ReplayServer(transcript) as server:
        after = play_client(transcript, server.host, server.port)
    assert after.normalised() == Transcript((Opened(1), *transcript.normalised().events), 0, False)


def test_headers_and_bodies_that_differ_are_told_and_answered_all_the_same() -> None:
    transcript = written(
        LOGIN
        + """
        1 <-
        SEND
        destination:/queue/a
        foo:bar
        receipt:r
        body hello

        1 ->
        RECEIPT
        receipt-id:r

        1 <-
        DISCONNECT
        """
    )
    with pytest.raises(ReplayFailedError) as error, ReplayServer(transcript) as server:
        with client_of(server) as client:
            client.connect()
            client.call("SEND", b"bye", destination="/queue/b", more="x", receipt="y")
            client.send("DISCONNECT")
    assert server.differences == [
        "#1 SEND: destination: wanted '/queue/a', was '/queue/b'",
        "#1 SEND: foo: wanted 'bar', was missing",
        "#1 SEND: more: wanted none, was 'x'",
        "#1 SEND: body: wanted b'hello', was b'bye'",
    ]
    assert str(error.value).startswith("not as in the transcript:\n#1 SEND: destination:")
    assert "#1 received SEND  destination:/queue/b" in str(error.value)


def test_repeated_headers_are_compared_too() -> None:
    headers = {"destination": "/queue/a", "foo": "1", "bar": "1", "skip": "1"}
    send = Frame("SEND", headers, repeated=(("foo", "2"), ("bar", "***"), ("skip", "2")))
    transcript = Transcript((*written(LOGIN).events, SeenFrame("received", 1, 0.0, send)))
    with (
        pytest.raises(ReplayFailedError, match="foo repeated"),
        ReplayServer(transcript, ignore=["skip"]) as server,
        client_of(server) as client,
    ):
        client.connect()
        client.write(
            b"SEND\ndestination:/queue/a\nfoo:1\nbar:1\nbar:2\nskip:1\nmore:1\nmore:2\n\n\0"
        )
    assert server.differences == [
        "#1 SEND: more: wanted none, was '1'",
        "#1 SEND: foo repeated: wanted '2', was missing",
        "#1 SEND: more repeated: wanted none, was '2'",
    ]


def test_headers_that_may_differ_are_named() -> None:
    transcript = written(LOGIN + "\n1 <-\nSEND\ndestination:/queue/a\nstamp:1")
    with ReplayServer(transcript, ignore=["stamp"]) as server, client_of(server) as client:
        client.connect()
        client.send("SEND", destination="/queue/a", stamp="2", content_length="0")


def test_passcodes_and_other_masked_values_are_not_compared() -> None:
    transcript = written(LOGIN.replace("host:localhost", "host:***\n    passcode:***"))
    with ReplayServer(transcript) as server, client_of(server) as client:
        client.connect(passcode="swordfish")
    assert "swordfish" not in server.frames.text()


def test_heart_beats_are_not_agreed_upon() -> None:
    transcript = written(LOGIN + "    heart-beat:5,5\n")
    with ReplayServer(transcript) as server, client_of(server) as client:
        client.send("CONNECT", accept_version="1.2", host="localhost")
        assert client.receive("CONNECTED").headers["heart-beat"] == "0,0"


def test_another_command_ends_it_with_words() -> None:
    with pytest.raises(ReplayFailedError) as error, ReplayServer(written(SESSION)) as server:
        with client_of(server) as client:
            client.connect()
            client.send("SEND", b"x", destination="/queue/a", receipt="r")
            answer = client.receive("ERROR")
            assert client.read() == b""
    problem = (
        "wanted #1 received SUBSCRIBE  id:s  destination:/queue/a  receipt:r1,"
        " was SEND  destination:/queue/a  receipt:r  content-length:1  'x'"
    )
    assert server.differences == [problem]
    assert answer.body.decode() == problem
    assert problem in str(error.value)


def test_the_first_command_that_is_another_is_the_only_one_that_is_told() -> None:
    found = differences(
        written(SESSION), Frame("BEGIN", {"transaction": "t"}), Frame("ABORT", {"transaction": "t"})
    )
    assert len(found) == 1
    assert found[0].endswith("was BEGIN  transaction:t")


def test_octets_that_are_no_frame_end_it() -> None:
    with pytest.raises(ReplayFailedError), ReplayServer(written(SESSION)) as server:
        with client_of(server) as client:
            client.connect()
            client.write(b"HELLO\n\n\0")
            assert "not as in the transcript" in str(client.receive("ERROR"))
    assert "#1 received what is no frame: unknown command 'HELLO'" in server.differences[0]


def test_a_client_that_leaves_early_is_told() -> None:
    with pytest.raises(ReplayFailedError) as error, ReplayServer(written(SESSION)) as server:
        with client_of(server) as client:
            client.connect()
    assert error.value.differences == [
        "the client has closed instead of:"
        " #1 received SUBSCRIBE  id:s  destination:/queue/a  receipt:r1"
    ]


@pytest.mark.parametrize("transcript", [SESSION, "1 closed"])
def test_nobody_who_comes_is_told_after_the_time(transcript: str) -> None:
    with pytest.raises(ReplayFailedError) as error:
        with ReplayServer(written(transcript), timeout_s=SHORT_S):
            pass
    assert error.value.differences[0].startswith("has not happened: #1 ")


def test_a_client_that_stays_silent_is_told_after_the_time() -> None:
    server = ReplayServer(written(SESSION), timeout_s=SHORT_S).start()
    with client_of(server) as client:
        client.connect()
        with pytest.raises(ReplayFailedError, match="has not happened: #1 received SUBSCRIBE"):
            server.check()


def test_a_client_that_does_not_leave_as_it_did_is_told() -> None:
    server = ReplayServer(written(LOGIN + "\n    1 closed"), timeout_s=SHORT_S).start()
    with client_of(server) as client:
        client.connect()
        with pytest.raises(ReplayFailedError, match="has not happened: #1 closed"):
            server.check()


def test_what_is_still_under_way_at_the_end_is_waited_for() -> None:
    with ReplayServer(written(LOGIN + "\n1 <-\nSEND\nfoo:bar"), timeout_s=LONG_S) as server:
        with client_of(server) as client:
            client.connect()
            client.send("SEND", foo="bar")
    assert server.differences == []


def test_frames_that_were_not_recorded_are_told() -> None:
    found = differences(written(LOGIN), Frame("SEND", {"foo": "bar"}))
    assert found == ["#1 received what was not recorded: SEND  foo:bar"]


def test_frames_where_the_client_had_closed_are_told() -> None:
    found = differences(written(LOGIN + "\n    1 closed"), Frame("SEND", {"foo": "bar"}))
    assert found == ["#1 received what was not recorded: SEND  foo:bar"]


def test_a_connection_that_was_not_recorded_is_closed_and_told() -> None:
    with pytest.raises(ReplayFailedError) as error, ReplayServer(written(LOGIN)) as server:
        with client_of(server) as client, client_of(server) as other:
            client.connect()
            assert other.read() == b""
    assert error.value.differences == ["one more connection than was recorded"]


def test_a_receipt_that_nobody_asks_for_is_not_sent() -> None:
    text = SESSION.replace("1 <-\n    BEGIN", "1 <-\n    BEGIN\n    foo:bar")
    with pytest.raises(ReplayFailedError), ReplayServer(written(text)) as server:
        with client_of(server) as client:
            client.connect()
            client.send("SUBSCRIBE", id="s", destination="/queue/a")
            client.receive("MESSAGE")
    assert server.differences[0] == "#1 SUBSCRIBE: receipt: wanted 'r1', was missing"
    assert server.frames.find("RECEIPT") == []


def test_a_receipt_that_was_not_asked_for_before_is_sent_now() -> None:
    transcript = written(LOGIN + "\n1 <-\nBEGIN\ntransaction:t")
    with pytest.raises(ReplayFailedError), ReplayServer(transcript) as server:
        with client_of(server) as client:
            client.connect()
            client.call("BEGIN", transaction="t", receipt="r")
    assert server.differences == ["#1 BEGIN: receipt: wanted none, was 'r'"]


def test_an_id_that_is_used_wrongly_is_told() -> None:
    transcript = written(
        LOGIN
        + """
        1 <-
        SUBSCRIBE
        id:s

        1 <-
        UNSUBSCRIBE
        id:s
        """
    )
    frames = Frame("SUBSCRIBE", {"id": "x"}), Frame("UNSUBSCRIBE", {"id": "y"})
    found = differences_without_end(transcript, *frames)
    assert found == ["#1 UNSUBSCRIBE: id: wanted 'x', was 'y'"]


def differences_without_end(transcript: Transcript, *frames: Frame) -> list[str]:
    """Return ``differences`` of a client that does not wait for the server to close."""
    with pytest.raises(ReplayFailedError), ReplayServer(transcript) as server:
        with client_of(server) as client:
            client.connect()
            for frame in frames:
                client.send(frame.command, frame.body, **frame.headers)
    return server.differences


def test_what_the_broker_sent_waits_for_what_it_came_after_on_another_connection() -> None:
    text = LOGIN + LOGIN.replace("1 <-", "2 <-").replace("1 ->", "2 ->")
    text += "\n1 <-\nSEND\nfoo:bar\n\n2 ->\nMESSAGE\nmessage-id:m"
    with ReplayServer(written(text)) as server:
        with client_of(server) as sender, client_of(server) as receiver:
            sender.connect()
            receiver.connect()
            assert not receiver.disturbed(SHORT_S)
            sender.send("SEND", foo="bar")
            receiver.receive("MESSAGE")


def test_a_client_that_is_gone_when_something_is_sent_is_told() -> None:
    text = LOGIN + LOGIN.replace("1 <-", "2 <-").replace("1 ->", "2 ->")
    text += "\n1 ->\nMESSAGE\nmessage-id:m"
    with pytest.raises(ReplayFailedError) as error, ReplayServer(written(text)) as server:
        with client_of(server) as first:
            first.connect()
            first.reset()
        server.frames.wait_for_connections(0, timeout_s=LONG_S)
        with client_of(server) as second:
            second.connect()
    assert error.value.differences == ["#1 has closed, or does not read: MESSAGE  message-id:m"]


def test_the_broker_closes_where_it_did() -> None:
    with ReplayServer(written(LOGIN + "\n    1 closed-by-broker")) as server:
        with client_of(server) as client:
            client.connect()
            assert client.read() == b""


def test_octets_of_the_broker_are_sent_as_they_are() -> None:
    with ReplayServer(Transcript((Octets("sent", 1, b"\x16\x03"),))) as server:
        with client_of(server) as client:
            assert client.read() == b"\x16\x03"


def test_an_error_of_the_test_is_not_hidden_nor_held_up() -> None:
    began = time.monotonic()
    with pytest.raises(KeyError), ReplayServer(written(SESSION), timeout_s=LONG_S) as server:
        raise KeyError
    assert time.monotonic() - began < LONG_S
    assert refused(server)


def test_stopping_twice_is_harmless() -> None:
    server = ReplayServer(Transcript()).start()
    server.stop()
    server.stop()
    server.check()


def test_a_replay_starts_once() -> None:
    with ReplayServer(Transcript()) as server, pytest.raises(RuntimeError, match="once only"):
        server.start()
    with pytest.raises(RuntimeError, match="once only"):
        server.start()


def test_a_client_that_never_stops_sending_does_not_hold_up_the_end() -> None:
    server = ReplayServer(written(LOGIN), timeout_s=SHORT_S).start()
    stopped = threading.Event()
    with client_of(server) as client:
        client.connect()

        def send() -> None:
            with contextlib.suppress(OSError):
                while not stopped.is_set():
                    client.write(b"SEND\n\n\0" * 100)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            with pytest.raises(ReplayFailedError, match="received what was not recorded: SEND"):
                server.frames.wait_for("SEND", timeout_s=LONG_S)
                server.check()
        finally:
            stopped.set()
            sender.join(LONG_S)


def test_what_goes_wrong_in_the_server_itself_is_not_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(connection: int) -> None:
        raise OSError(f"no room for {connection}")

    server = ReplayServer(written(LOGIN)).start()
    monkeypatch.setattr(server.frames, "opened", fail)
    with client_of(server), pytest.raises(RuntimeError, match="the replay has failed") as error:
        server.check()
    assert str(error.value.__cause__) == "no room for 1"


def test_a_port_can_be_chosen() -> None:
    with ReplayServer(Transcript()) as first:
        with pytest.raises(OSError, match="in use"):
            ReplayServer(Transcript(), port=first.port).start()
    with ReplayServer(Transcript(), port=first.port) as second:
        assert second.port == first.port


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (Octets("received", 1, b"x"), "what is no frame cannot be waited for"),
        (SeenFrame("sent", 1, 0.0, Frame("MESSAGE"), cut_bytes=1), "its body is not complete"),
    ],
)
def test_what_can_not_be_replayed_is_told(event: Octets | SeenFrame, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ReplayServer(Transcript((event,)))


def test_a_frame_that_stomp_can_not_express_is_told() -> None:
    frame = Frame("CONNECTED", {"session": "a\nb"})
    with pytest.raises(LocalProtocolError, match="'session'"):
        ReplayServer(Transcript((SeenFrame("sent", 1, 0.0, frame),)))
