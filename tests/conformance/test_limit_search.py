"""Search for limits of a target, and their report."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompkit.conformance import Outcome
from stompkit.conformance.limits import KIB, MIB, Limit, grow, search, size
from tests.conformance.conftest import Dial
from tests.conformance.scripted import Line, connected, frame

PATIENT_S = 60.0
EXACT = settings(deadline=None)


@EXACT
@given(st.integers(0, 5_000), st.integers(1, 5_000), st.integers(1, 100))
def test_a_limit_is_found_exactly(limit: int, cap: int, start: int) -> None:
    def attempt(size: int) -> Outcome:
        assert size <= cap
        return Outcome.ACCEPTED if size <= limit else Outcome.CLOSE

    found = search(attempt, cap=cap, seconds=PATIENT_S, start=start)
    if limit >= cap:
        assert (found.most, found.refused) == (cap, None)
    else:
        assert (found.most, found.refused, found.outcome) == (limit, limit + 1, Outcome.CLOSE)


@EXACT
@given(st.integers(1, 10**9), st.sampled_from([4, 16, 64]))
def test_a_limit_is_found_to_one_of_so_many_parts(limit: int, parts: int) -> None:
    tried = []

    def attempt(size: int) -> Outcome:
        tried.append(size)
        return Outcome.ACCEPTED if size <= limit else Outcome.CLOSE

    found = search(attempt, cap=10**9, seconds=PATIENT_S, parts=parts)
    assert found.most <= limit
    if found.refused is not None:
        assert limit < found.refused <= found.most + max(1, found.most // parts)
    assert len(tried) < 40


def test_what_is_not_answered_ends_the_search() -> None:
    tried = []

    def attempt(size: int) -> Outcome:
        tried.append(size)
        return Outcome.ACCEPTED if size < 8 else Outcome.NOTHING

    found = search(attempt, cap=100, seconds=PATIENT_S)
    assert tried == [1, 2, 4, 8]
    assert (found.most, found.refused, found.outcome) == (4, 8, Outcome.NOTHING)


@pytest.mark.parametrize(
    ("found", "profile", "lapses"),
    [
        (Limit(1_500), "at least 1.46 KiB", 0),
        (Limit(64 * KIB, 65 * KIB, Outcome.CLOSE), "64 KiB", 0),
        (Limit(0, 64, Outcome.ERROR), "less than 64 octets", 0),
        (Limit(5, 6, Outcome.NOTHING), "5 octets", 1),
    ],
)
def test_a_limit_is_said_in_words_that_can_be_compared(
    found: Limit, profile: str, lapses: int, target: Dial
) -> None:
    at = target(connected)
    found.record(at, "largest thing", size)
    assert at.chosen == {"largest thing": profile}
    assert len(at.lapses) == lapses


def test_sizes_have_three_figures() -> None:
    assert [size(octets) for octets in (0, 1_023, KIB, 10_300, MIB, 33 * MIB)] == [
        "0 octets",
        "1023 octets",
        "1 KiB",
        "10.1 KiB",
        "1 MiB",
        "33 MiB",
    ]


@pytest.mark.parametrize("is_told", [True, False], ids=["ERROR", "close"])
def test_a_frame_that_grows_is_refused_where_it_is_too_much(
    is_told: bool,  # noqa: FBT001 (a parameter of the test)
    target: Dial,
) -> None:
    def bounded(line: Line) -> None:
        taken = 0
        while taken <= 10 * KIB:
            taken += len(line.receive())
        if is_told:
            line.send(frame("ERROR", {"message": "too much"}))

    found = grow(target(bounded).open(), b"SEND\nh:", b"x", cap=MIB, seconds=PATIENT_S)
    # A server that refuses late has accepted more by then.
    assert found.most >= 8 * KIB
    assert found.refused == 2 * found.most
    assert found.outcome is (Outcome.ERROR_AND_CLOSE if is_told else Outcome.CLOSE)


def test_a_frame_that_grows_to_the_end_has_no_limit(target: Dial) -> None:
    found = grow(target(Line.wait).open(), b"SEND\n", b"h:v\n", cap=40 * KIB, seconds=PATIENT_S)
    assert (found.most, found.refused) == (40 * KIB, None)
