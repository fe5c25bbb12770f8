"""How far tests go that could go on for ever: as far as each change can wait for, or a campaign."""

from __future__ import annotations

import os
from typing import Final, TypeVar

__all__ = ["IS_CAMPAIGN", "effort"]

_T = TypeVar("_T")

IS_CAMPAIGN: Final = os.environ.get("STOMPKIT_TESTS") == "campaign"


def effort(daily: _T, campaign: _T) -> _T:
    """The second with ``STOMPKIT_TESTS=campaign`` in the environment, else the first."""
    return campaign if IS_CAMPAIGN else daily
