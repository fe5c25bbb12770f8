"""Names of staging tables, which tasks create and the driver drops."""

from __future__ import annotations

import time
from typing import Final
from uuid import uuid4

__all__ = ["PREFIX", "is_orphan", "new_name"]

#: Prefix of the names of staging tables.
PREFIX: Final = "stompkit_stage_"
#: Age in seconds after which a staging table is considered abandoned.
_ORPHAN_S: Final = 6 * 3600


def new_name() -> str:
    """Return a unique name that contains the current time."""
    return f"{PREFIX}{int(time.time())}_{uuid4().hex[:16]}"


def is_orphan(name: str) -> bool:
    """Return True if a table was left by a crash: it is older than any batch."""
    number = name.removeprefix(PREFIX).partition("_")[0]
    made_at = float(number) if number.isdecimal() else 0.0
    return made_at <= time.time() - _ORPHAN_S
