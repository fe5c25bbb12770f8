"""The extent of tests: for each change, for the matrix lane, or for a campaign."""

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
    """Return *campaign* if the environment has ``STOMPKIT_TESTS=campaign``, else *daily*."""
    return campaign if IS_CAMPAIGN else daily


def in_matrix(*values: object) -> Any:
    """Return the values of a parameter with which a test runs in the matrix lane only."""
    return pytest.param(*values, marks=pytest.mark.matrix)


def some(values: Iterable[str], every: int) -> list[Any]:
    """Return all values of a parameter; the first of each *every* values runs with each change."""
    ways = chain.from_iterable(repeat([pytest.param, *[in_matrix] * (every - 1)]))
    return [way(value) for way, value in zip(ways, values, strict=False)]


def selected(request: pytest.FixtureRequest, parameter: str) -> list[str]:
    """Return the values of a parameter with which tests of this module were selected, in order.

    A fixture that starts everything at once starts only these.
    """
    tests = (item for item in request.session.items if isinstance(item, pytest.Function))
    here = (test.callspec.params for test in tests if test.module is request.module if _has(test))
    return list(dict.fromkeys(str(each[parameter]) for each in here if parameter in each))


def _has(test: pytest.Function) -> bool:
    return hasattr(test, "callspec")


def drawn(number: int) -> int:
    """Return the number of examples that Hypothesis draws in a test that sets it.

    In the quick lane, whose profile is "few", it is a third of *number*. The matrix lane draws all.
    """
    return max(1, number // 3) if settings.get_current_profile_name() == "few" else number
