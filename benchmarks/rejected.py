"""Time that one rejected change costs a batch of a pipeline, by processor seconds of one process.

It applies batches of new rows to a table in SQLite: one without errors, one with a value that does
not fit its column, and one with a row that violates a unique key. To try::

    python -m benchmarks.rejected --changes 100000
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from stompkit.spark.fence import within
from stompkit.spark.stream.columns import APPLIED, CHANGES
from stompkit.spark.targets import Job, Staged, open_target

#: Number of changes in a batch of Arrow, and of these batches in a task.
_BATCH: Final = 10_000
_TASK: Final = 5
#: Values of the rejected change, by the kind of error.
_ERRORS: Final = {"no error": None, "a value that does not fit": "many", "a unique key": 3}


def main() -> None:
    """Print the processor time of each batch."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--changes", type=int, default=100_000, help="changes of a batch: 100000")
    given = parser.parse_args()
    for name, value in _ERRORS.items():
        batches = changes(given.changes, value)
        with tempfile.TemporaryDirectory() as folder:
            print(f"{name}: {measured(Path(folder), batches):.2f} s")


def changes(count: int, wrong: object) -> list[pa.RecordBatch]:
    """Return new rows, of which one has another value."""
    numbers = list(range(count))
    values: list[object] = list(numbers)
    if wrong is not None:
        values[count * 7 // 10] = wrong
    columns = {
        "_partition": [0] * count,
        "_ordinal": numbers,
        "change": [0] * count,
        "operation": ["write"] * count,
        "schema": [""] * count,
        "table": ["t"] * count,
        "key": [json.dumps({"id": number}) for number in numbers],
        "before": [None] * count,
        "after": [
            json.dumps({"id": number, "a": f"text {number}", "b": value})
            for number, value in zip(numbers, values, strict=True)
        ],
        "old_key": [None] * count,
        "problem": [None] * count,
    }
    schema = pa.schema([CHANGES.arrow.field(name) for name in (*APPLIED, "problem")])
    made: list[pa.RecordBatch] = pa.Table.from_pydict(columns, schema).to_batches(_BATCH)
    return made


def measured(folder: Path, batches: Sequence[pa.RecordBatch]) -> float:
    """Apply a batch with dead letters; return the seconds of processor."""
    file = folder / "copy.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b INTEGER UNIQUE)")
    target = open_target(f"sqlite:///{file}")
    target.prepare()

    def reread(part: Staged) -> list[pa.RecordBatch]:
        return [within(batch, part.ranges) for batch in batches]

    job = Job("benchmark", dead_letters=True)
    begun = time.process_time()
    parts = [
        part
        for at in range(0, len(batches), _TASK)
        for part in target.stage(batches[at : at + _TASK], job)
    ]
    target.commit(parts, replace(job, reread=reread))
    took = time.process_time() - begun
    target.close()
    return took


if __name__ == "__main__":
    main()
