"""Names and checks of staging tables, which tasks create and the driver drops."""

from __future__ import annotations

import time
from typing import Final
from uuid import uuid4

from stompkit.replication.sql import TargetColumn, TargetTable
from stompkit.spark.targets.base import StagingLostError
from stompkit.spark.targets.planning.plan import Op

__all__ = [
    "LEAST_ROWS",
    "PREFIX",
    "check_rows",
    "columns_of",
    "is_orphan",
    "new_name",
    "staged_rows",
]

#: Minimum number of rows for which a staging table is worthwhile.
LEAST_ROWS: Final = 1000

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


def columns_of(table: TargetTable, op: Op) -> list[TargetColumn]:
    """Return the columns of an operation's rows, in order."""
    return [table.columns[name] for name in (*op.key, *op.others)]


def staged_rows(op: Op) -> str:
    """Return the words of an error for the rows of an operation."""
    table = ".".join(filter(None, op.table))
    return f"the rows of {table!r} that a task has staged in {op.stage}"


def check_rows(op: Op, count: int, checksum: str) -> None:
    """Raise :class:`StagingLostError` unless the rows found are those that a task has staged."""
    if count != op.count:
        raise StagingLostError(
            f"{staged_rows(op)} are lost: there were {op.count}, and there are {count}"
        )
    if checksum != op.checksum:
        raise StagingLostError(f"{staged_rows(op)} were changed by somebody else")
