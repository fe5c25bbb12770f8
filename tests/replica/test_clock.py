"""The hybrid logical clock: it increases whatever the time of day does."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.replica.clock import HybridClock, seconds_of, time_of

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
WALL = NOON.timestamp()
MICROSECONDS = int(WALL) * 1_000_000
DAY = 86_400 * 1_000_000


class Wall:
    """A settable time of day."""

    now = WALL

    def __call__(self) -> float:
        """Return seconds since 1970."""
        return self.now


def test_it_is_the_time_of_day() -> None:
    clock = HybridClock(Wall())
    assert clock.next() == MICROSECONDS
    assert seconds_of(clock.last) == WALL
    assert time_of(clock.last) == NOON


def test_two_that_happen_at_once_are_one_behind_the_other() -> None:
    clock = HybridClock(Wall())
    assert [clock.next() for _ in range(3)] == [MICROSECONDS + each for each in range(3)]


def test_it_does_not_go_back_with_the_time_of_day() -> None:
    wall = Wall()
    clock = HybridClock(wall)
    clock.next()
    wall.now -= 3600
    assert clock.next() == MICROSECONDS + 1
    wall.now += 7200
    assert clock.next() == MICROSECONDS + 3600 * 1_000_000


def test_it_goes_on_behind_the_last_of_a_process_before() -> None:
    clock = HybridClock(Wall(), last=MICROSECONDS + 500)
    assert clock.next() == MICROSECONDS + 501


def test_what_was_seen_is_before_what_happens_next() -> None:
    clock = HybridClock(Wall())
    assert clock.see(MICROSECONDS + 40)
    assert clock.last == MICROSECONDS + 40
    assert clock.next() == MICROSECONDS + 41


def test_what_is_past_changes_nothing() -> None:
    clock = HybridClock(Wall(), last=MICROSECONDS)
    assert clock.see(MICROSECONDS - 1)
    assert clock.last == MICROSECONDS


def test_a_clock_that_is_further_ahead_than_a_day_is_not_believed() -> None:
    clock = HybridClock(Wall())
    assert clock.see(MICROSECONDS + DAY)
    assert not clock.see(MICROSECONDS + DAY + 1)
    assert not clock.see(2**63 - 1)
    assert clock.next() == MICROSECONDS + DAY + 1


def test_how_far_ahead_is_believed_can_be_chosen() -> None:
    clock = HybridClock(Wall(), max_ahead_s=0.5)
    assert not clock.see(MICROSECONDS + 500_001)
    assert clock.last == 0
    assert clock.see(MICROSECONDS + 500_000)


def test_what_was_believed_once_is_still_when_the_time_of_day_goes_back() -> None:
    wall = Wall()
    clock = HybridClock(wall)
    clock.next()
    wall.now -= 10 * 86_400
    assert clock.see(MICROSECONDS)


@given(
    st.lists(
        st.tuples(
            st.floats(0, 4e9),
            st.none() | st.integers(0, 2**63 - 1),
        ),
        max_size=30,
    )
)
def test_it_always_grows_and_is_never_dragged_far_ahead(
    steps: list[tuple[float, int | None]],
) -> None:
    """Neither the time of day nor remote clocks can change that."""
    wall = Wall()
    clock = HybridClock(wall)
    bound = 0
    for number, (now, seen) in enumerate(steps):
        wall.now = now
        bound = max(bound, int(now * 1_000_000) + DAY)
        before = clock.last
        if seen is not None:
            is_believed = clock.see(seen)
            assert clock.last == (max(before, seen) if is_believed else before)
        else:
            assert clock.next() > before
        assert clock.last <= bound + number + 1


@pytest.mark.parametrize("hlc", [2**63 - 1, 2**70])
def test_a_time_later_than_all_is_shown_as_the_last(hlc: int) -> None:
    assert time_of(hlc) == datetime.max.replace(tzinfo=UTC)


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)))
def test_a_time_is_kept_to_the_microsecond(time: datetime) -> None:
    hlc = (time - datetime(1970, 1, 1, tzinfo=UTC)) // (
        datetime(1970, 1, 1, 0, 0, 0, 1) - datetime(1970, 1, 1)
    )
    assert time_of(hlc) == time
