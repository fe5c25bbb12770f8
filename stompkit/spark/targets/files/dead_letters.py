"""The table of dead letters of targets in files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

__all__ = ["DEAD_LETTERS", "LETTERS", "in_order", "new_letters"]

DEAD_LETTERS: Final = "stompkit_pipeline_dead_letters"
#: Columns of the table of dead letters.
LETTERS: Final = pa.schema(
    [
        ("pipeline", pa.string()),
        ("spool", pa.string()),
        ("partition_no", pa.int32()),
        ("ordinal", pa.int64()),
        ("change_no", pa.int32()),
        ("table_name", pa.string()),
        ("operation", pa.string()),
        ("row_key", pa.string()),
        ("problem", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


def in_order(rows: Iterable[dict[str, Any]], pipeline: str, spool: str) -> list[dict[str, Any]]:
    """Return the dead letters of one pipeline and spool, in the order of the spool."""
    own = [row for row in rows if (row["pipeline"], row["spool"]) == (pipeline, spool)]
    return sorted(own, key=lambda row: (row["partition_no"], row["ordinal"], row["change_no"]))


def new_letters(
    letters: Sequence[dict[str, Any]], rows: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the dead letters that are not among the stored rows of all pipelines."""
    there = {_identity(row) for row in rows}
    return [each for each in letters if _identity(each) not in there]


def _identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    names = ("pipeline", "spool", "partition_no", "ordinal", "change_no")
    return tuple(row[name] for name in names)
