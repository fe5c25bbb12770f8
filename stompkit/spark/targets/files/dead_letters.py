"""The table of dead letters of targets in files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

__all__ = ["DEAD_LETTERS", "LETTERS", "in_order"]

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
