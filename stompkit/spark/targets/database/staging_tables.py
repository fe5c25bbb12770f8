"""Names and checks of staging tables, which tasks create and the driver drops."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
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
    "of_owner",
    "owner_of",
    "staged_rows",
]

#: Minimum number of rows for which a staging table is worthwhile.
LEAST_ROWS: Final = 1000

#: Prefix of the names of staging tables.
PREFIX: Final = "stompkit_stage_"
#: Age in seconds after which a staging table is considered abandoned.
_ORPHAN_S: Final = 6 * 3600


def owner_of(pipeline: str, spool: str) -> str:
    """Return 12 hexadecimal digits for the fence of a pipeline, for names of what it stages."""
    return hashlib.sha256(f"{pipeline}\0{spool}".encode()).hexdigest()[:12]


def new_name(owner: str) -> str:
    """Return a unique name that contains the current time and the owner, of :func:`owner_of`."""
    return f"{PREFIX}{int(time.time())}_{owner}_{uuid4().hex[:16]}"


def of_owner(names: Iterable[str], owner: str) -> set[str]:
    """Return the names of tables of an owner. Names of earlier versions contain none."""
    return {name for name in names if name.removeprefix(PREFIX).split("_")[1:-1] == [owner]}


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
