"""How far tests go: as far as each change can wait for, in the matrix lane, or in a campaign."""

from __future__ import annotations

import os
from typing import Any, Final, TypeVar

import pytest

__all__ = ["IS_CAMPAIGN", "effort", "in_matrix"]

_T = TypeVar("_T")

IS_CAMPAIGN: Final = os.environ.get("STOMPKIT_TESTS") == "campaign"


def effort(daily: _T, campaign: _T) -> _T:
    """The second with ``STOMPKIT_TESTS=campaign`` in the environment, else the first."""
    return campaign if IS_CAMPAIGN else daily


def in_matrix(*values: object) -> Any:
    """Return the values of a parameter with which a test runs in the matrix lane only."""
    return pytest.param(*values, marks=pytest.mark.matrix)
