"""Reading and sending on a connection of the suite."""

from __future__ import annotations

import threading

import pytest

from stompkit.conformance import FailedError
from tests.conformance.conftest import IMPATIENT_S, PATIENT_S, Dial
from tests.conformance.scripted import Line, connected, frame


def test_what_was_said_before_the_end_is_heard(target: Dial) -> None:
    """Sending fails because the target has closed, but its ERROR is in the inbox."""

    def complains(line: Line) -> None:
        connected(line)
        line.receive()
        line.send(frame("ERROR", {"message": "enough"}))
        line.reset()

    peer = target(complains).connect()
    peer.send_raw(b"x" * 64_000_000)
    assert peer.is_closed_by_target
    assert peer.expect("ERROR").headers["message"] == "enough"


def test_frames_before_garbage_count(target: Dial) -> None:
    """Frames in the same read as invalid bytes, or before, are valid; a further wait fails."""

    def goes_mad(line: Line) -> None:
        connected(line)
        line.send(frame("RECEIPT", {"receipt-id": "r"}) + b"garbage\0")
        line.wait()

    peer = target(goes_mad).connect()
    peer.expect_receipt("r")
    for _ in range(2):
        with pytest.raises(FailedError, match="what the target sends cannot be read: "):
            peer.collect(PATIENT_S)
    assert peer.violation


def test_violation_is_noted_and_read_over(target: Dial) -> None:
    """An unescaped colon violates the grammar of 1.1, but the frame can still be read."""

    def careless(line: Line) -> None:
        connected(line)
        line.send(b"RECEIPT\nreceipt-id:a:b\n\n\0\n\n" + frame("RECEIPT", {"receipt-id": "r"}))
        line.wait()

    peer = target(careless, version="1.1").connect()
    peer.expect_receipt("a:b")
    peer.expect_receipt("r")
    assert "colon" in peer.violation
    assert peer.eols == 2


def test_two_answers_to_connect_in_one_piece(target: Dial) -> None:
    """Frames after CONNECTED in the same read follow the rules of its version."""

    def answers_twice(line: Line) -> None:
        line.frame()
        line.send(b"CONNECTED\nversion:1.1\n\n\0ERROR\nmessage:a\\cb\n\n\0")
        line.wait()

    peer = target(answers_twice).open()
    peer.send("CONNECT")
    peer.expect("CONNECTED")
    assert peer.expect("ERROR").headers["message"] == "a:b"


def test_version_that_was_not_asked_for(target: Dial) -> None:
    def old(line: Line) -> None:
        line.frame()
        line.send(b"CONNECTED\nversion:1.0\n\n\0")
        line.wait()

    with pytest.raises(FailedError, match=r"offered 1\.2, the target chose 1\.0"):
        target(old).connect()


def test_version_that_is_not_named(target: Dial) -> None:
    """The target is known to support the version, so frames follow its rules."""

    def forgetful(line: Line) -> None:
        line.frame()
        line.send(b"CONNECTED\nsession:1\n\n\0")
        line.receive()
        line.send(b"ERROR\nmessage:a\\cb\n\n\0")
        line.wait()

    peer = target(forgetful).connect()
    peer.send_raw(b"\n")
    assert peer.expect("ERROR").headers["message"] == "a:b"


def test_octets_that_are_not_utf8_go_back_as_they_came(target: Dial) -> None:
    """For example, a message-id of arbitrary bytes is sent back unchanged."""
    received = []

    def odd(line: Line) -> None:
        connected(line)
        line.send(b"MESSAGE\nmessage-id:\xff\xfe\ndestination:d\n\n\0")
        received.append(line.receive())
        line.wait()

    peer = target(odd, version="1.1").connect()
    peer.send("ACK", {"message-id": peer.expect("MESSAGE").headers["message-id"]})
    peer.collect(IMPATIENT_S)
    assert received == [b"ACK\nmessage-id:\xff\xfe\n\n\0"]


def test_close_takes_nothing_from_the_target(target: Dial) -> None:
    """Unread data at close would cause a reset, and the target would lose sent data."""
    size = 1_000_000
    received = []
    ended = threading.Event()

    def slow(line: Line) -> None:
        connected(line)
        line.send(frame("MESSAGE", {"destination": "d"}, b"unread"))
        try:
            while True:
                received.append(len(line.receive()))
        finally:
            ended.set()

    peer = target(slow).connect()
    peer.send_raw(b"x" * size)
    peer.expect("MESSAGE")
    peer.close()
    assert ended.wait(PATIENT_S)
    assert sum(received) == size
