"""The selection of frames."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given

from stompkit.frames import Frame
from stompkit.testing.frames.matching import Match, match_of_call
from stompkit.testing.strategies import client_frames, frames, server_frames

MESSAGE = Frame("MESSAGE", {"destination": "/queue/a", "message-id": "7"}, "grün".encode())


def fits(match: Match, frame: Frame = MESSAGE) -> bool:
    return match("sent", 2, frame)


@given(frames("1.2"))
def test_a_match_without_demands_takes_every_frame(frame: Frame) -> None:
    assert fits(Match.of(), frame)
    assert Match.of().differences("sent", 1, frame) == []


@given(frames("1.2"))
def test_a_frame_is_what_its_own_command_headers_and_body_say(frame: Frame) -> None:
    own = Match.of(frame.command, headers=frame.headers, body=frame.body)
    assert fits(own, frame)
    assert own.differences("sent", 2, frame) == []
    assert not fits(own, Frame(frame.command, frame.headers, frame.body + b"."))
    for name in frame.headers:
        without = {key: value for key, value in frame.headers.items() if key != name}
        assert not fits(own, Frame(frame.command, without, frame.body))


@pytest.mark.parametrize(
    "wanted",
    [
        Match.of("MESSAGE"),
        Match.of(destination="/queue/a"),
        Match.of(message_id="7"),
        Match.of(headers={"message-id": "7"}, destination="/queue/a"),
        Match.of(destination=re.compile("^/queue/")),
        Match.of(destination=re.compile("a$"), subscription=None),
        Match.of(body="grün"),
        Match.of(body="grün".encode()),
        Match.of(body=re.compile("r.n")),
        Match.of(body=re.compile(rb"r..n")),
        Match.of(direction="sent"),
        Match.of(connection=2),
    ],
    ids=str,
)
def test_what_is_wanted_and_is_so_matches(wanted: Match) -> None:
    assert fits(wanted)
    assert wanted.differences("sent", 2, MESSAGE) == []


@pytest.mark.parametrize(
    ("wanted", "difference"),
    [
        (Match.of("RECEIPT"), "command: wanted RECEIPT, was MESSAGE"),
        (Match.of(destination="/queue/b"), "destination: wanted '/queue/b', was '/queue/a'"),
        (Match.of(destination="/queue/"), "destination: wanted '/queue/', was '/queue/a'"),
        (
            Match.of(destination=re.compile("^a")),
            "destination: wanted matching '^a', was '/queue/a'",
        ),
        (Match.of(ack="1"), "ack: wanted '1', was missing"),
        (Match.of(ack=re.compile("")), "ack: wanted matching '', was missing"),
        (Match.of(message_id=None), "message-id: wanted none, was '7'"),
        (Match.of(body=""), "body: wanted '', was 'grün'"),
        (Match.of(body="grü"), "body: wanted 'grü', was 'grün'"),
        (Match.of(body=b"gr"), r"body: wanted b'gr', was b'gr\xc3\xbcn'"),
        (Match.of(body=re.compile("R")), "body: wanted matching 'R', was 'grün'"),
        (Match.of(direction="received"), "direction: wanted received, was sent"),
        (Match.of(connection=1), "connection: wanted 1, was 2"),
    ],
    ids=str,
)
def test_what_is_not_so_is_told(wanted: Match, difference: str) -> None:
    assert not fits(wanted)
    assert wanted.differences("sent", 2, MESSAGE) == [difference]


def test_every_difference_is_told() -> None:
    wanted = Match.of("SEND", direction="received", connection=1, body="x", message_id="8")
    assert len(wanted.differences("sent", 2, MESSAGE)) == 5


def test_of_a_repeated_header_the_first_value_counts() -> None:
    frame = Frame("SEND", {"foo": "first"}, repeated=(("foo", "second"),))
    assert fits(Match.of(foo="first"), frame)
    assert not fits(Match.of(foo="second"), frame)


def test_a_body_that_is_no_text_is_searched_and_shown_all_the_same() -> None:
    frame = Frame("SEND", body=b"\xffend")
    assert fits(Match.of(body=re.compile("end$")), frame)
    wanted = Match.of(body="end")
    assert wanted.differences("sent", 1, frame) == [r"body: wanted 'end', was '\\xffend'"]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Match.of(), "any frame"),
        (Match.of("MESSAGE", destination="/queue/x"), "MESSAGE with destination '/queue/x'"),
        (
            Match.of("ACK", direction="received", connection=3, id=None, transaction="t"),
            "ACK received on connection 3 without id, with transaction 't'",
        ),
        (
            Match.of(foo=re.compile("^a+"), body=b"\0"),
            r"any frame with foo matching '^a+', with the body b'\x00'",
        ),
        (Match.of("CONNECT", passcode=re.compile("s")), "CONNECT with passcode ***"),
    ],
)
def test_a_match_says_in_words_what_it_wants(wanted: Match, words: str) -> None:
    assert str(wanted) == words


def test_passcodes_are_not_told() -> None:
    wanted = Match.of("CONNECT", passcode="wanted")
    frame = Frame("CONNECT", {"passcode": "actual"})
    assert wanted.differences("received", 1, frame) == ["passcode: wanted ***, was ***"]


def test_long_values_are_told_in_short() -> None:
    wanted = Match.of(body="a" * 5_000, foo="b" * 5_000)
    assert len(str(wanted)) < 500
    (foo, body) = wanted.differences("sent", 1, Frame("SEND", {"foo": "c" * 10_000}, b"d" * 10_000))
    assert len(foo) < 500
    assert len(body) < 500
    assert "(10000 characters)" in body


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"command": "subscribe"}, "'subscribe' is not a command of STOMP"),
        ({"direction": "out"}, "direction is 'out', not received or sent"),
        (
            {"command": "MESSAGE", "direction": "received"},
            "direction is 'received' as the broker sees it, but only brokers send MESSAGE",
        ),
        (
            {"command": "SEND", "direction": "sent"},
            "direction is 'sent' as the broker sees it, but only clients send SEND: use",
        ),
        ({"connection": 0}, "connection is 0, not a number from 1"),
        ({"connection": True}, "connection is True, not a number from 1"),
        ({"connection": "1"}, "connection is '1', not a number from 1"),
        ({"headers": {"receipt": 1}}, "header 'receipt' is to be matched with 1"),
        ({"headers": {"foo": re.compile(b"x")}}, "header 'foo' is to be matched with re.compile"),
        ({"body": 5}, "the body is to be matched with 5"),
    ],
)
def test_what_could_never_match_is_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(problem)):
        Match(**arguments)


@given(client_frames("1.2"), server_frames("1.2"))
def test_each_command_is_sought_in_the_direction_of_its_sender_only(
    received: Frame, sent: Frame
) -> None:
    assert Match.of(received.command, direction="received")("received", 1, received)
    assert Match.of(sent.command, direction="sent")("sent", 1, sent)
    for command, direction in ((received.command, "sent"), (sent.command, "received")):
        with pytest.raises(ValueError, match=f"send {command}: use "):
            match_of_call(command, {"direction": direction})


def test_a_keyword_like_a_parameter_is_suggested() -> None:
    for keywords, parameters, meant in (
        ({"conection": 1}, (), "connection"),
        ({"cuont": 2}, ("count",), "count"),
    ):
        with pytest.raises(TypeError, match=f"nor None; did you mean {meant}\\?$"):
            match_of_call("SEND", keywords, parameters)
    # A header whose value is no text, and not a misspelt parameter.
    with pytest.raises(TypeError, match=r"'priority' is to be matched with 9, .* nor None$"):
        match_of_call("SEND", {"priority": 9}, ("probability", "count"))
    assert match_of_call("SEND", {"tims": "1"}, ("times",)) == Match.of("SEND", tims="1")


def test_a_header_that_is_given_twice_is_refused() -> None:
    with pytest.raises(TypeError, match="header 'message-id' is given twice"):
        Match.of(headers={"message-id": "1"}, message_id="2")


def test_headers_whose_names_have_underlines_are_given_in_a_mapping() -> None:
    frame = Frame("SEND", {"JMS_type": "x"})
    assert fits(Match.of(headers={"JMS_type": "x"}), frame)
    assert not fits(Match.of(JMS_type="x"), frame)
