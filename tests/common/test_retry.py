"""Delays between attempts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stompkit._common.retry import Backoff, delay_s

seconds = st.floats(0.001, 1e6)


@given(failures=st.integers(0, 10_000), initial_s=seconds, max_s=seconds)
def test_a_delay_is_within_its_bounds_after_any_number_of_failures(
    failures: int, initial_s: float, max_s: float
) -> None:
    found = delay_s(failures, initial_s, max_s)
    assert min(initial_s, max_s) <= found <= max_s
    assert found <= delay_s(failures + 1, initial_s, max_s) <= max(2 * found, found)


def test_each_delay_is_twice_as_long_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 0.5)
    assert [backoff.fail() for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_a_success_begins_again() -> None:
    backoff = Backoff(0.1, 0.5)
    backoff.fail()
    assert backoff.delay_s == 0.2
    backoff.reset()
    assert backoff.delay_s == backoff.fail() == 0.1
