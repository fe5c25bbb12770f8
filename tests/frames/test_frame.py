"""A frame as a value."""

from __future__ import annotations

import pytest

from stompkit.frames import Frame, FrameDecoder
from tests.frames.helpers import requirement

REPEATED = (("a", "2"), ("b", "3"), ("a", "4"))


def test_a_frame_needs_a_command_only() -> None:
    frame = Frame("DISCONNECT")
    assert (frame.headers, frame.body, frame.repeated, frame.head) == ({}, b"", (), None)


def test_headers_are_copied() -> None:
    headers = {"destination": "/queue/a"}
    frame = Frame("SEND", headers)
    headers["destination"] = "/queue/b"
    frame.headers["receipt"] = "1"
    assert frame.headers == {"destination": "/queue/a", "receipt": "1"}
    assert headers == {"destination": "/queue/b"}


@requirement("1.2/repeated/first-wins-client", "1.2/repeated/later-ignored")
def test_all_values_of_a_header_are_given_the_valid_one_first() -> None:
    frame = Frame("MESSAGE", {"a": "1", "b": "x"}, b"", REPEATED)
    assert frame.values("a") == ["1", "2", "4"]
    assert frame.values("b") == ["x", "3"]
    assert frame.values("A") == []
    assert list(frame.items()) == [("a", "1"), ("b", "x"), *REPEATED]


def test_a_body_can_be_read_as_text() -> None:
    assert Frame("SEND", {}, "crème".encode()).text == "crème"
    with pytest.raises(UnicodeDecodeError):
        _ = Frame("SEND", {}, b"\xff").text


def test_frames_are_equal_when_all_parts_are() -> None:
    def frame() -> Frame:
        return Frame("MESSAGE", {"a": "1", "b": "2"}, b"x", REPEATED)

    assert frame() == frame()
    assert frame() == Frame("MESSAGE", {"b": "2", "a": "1"}, b"x", REPEATED)
    assert frame() != Frame("SEND", {"a": "1", "b": "2"}, b"x", REPEATED)
    assert frame() != Frame("MESSAGE", {"a": "1", "b": "3"}, b"x", REPEATED)
    assert frame() != Frame("MESSAGE", {"a": "1", "b": "2"}, b"y", REPEATED)
    assert frame() != Frame("MESSAGE", {"a": "1", "b": "2"}, b"x", REPEATED[1:])
    assert frame() != "MESSAGE"
    assert frame().__eq__("MESSAGE") is NotImplemented


def test_the_octets_that_a_frame_was_read_from_take_no_part_in_comparison() -> None:
    (read,) = FrameDecoder("1.2").feed(b"SEND\na:b\n\nx\0")
    assert read.head == b"SEND\na:b"
    assert read == Frame("SEND", {"a": "b"}, b"x")


def test_a_frame_can_be_changed_and_so_not_be_hashed() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Frame("SEND"))


def test_a_frame_shows_its_parts() -> None:
    frame = Frame("SEND", {"destination": "/queue/é"}, b"x\0", (("destination", "/b"),))
    assert repr(frame) == (
        r"<Frame SEND {'destination': '/queue/é', 'destination': '/b'} b'x\x00'>"
    )


def test_a_long_body_and_a_long_value_are_shown_in_part() -> None:
    shown = repr(Frame("SEND", {"destination": "d" * 10_000}, b"b" * 10_000))
    assert len(shown) < 400
    assert "10000 octets" in shown


@pytest.mark.parametrize("name", ["passcode", "passcode ", " passcode"])
def test_the_passcode_is_never_shown(name: str) -> None:
    secret = "correct horse"
    frame = Frame("CONNECT", {"login": "me", name: secret}, b"", ((name, secret),))
    assert secret not in repr(frame)
    assert repr(frame).count("***") == 2
    assert "'me'" in repr(frame)


def test_the_passcode_of_a_frame_from_the_wire_is_not_shown() -> None:
    (frame,) = FrameDecoder().feed(b"CONNECT\npasscode:hush\npasscode:hush hush\n\n\0")
    assert "hush" not in repr(frame)
