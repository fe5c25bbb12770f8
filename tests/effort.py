"""How far tests go: as far as each change can wait for, in the matrix lane, or in a campaign."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import chain, repeat
from typing import Any, Final, TypeVar

import pytest
from hypothesis import settings

__all__ = ["IS_CAMPAIGN", "drawn", "effort", "in_matrix", "selected", "some"]

_T = TypeVar("_T")

IS_CAMPAIGN: Final = os.environ.get("STOMPKIT_TESTS") == "campaign"


def effort(daily: _T, campaign: _T) -> _T:
    """The second with ``STOMPKIT_TESTS=campaign`` in the environment, else the first."""
    return campaign if IS_CAMPAIGN else daily


def in_matrix(*values: object) -> Any:
    """Return the values of a parameter with which a test runs in the matrix lane only."""
    return pytest.param(*values, marks=pytest.mark.matrix)


def some(values: Iterable[str], every: int) -> list[Any]:
    """Return all values of a parameter: the first of *every* so many runs with each change.

    The others run in the matrix lane. Values that stand side by side are about the same thing.
    """
    ways = chain.from_iterable(repeat([pytest.param, *[in_matrix] * (every - 1)]))
    return [way(value) for way, value in zip(ways, values, strict=False)]


def selected(request: pytest.FixtureRequest, parameter: str) -> list[str]:
    """Return the values of a parameter with which tests of this module were selected, in order.

    A fixture that starts everything at once starts no more than that.
    """
    tests = (item for item in request.session.items if isinstance(item, pytest.Function))
    here = (test.callspec.params for test in tests if test.module is request.module if _has(test))
    return list(dict.fromkeys(str(each[parameter]) for each in here if parameter in each))


def _has(test: pytest.Function) -> bool:
    return hasattr(test, "callspec")


def drawn(number: int) -> int:
    """Return how many examples Hypothesis draws, where that is said for a test.

    It is a third in the quick lane, whose profile is "few"; the matrix lane has all of them.
    """
    return max(1, number // 3) if settings.get_current_profile_name() == "few" else number
