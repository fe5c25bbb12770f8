"""Heart-beats: the header, the negotiation and the deadlines, at their limits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.frames import HeartBeat, HeartBeatOffer, Version, parse_heart_beat
from tests.frames.helpers import ESCAPING, RELAXED, VERSIONS, requirement


def beat(ours: HeartBeatOffer, theirs: HeartBeatOffer, version: Version = "1.2") -> HeartBeat:
    made = HeartBeat(100.0)
    made.negotiate(ours, theirs, version)
    return made


# The header.


@requirement("1.1/heartbeat/two-integers", "1.2/heartbeat/two-integers")
@requirement("1.1/heartbeat/first-number-can-send", "1.2/heartbeat/first-number-can-send")
@requirement("1.1/heartbeat/second-number-wants", "1.2/heartbeat/second-number-wants")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0,0", (0, 0)),
        ("1,0", (1, 0)),
        ("0,20000", (0, 20000)),
        ("007,010", (7, 10)),
        ("2147483647,2147483646", (2**31 - 1, 2**31 - 2)),
    ],
)
def test_two_numbers_are_read(value: str, expected: HeartBeatOffer) -> None:
    assert parse_heart_beat(value) == expected


@requirement("1.1/heartbeat/missing-is-0-0", "1.2/heartbeat/missing-is-0-0")
def test_a_missing_header_asks_for_nothing() -> None:
    assert parse_heart_beat(None) == (0, 0)


@requirement("1.1/heartbeat/two-integers", "1.2/heartbeat/two-integers")
@pytest.mark.parametrize(
    "value",
    [
        *("", ",", "1", "1,", ",1", "1,2,3", "-1,0", "0,-1", "+1,0", " 1,0", "1,0 ", "1, 0", "1;0"),
        *("a,b", "1.0,0", "1e3,0", "0x1,0", "\u0663,0", "0,\u00b2", "1,\n", "1" + "0" * 19 + ",0"),
    ],
)
def test_anything_else_is_no_heart_beat(value: str) -> None:
    with pytest.raises(ValueError, match="milliseconds") as caught:
        parse_heart_beat(value)
    assert str(caught.value).isascii()


def test_an_error_quotes_no_more_than_a_reader_needs() -> None:
    with pytest.raises(ValueError, match="milliseconds") as caught:
        parse_heart_beat("x" * 10_000)
    assert len(str(caught.value)) < 150


def test_intervals_of_weeks_are_cut() -> None:
    assert parse_heart_beat("2147483648,9999999999999999999") == (2**31 - 1, 2**31 - 1)


# The negotiation.


@requirement("1.1/heartbeat/cx0-or-sy0-none", "1.2/heartbeat/cx0-or-sy0-none")
@requirement("1.1/heartbeat/sx0-or-cy0-none", "1.2/heartbeat/sx0-or-cy0-none")
@requirement("1.1/heartbeat/interval-is-max", "1.2/heartbeat/interval-is-max")
@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize(
    ("ours", "theirs", "send_s", "receive_s"),
    [
        ((0, 0), (0, 0), 0, 0),
        ((1000, 0), (0, 1000), 1, 0),
        ((0, 1000), (1000, 0), 0, 1),
        ((0, 1000), (0, 1000), 0, 0),
        ((1000, 0), (1000, 0), 0, 0),
        ((1000, 2000), (3000, 500), 1, 3),
        ((500, 3000), (2000, 1000), 1, 3),
        ((1, 1), (1, 1), 0.001, 0.001),
    ],
)
def test_each_direction_takes_the_longer_interval_or_none(
    version: Version,
    ours: HeartBeatOffer,
    theirs: HeartBeatOffer,
    send_s: float,
    receive_s: float,
) -> None:
    made = beat(ours, theirs, version)
    assert (made.send_s, made.receive_s) == (send_s, receive_s)


NUMBERS = st.integers(0, 2**31 - 1)


@requirement("1.1/heartbeat/interval-is-max", "1.2/heartbeat/interval-is-max")
@RELAXED
@given(st.tuples(NUMBERS, NUMBERS), st.tuples(NUMBERS, NUMBERS))
def test_both_ends_come_to_the_same_intervals(ours: HeartBeatOffer, theirs: HeartBeatOffer) -> None:
    here, there = beat(ours, theirs), beat(theirs, ours)
    assert (here.send_s, here.receive_s) == (there.receive_s, there.send_s)


@requirement("1.1/heartbeat/optional", "1.2/heartbeat/optional")
def test_1_0_has_no_heart_beats() -> None:
    made = beat((1000, 1000), (1000, 1000), "1.0")
    assert (made.send_s, made.receive_s) == (0, 0)


# The deadlines.


@requirement("1.1/heartbeat/optional", "1.2/heartbeat/optional")
@pytest.mark.parametrize("version", VERSIONS)
def test_without_heart_beats_there_is_nothing_to_do(version: Version) -> None:
    made = beat((0, 0), (0, 0), version)
    assert made.next_deadline() is None
    assert not made.must_send(1e9)
    assert not made.is_dead(1e9)


@requirement("1.1/heartbeat/sender-in-time", "1.2/heartbeat/sender-in-time")
def test_a_beat_is_due_before_the_interval_is_over() -> None:
    made = beat((10_000, 0), (0, 10_000))
    due = made.next_deadline()
    assert due is not None
    assert 100.0 < due < 110.0
    assert not made.must_send(math.nextafter(due, 0))
    assert made.must_send(due)
    assert not made.is_dead(1e9)


@requirement("1.1/heartbeat/sender-in-time", "1.2/heartbeat/sender-in-time")
def test_whatever_was_sent_puts_the_next_beat_off() -> None:
    made = beat((10_000, 0), (0, 10_000))
    made.last_sent = 150.0
    due = made.next_deadline()
    assert due is not None
    assert 150.0 < due < 160.0
    assert not made.must_send(149.0)


@requirement("1.1/heartbeat/error-margin", "1.2/heartbeat/error-margin")
@requirement("1.1/heartbeat/may-consider-dead", "1.2/heartbeat/may-consider-dead")
def test_a_silent_peer_is_dead_after_the_interval_and_a_margin() -> None:
    made = beat((0, 10_000), (10_000, 0))
    assert not made.is_dead(110.0)
    assert not made.is_dead(math.nextafter(120.0, 0))
    assert made.is_dead(120.0)
    assert made.next_deadline() == 120.0
    assert not made.must_send(1e9)


@requirement("1.1/heartbeat/any-data-counts", "1.2/heartbeat/any-data-counts")
def test_whatever_was_received_shows_life() -> None:
    made = beat((0, 10_000), (10_000, 0))
    made.last_received = 119.0
    assert not made.is_dead(138.9)
    assert made.is_dead(139.0)


@requirement("1.1/heartbeat/error-margin", "1.2/heartbeat/error-margin")
def test_the_margin_can_be_chosen() -> None:
    made = HeartBeat(100.0, tolerance=1.5)
    made.negotiate((0, 10_000), (10_000, 0), "1.1")
    assert not made.is_dead(114.9)
    assert made.is_dead(115.0)


def test_the_next_deadline_is_the_earlier_of_both() -> None:
    made = beat((10_000, 10_000), (10_000, 10_000))
    assert made.next_deadline() == 106.0
    made.last_sent = 200.0
    assert made.next_deadline() == 120.0
