"""Digests of table rows by ranges of keys, computed locally or in Spark tasks."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import date, datetime, time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from sqlalchemy.dialects import mysql
from sqlalchemy.types import ARRAY

from stompkit.replication.sql import Database, TargetColumn, TargetTable
from stompkit.replication.sql.families import family_of
from stompkit.spark.jobs.comparison.masking import Masked
from stompkit.spark.jobs.comparison.value_normalisation import Meaning, Read, reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BUCKETS", "Digests", "Found", "Key", "Range", "Side", "digests_by_tasks", "matched"]

#: Number of buckets into which rows are divided by key: only differing buckets are examined.
BUCKETS: Final = 1024
_PAGE: Final = 5000
#: Type families that PostgreSQL writes as text, in the forms that these settings give.
_AS_TEXT: Final = frozenset({"interval", "date", "time", "datetime", "json", "other"})
#: Arrays that a copy has as text.
_ARRAYS: Final = frozenset({"array", "numbers"})
_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "datetime": datetime.fromisoformat,
    "json": json.loads,
}
_POSTGRESQL: Final = ("datestyle = 'ISO'", "intervalstyle = 'iso_8601'", "timezone = 'UTC'")

#: The normalised values of a key.
Key = tuple[Any, ...]


class Range(NamedTuple):
    """Values of the first key column from ``low`` up to ``high``, exclusive."""

    low: int | None = None
    high: int | None = None


class Digests(NamedTuple):
    """Number of rows in each bucket, and the sum of their 64-bit digests."""

    counts: np.ndarray
    sums: np.ndarray

    @staticmethod
    def none() -> Digests:
        """Return the digests of no rows."""
        return Digests(np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.uint64))

    def __add__(self, other: object) -> Digests:
        assert isinstance(other, Digests)
        return Digests(self.counts + other.counts, self.sums + other.sums)

    def differing(self, other: Digests) -> list[int]:
        """Return the buckets whose rows differ."""
        differs = (self.counts != other.counts) | (self.sums != other.sums)
        found: list[int] = np.flatnonzero(differs).tolist()
        return found

    @property
    def rows(self) -> int:
        """Total number of rows."""
        return int(self.counts.sum())


class Found(NamedTuple):
    """A row as stored in a database."""

    #: Normalised values, those of the key first.
    values: tuple[Any, ...]
    #: Key as returned by the driver.
    key: tuple[Any, ...]


class Side(NamedTuple):
    """Description of a table to read; it is sent to tasks."""

    url: str
    backend: str
    table: str
    #: Quoted column names, those of the key first; ``NULL`` for a missing column.
    columns: tuple[str, ...]
    meanings: tuple[Meaning, ...]
    #: Type families of the columns; ``None`` for a missing column.
    families: tuple[str | None, ...]
    #: Number of key columns; 0 if rows have no key and are identified by all columns.
    keys: int
    #: Masks to apply to values, by the place of the column.
    masks: Mapping[int, Masked]

    @staticmethod
    def of(
        database: Database,
        url: str,
        table: TargetTable,
        names: Sequence[str],
        meanings: Sequence[Meaning],
        keys: int,
        masked: Mapping[str, Masked] | None = None,
    ) -> Side:
        """Describe a table by the names of columns, of which the first are the key."""
        columns = [table.column(name) for name in names]
        masks = {at: each for at, name in enumerate(names) if (each := (masked or {}).get(name))}
        quoted = tuple(
            "NULL" if each is None else _selected(each, meaning, database.backend)
            for each, meaning in zip(columns, meanings, strict=True)
        )
        columns = [masks[at].column if at in masks else each for at, each in enumerate(columns)]
        families = tuple(None if each is None else each.family for each in columns)
        backend, types = database.backend, tuple(meanings)
        return Side(url, backend, table.quoted, quoted, types, families, keys, masks)

    def digests(self, wanted: Range) -> Digests:
        """Return the digests of the rows in a range."""
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

    def rows(self, buckets: Iterable[int]) -> dict[Key, list[Found]]:
        """Return the rows in some buckets; several can have one key."""
        wanted = frozenset(buckets)
        found: dict[Key, list[Found]] = {}
        for page in self._pages(Range()):
            for key, values, raw in page:
                if _bucket(key) in wanted:
                    found.setdefault(key, []).append(Found(values, self._typed(raw)))
        return found

    def _pages(self, wanted: Range) -> Iterator[list[tuple[Key, tuple[Any, ...], Key]]]:
        with closing(Database(self.url, "deferred")) as database:
            reads = self._reads()
            keys = self.keys or len(self.columns)
            statement = f"SELECT {', '.join(self.columns)} FROM {self.table}{self._where(wanted)}"
            with database.transaction() as connection:
                if self.backend == "postgresql":
                    for setting in _POSTGRESQL:
                        connection.exec_driver_sql(f"SET LOCAL {setting}")
                rows = connection.exec_driver_sql(statement, execution_options={"yield_per": _PAGE})
                for page in rows.partitions():
                    made = []
                    for row in map(self._masked, page) if self.masks else page:
                        values = tuple(
                            [read(value) for read, value in zip(reads, row, strict=True)]
                        )
                        made.append((values[:keys], values, tuple(row[:keys])))
                    yield made

    def _masked(self, row: Sequence[Any]) -> list[Any]:
        """Return the values of a row as the publisher sends them."""
        values = list(row)
        for place, (mask, family, _) in self.masks.items():
            if values[place] is not None:
                values[place] = mask.value(self._typed_value(values[place], family))
        return values

    def _reads(self) -> list[Read]:
        return [
            _null if family is None else reader(meaning, family, self.backend)
            for meaning, family in zip(self.meanings, self.families, strict=True)
        ]

    def _typed(self, key: Key) -> Key:
        """Return a key with the types of its values that a driver would return."""
        return tuple(
            value if family is None else self._typed_value(value, family)
            for value, family in zip(key, self.families, strict=False)
        )

    def _typed_value(self, value: Any, family: str) -> Any:
        return _typed(value, family) if self.backend == "postgresql" else value

    def _where(self, wanted: Range) -> str:
        name = self.columns[0]
        if wanted.low is None:
            return "" if wanted.high is None else f" WHERE {name} < {wanted.high:d}"
        if wanted.high is None:
            # The last range includes NULL.
            return f" WHERE {name} >= {wanted.low:d} OR {name} IS NULL"
        return f" WHERE {name} >= {wanted.low:d} AND {name} < {wanted.high:d}"


def digests_by_tasks(
    spark: SparkSession, sides: Sequence[Side], ranges: Sequence[Range]
) -> list[Digests]:
    """Return the digests of some sides, each read by one task per range."""
    # Bounds are texts: a key can have more than 63 bits.
    work = [
        (number, *(None if bound is None else str(bound) for bound in each))
        for number in range(len(sides))
        for each in ranges
    ]
    frame = spark.createDataFrame(work, "side int, low string, high string")
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


def matched(
    source: dict[Key, list[Found]], target: dict[Key, list[Found]]
) -> tuple[dict[Key, Found], dict[Key, Found]]:
    """Return the rows of two sides by their keys, with a number for each row of one key.

    A key need not be unique: a copy may lack the source's key, and settings can name any columns.
    Rows of equal values get equal numbers; the others follow.
    """
    ones: dict[Key, Found] = {}
    others: dict[Key, Found] = {}
    for key in source.keys() | target.keys():
        own, its = source.get(key, []), target.get(key, [])
        if len(own) > 1 or len(its) > 1:
            own, its = _equal_first(own, its), _equal_first(its, own)
        ones.update({(*key, number): row for number, row in enumerate(own)})
        others.update({(*key, number): row for number, row in enumerate(its)})
    return ones, others


def _equal_first(rows: list[Found], others: list[Found]) -> list[Found]:
    """Return rows in a fixed order: those first that the other side has, as often as it does."""
    left = Counter(row.values for row in others)
    equal: list[Found] = []
    rest: list[Found] = []
    for row in sorted(rows, key=lambda row: repr(row.values)):
        (equal if left[row.values] > 0 else rest).append(row)
        left[row.values] -= 1
    return equal + rest


def _run(sides: tuple[Side, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            low, high = (None if row[end] is None else int(row[end]) for end in ("low", "high"))
            made = sides[row["side"]].digests(Range(low, high))
            yield pa.RecordBatch.from_pydict(
                {
                    "side": pa.array([row["side"]], pa.int32()),
                    "counts": [made.counts.tobytes()],
                    "sums": [made.sums.tobytes()],
                }
            )


def _selected(column: TargetColumn, meaning: Meaning, backend: str) -> str:
    """Return an SQL expression whose value represents a column's value completely.

    Drivers of PostgreSQL convert days and months of intervals to hours, and digits of JSON to
    floats. They fail for times without a Python type: infinity, years before 1 and after 9999,
    24:00, also in ranges and arrays.
    """
    if backend == "postgresql":
        if column.family in _AS_TEXT or (column.family == "array" and meaning in _ARRAYS):
            return f"CAST({column.quoted} AS text)"
        if isinstance(column.type_, ARRAY) and family_of(column.type_.item_type) in _AS_TEXT:
            return f"CAST({column.quoted} AS text[])"
    if isinstance(column.type_, mysql.FLOAT):
        # The database shows fewer digits than it stores.
        return f"CAST({column.quoted} AS DOUBLE)"
    return column.quoted


def _typed(value: Any, family: str) -> Any:
    parse = _PARSERS.get(family)
    if parse is None or value is None:
        return value
    try:
        return parse(value)
    except ValueError:
        return value


def _bucket(key: Key) -> int:
    return _digest(key) % BUCKETS


def _digest(values: tuple[Any, ...]) -> int:
    # Values are numbers, texts, bytes and NULL: different values have different representations.
    octets = repr(values).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(octets, digest_size=8).digest(), "big")


def _null(value: Any) -> Any:
    return value
