"""Digests of the rows of tables, by ranges of keys, here or in tasks of Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from sqlalchemy.dialects import mysql

from stompkit.replication.sinks.sql.parts import Database, TargetColumn, TargetTable
from stompkit.spark.jobs._value_normalisation import Meaning, Read, reader

__all__ = ["BUCKETS", "Digests", "Found", "Key", "Range", "Side", "digests_by_tasks"]

#: Into so many parts rows are divided by their keys: only those are looked at that differ.
BUCKETS: Final = 1024
_PAGE: Final = 5000

#: The values of a key, by their meanings.
Key = tuple[Any, ...]


class Range(NamedTuple):
    """Values of the first column of the key, from ``low`` on and before ``high``."""

    low: int | None = None
    high: int | None = None


class Digests(NamedTuple):
    """How many rows there are in each bucket, and the sums of their digests, in 64 bits."""

    counts: np.ndarray
    sums: np.ndarray

    @staticmethod
    def none() -> Digests:
        """Those of no rows."""
        return Digests(np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.uint64))

    def __add__(self, other: object) -> Digests:
        assert isinstance(other, Digests)
        return Digests(self.counts + other.counts, self.sums + other.sums)

    def differing(self, other: Digests) -> list[int]:
        """The buckets whose rows are not the same."""
        differs = (self.counts != other.counts) | (self.sums != other.sums)
        found: list[int] = np.flatnonzero(differs).tolist()
        return found

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.counts.sum())


class Found(NamedTuple):
    """A row as it is in a database."""

    #: Its values by their meanings, those of the key first.
    values: tuple[Any, ...]
    #: The key as the driver gives it.
    key: tuple[Any, ...]


class Side(NamedTuple):
    """What is read of a table; tasks get it."""

    url: str
    table: str
    #: Quoted names, those of the key first; ``NULL`` for a column that is not there.
    columns: tuple[str, ...]
    meanings: tuple[Meaning, ...]
    #: What they hold; ``None`` for a column that is not there.
    families: tuple[str | None, ...]
    #: How many columns the key has; 0: rows have none, and are told apart by all they have.
    keys: int

    @staticmethod
    def of(
        url: str, table: TargetTable, names: Sequence[str], meanings: Sequence[Meaning], keys: int
    ) -> Side:
        """Describe a table by the names of columns, of which the first are the key."""
        columns = [table.column(name) for name in names]
        quoted = tuple("NULL" if each is None else _selected(each) for each in columns)
        families = tuple(None if each is None else each.family for each in columns)
        return Side(url, table.quoted, quoted, tuple(meanings), families, keys)

    def digests(self, wanted: Range) -> Digests:
        """Digests of the rows of a range."""
        made = Digests.none()
        for page in self._pages(wanted):
            numbers = np.empty(len(page), np.int64)
            digests = np.empty(len(page), np.uint64)
            for place, (key, values, _) in enumerate(page):
                numbers[place] = _bucket(key)
                digests[place] = _digest(values)
            made.counts[:] += np.bincount(numbers, minlength=BUCKETS)
            np.add.at(made.sums, numbers, digests)
        return made

    def rows(self, buckets: Iterable[int]) -> dict[Key, Found]:
        """The rows in some buckets; those without a key are numbered if they are equal."""
        wanted = frozenset(buckets)
        found: dict[Key, Found] = {}
        equal: dict[Key, int] = {}
        for page in self._pages(Range()):
            for key, values, raw in page:
                if _bucket(key) not in wanted:
                    continue
                if self.keys:
                    found[key] = Found(values, raw)
                    continue
                equal[key] = equal.get(key, 0) + 1
                found[*key, equal[key]] = Found(values, raw)
        return found

    def _pages(self, wanted: Range) -> Iterator[list[tuple[Key, tuple[Any, ...], Key]]]:
        with closing(Database(self.url, "deferred")) as database:
            reads = self._reads(database.backend)
            keys = self.keys or len(self.columns)
            statement = f"SELECT {', '.join(self.columns)} FROM {self.table}{self._where(wanted)}"
            with database.transaction() as connection:
                if database.backend == "postgresql":
                    connection.exec_driver_sql("SET LOCAL intervalstyle = 'iso_8601'")
                rows = connection.exec_driver_sql(statement, execution_options={"yield_per": _PAGE})
                for page in rows.partitions():
                    made = []
                    for row in page:
                        values = tuple(
                            [read(value) for read, value in zip(reads, row, strict=True)]
                        )
                        made.append((values[:keys], values, tuple(row[:keys])))
                    yield made

    def _reads(self, backend: str) -> list[Read]:
        return [
            _null if family is None else reader(meaning, family, backend)
            for meaning, family in zip(self.meanings, self.families, strict=True)
        ]

    def _where(self, wanted: Range) -> str:
        name = self.columns[0]
        if wanted.low is None:
            return "" if wanted.high is None else f" WHERE {name} < {wanted.high:d}"
        if wanted.high is None:
            # What is not below is NULL, too.
            return f" WHERE {name} >= {wanted.low:d} OR {name} IS NULL"
        return f" WHERE {name} >= {wanted.low:d} AND {name} < {wanted.high:d}"


def digests_by_tasks(
    spark: SparkSession, sides: Sequence[Side], ranges: Sequence[Range]
) -> list[Digests]:
    """The digests of some sides, each read by as many tasks as there are ranges."""
    work = [(number, each.low, each.high) for number in range(len(sides)) for each in ranges]
    frame = spark.createDataFrame(work, "side int, low bigint, high bigint")
    told = "side int, counts binary, sums binary"
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] = partial(
        _run, tuple(sides)
    )
    made = [Digests.none() for _ in sides]
    for row in frame.repartition(len(work)).mapInArrow(task, told).collect():
        counts = np.frombuffer(bytes(row.counts), np.int64)
        sums = np.frombuffer(bytes(row.sums), np.uint64)
        made[row.side] += Digests(counts, sums)
    return made


def _run(sides: tuple[Side, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            made = sides[row["side"]].digests(Range(row["low"], row["high"]))
            yield pa.RecordBatch.from_pydict(
                {
                    "side": pa.array([row["side"]], pa.int32()),
                    "counts": [made.counts.tobytes()],
                    "sums": [made.sums.tobytes()],
                }
            )


def _selected(column: TargetColumn) -> str:
    """An expression whose values say all that those of a column do."""
    if column.family == "interval":
        # Drivers take days and months for numbers of hours.
        return f"CAST({column.quoted} AS text)"
    if isinstance(column.type_, mysql.FLOAT):
        # It is shown with fewer digits than it has.
        return f"CAST({column.quoted} AS DOUBLE)"
    return column.quoted


def _bucket(key: Key) -> int:
    return _digest(key) % BUCKETS


def _digest(values: tuple[Any, ...]) -> int:
    # Values are numbers, texts, octets and NULL: their representations differ if they do.
    octets = repr(values).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(octets, digest_size=8).digest(), "big")


def _null(value: Any) -> Any:
    return value
