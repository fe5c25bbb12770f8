"""Queries of Spark without Spark, and the messages of their tests."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql.datasource import InputPartition

from stompkit.spark.stream.batch import BatchReader
from stompkit.spark.stream.options import SourceOptions
from stompkit.spark.stream.partitions import read
from stompkit.spark.stream.ranges import batches_of
from stompkit.spark.stream.reader import StreamReader
from stompkit.spool import Record
from tests.spark.messages import changeset, records_of

__all__ = ["Query", "Row", "again", "header", "messages", "named", "sequences"]

#: Origin, sequence, number of the change, and ordinal.
Row = tuple[str, int, int, int]


class Query:
    """A query as Spark runs it: with a stored offset, and partitions read elsewhere.

    Each batch is also read once more between its offsets, and has the same rows.
    """

    def __init__(self, folder: Path, *, once: bool = False, **options: str) -> None:
        """Read a spool; with ``once`` its present contents only."""
        self._given = {
            "spool": str(folder),
            "payload": "changeset",
            "beginningWait": "600",
            **options,
        }
        self._options = SourceOptions.parse(self._given)
        self._once = once
        self.offset: dict[str, Any] | None = None
        #: Origin, sequence, number of the change, and ordinal.
        self.rows: list[Row] = []

    def run(self) -> list[Row]:
        """Read all available rows; return the new ones."""
        before = len(self.rows)
        while self._batch():
            pass
        return self.rows[before:]

    def _batch(self) -> bool:
        reader = StreamReader(self._options)
        if self._once:
            reader.prepareForTriggerAvailableNow()
        start = self.offset or reader.initialOffset()
        end = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
        self.offset = start
        if end == start:
            return False
        # As after a crash: planned by another process.
        found = self._rows(StreamReader(self._options).partitions(start, end))
        bounds = {"startingOffsets": json.dumps(start), "endingOffsets": json.dumps(end)}
        once_more = BatchReader(SourceOptions.parse({**self._given, **bounds}))
        assert self._rows(once_more.partitions()) == found
        self.rows += found
        self.offset = end
        return True

    def _rows(self, partitions: Sequence[InputPartition]) -> list[Row]:
        """Return what tasks read."""
        rows: list[Row] = []
        for part in partitions:
            batches = read(pickle.loads(pickle.dumps(part)))
            for batch in batches_of(batches) if self._options.payload == "ranges" else batches:
                names = ("origin", "sequence", "change", "_ordinal")
                columns = [batch.column(name).to_pylist() for name in names]
                rows += zip(*columns, strict=True)
        return rows


def messages(*sequences: int, origin: str = "shop", most: int = 1 << 20) -> list[Record]:
    """Return the messages of changesets, of three changes each."""
    made = (named(sequence, origin) for sequence in sequences)
    return list(records_of(made, max_body_bytes=most))


def named(sequence: int, origin: str) -> Any:
    """Return a changeset whose id contains its origin."""
    made = changeset(sequence, changes=3, origin=origin)
    return msgspec.structs.replace(made, id=f"{origin}-{sequence}")


def again(records: Sequence[Record]) -> list[Record]:
    """Return the messages as another broker delivers them, which the spool does not recognise."""
    return [each._replace(message_id="", event_id="") for each in records]


def sequences(rows: Sequence[Row]) -> list[int]:
    """Return the changesets, in their order."""
    return [sequence for _, sequence, change, _ in rows if not change]


def header(record: Record, name: str) -> str:
    return dict(record.headers)[name]
