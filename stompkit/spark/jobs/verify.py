"""The job *verify*: comparing a replica with its source. Requires the extra ``sql``.

::

    from stompkit.spark.jobs import load
    from stompkit.spark.jobs.verify import verify

    for table in verify(load("shop.toml")):
        print(table.name, table.differences)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from time import sleep
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
from sqlalchemy import Connection, inspect

from stompkit.replication.model.values import InvalidValueError, to_json
from stompkit.replication.sql import TargetTable
from stompkit.spark.jobs.comparison.digests import (
    Found,
    Key,
    Range,
    Side,
    digests_by_tasks,
    matched,
)
from stompkit.spark.jobs.comparison.masking import Masked, masked_columns
from stompkit.spark.jobs.comparison.partitions import chosen, partitions_of
from stompkit.spark.jobs.comparison.tasks import can_start, session
from stompkit.spark.jobs.comparison.value_normalisation import meaning_of
from stompkit.spark.jobs.settings import PipelineError, PipelineSettings, TargetSettings, seconds
from stompkit.spark.jobs.tables import Tables
from stompkit.spark.states import Choice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Difference", "Verdict", "verify"]

#: Maximum number of reported differences of a table, and approximate number of rows compared
#: individually at a time, which limits memory.
_MOST: Final = 1000
_MOST_ROWS: Final = 100_000
#: Maximum number of comparisons of differing rows while they change.
_LOOKS: Final = 3
#: Approximate number of rows per task; larger tables are read by tasks.
_RANGE_ROWS: Final = 500_000
#: Prefix of stompkit's own tables in databases.
_OWN: Final = "stompkit_"


class Difference(msgspec.Struct, frozen=True):
    """A row that differs."""

    table: str
    #: Values of the key as JSON; for a table without key, all columns.
    key: dict[str, Any]
    #: ``missing``: the replica lacks the row. ``extra``: the source lacks it.
    kind: Literal["missing", "extra", "different"]
    #: Columns that differ.
    columns: list[str] = []


class Verdict(msgspec.Struct, frozen=True):
    """Result for one table."""

    name: str
    #: Number of rows; ``None`` if the table does not exist.
    source_rows: int | None
    target_rows: int | None
    differences: list[Difference] = []
    #: True if there are more differences than reported.
    has_more: bool = False

    @property
    def is_equal(self) -> bool:
        """True if there is no difference."""
        # A table that never had a row may be missing in the replica.
        is_there = self.target_rows is not None or self.source_rows == 0
        return is_there and self.source_rows is not None and not self.differences


class _Pair(NamedTuple):
    """A table on both sides."""

    name: str
    columns: tuple[str, ...]
    keys: int
    sides: tuple[Side, Side]
    #: Range of the key's first column, if it contains integers.
    bounds: tuple[int, int] | None
    rows: int


def verify(
    settings: PipelineSettings,
    *,
    source: str | None = None,
    url: str | None = None,
    tables: Sequence[str] | None = None,
    settle_s: float | None = None,
    spark: SparkSession | None = None,
    range_rows: int = _RANGE_ROWS,
    on_progress: Callable[[str], None] | None = None,
) -> list[Verdict]:
    """Compare the tables of a source with those of a replica, by normalised values.

    Rows are compared by digests of groups; differing groups are compared row by row. Tables of more
    than ``range_rows`` rows with an integer as the first key column are read by Spark tasks, each a
    range of keys. They use ``spark``, or a new session; without PySpark or Java, this process reads
    them alone.

    Differing rows are compared again after ``settle_s`` seconds. They are equal if the replica has
    by then reached the former state of the source, so the source may change meanwhile. ``source``,
    ``url`` (of the replica), ``tables`` and ``settle_s`` default to the settings. The names of
    tables, keys and columns in the settings apply as well. Columns that exist only in the replica
    are ignored; a missing one counts as NULL.

    At most 1000 differences of each table are reported. Raises PipelineError for data that cannot
    be compared, and SinkUnavailableError.
    """
    given = settings.target
    if given is None and url is None:
        raise PipelineError("[target]: the job verify needs this table, or --target URL")
    wanted = tables
    if wanted is None:
        wanted = settings.verify.tables if settings.verify is not None else None
    wanted = settings.apply.tables if wanted is None else wanted
    if settings.apply.stored_as_scd_type != 1:
        raise PipelineError("apply: a target with versions of rows is no copy to be compared")
    if settle_s is None:
        settle_s = seconds("5s" if settings.verify is None else settings.verify.settle)
    urls = (source or settings.source_url(), url or settings.target_url())
    places = ("--source" if source else "verify.source", "--target" if url else "target.url")
    names = _names(urls[0], wanted, places[0])
    tell = on_progress or (lambda _: None)
    found = []
    with (
        closing(Tables(urls[0], _named_as_they_are(names), places[0])) as one,
        closing(Tables(urls[1], given, places[1])) as other,
    ):
        if not names:
            raise PipelineError(
                f"{one.name} has no tables to compare: is its URL right? Tables that are not in its"
                " default schema are to be named, under tables in [verify]"
            )
        pairs = _Pairs(settings, one, other, urls)
        for schema, table in names if wanted is not None else pairs.listed(names):
            tell(f"{schema}.{table}" if schema else table)
            pair = pairs.look(schema, table)
            if isinstance(pair, Verdict):
                found.append(pair)
            else:
                found.append(_compare(pair, settings, settle_s, spark, range_rows))
    return found


def _names(url: str, wanted: Sequence[str] | None, place: str) -> list[tuple[str, str]]:
    """Return the schemas and names of the tables to compare; a default schema is empty."""
    with closing(Tables(url, None, place)) as tables, tables.transaction() as connection:
        inspector = inspect(connection)
        default = inspector.default_schema_name or ""
        default = "" if tables.database.backend == "sqlite" else default
        if wanted is None:
            there = sorted(inspector.get_table_names())
            return [(default, name) for name in there if not name.startswith(_OWN)]
    split = [name.rpartition(".") for name in wanted]
    return [(schema or default, name) for schema, _, name in split]


def _named_as_they_are(names: Sequence[tuple[str, str]]) -> TargetSettings:
    """Return settings that map tables to the source's own names, with their schemas."""
    full = [f"{schema}.{table}" for schema, table in names if schema]
    return TargetSettings(url="", table_map=dict(zip(full, full, strict=True)))


class _Pairs:
    """Matching of the tables and columns to compare."""

    def __init__(
        self, settings: PipelineSettings, one: Tables, other: Tables, urls: tuple[str, str]
    ) -> None:
        how = settings.apply
        self._one: Final = one
        self._other: Final = other
        self._urls: Final = urls
        self._masks: Final = settings.verify_masks()
        self._choice: Final = Choice.of(
            keys=how.keys,
            column_list=how.column_list,
            except_column_list=how.except_column_list,
        )

    def listed(self, names: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return tables of the source's default schema, with partitions or wholes of them."""
        if self._one.database.backend != "postgresql":
            return list(names)
        with self._one.transaction() as connection:
            partitions = partitions_of(connection)
        with self._other.transaction() as connection:
            there = {name for schema, name in names if self._target(connection, schema, name)}
        kept = set(chosen([name for _, name in names], partitions, there))
        return [each for each in names if each[1] in kept]

    def look(self, schema: str, name: str) -> _Pair | Verdict:
        """Return a table on both sides, or a verdict if it exists on one side only."""
        full = f"{schema}.{name}" if schema else name
        with self._one.transaction() as connection:
            source = self._one.find(connection, schema, name)
            if source is None:
                return Verdict(full, None, None)
            count = self._one.count(connection, source)
            keys = self._choice.key_of(schema, name) or source.primary_key
            bounds = _bounds(connection, source, keys)
        masked = self._masked(schema, source, keys)
        with self._other.transaction() as connection:
            target = self._target(connection, schema, name)
            if target is None:
                return Verdict(full, count, None)
            rows = max(count, self._other.count(connection, target))
            others = _bounds(connection, target, keys)
            if not _has_numbers(target, keys) or not masked.keys().isdisjoint(keys[:1]):
                # Bounds are numbers, which databases do not compare with texts.
                bounds = None
        lacking = [key for key in keys if None in (source.column(key), target.column(key))]
        if lacking:
            raise PipelineError(f"{full}: the column {lacking[0]!r} of its key is not there")
        left_out = {name for name, each in masked.items() if each.column is None}
        names = [name for name in self._columns(source, keys) if name not in left_out]
        meanings = []
        for each in names:
            own, its = source.column(each), target.column(each)
            own = masked[each].column if each in masked else own
            assert own is not None
            backend = self._one.database.backend
            meanings.append(meaning_of(own, own if its is None else its, backend))
        sides = (
            Side.of(self._one.database, self._urls[0], source, names, meanings, len(keys), masked),
            Side.of(self._other.database, self._urls[1], target, names, meanings, len(keys)),
        )
        if bounds is not None and others is not None:
            bounds = min(bounds[0], others[0]), max(bounds[1], others[1])
        return _Pair(full, tuple(names), len(keys), sides, bounds, rows)

    def _target(self, connection: Connection, schema: str, name: str) -> TargetTable | None:
        """Return the copy of a table; publishers without schemas send none."""
        found = self._other.find(connection, schema, name)
        return self._other.find(connection, "", name) if found is None else found

    def _masked(self, schema: str, source: TargetTable, keys: Sequence[str]) -> dict[str, Masked]:
        """Return the columns that the publisher masks."""
        try:
            return masked_columns(self._masks, schema, source, keys)
        except ValueError as error:
            raise PipelineError(f"verify.masks: {error}") from None

    def _columns(self, source: TargetTable, keys: Sequence[str]) -> list[str]:
        chosen = self._choice.reduced(dict.fromkeys(source.columns), keys)
        return [*keys, *(name for name in chosen if name not in keys)]


def _bounds(
    connection: Connection, table: TargetTable, keys: Sequence[str]
) -> tuple[int, int] | None:
    column = table.column(keys[0]) if keys else None
    if column is None or column.family != "int":
        return None
    statement = f"SELECT MIN({column.quoted}), MAX({column.quoted}) FROM {table.quoted}"
    low, high = connection.exec_driver_sql(statement).one()
    return (low, high) if type(low) is int and type(high) is int else None


def _has_numbers(table: TargetTable, keys: Sequence[str]) -> bool:
    """Return whether the first column of a key holds numbers."""
    column = table.column(keys[0]) if keys else None
    return column is not None and column.family in ("int", "decimal")


def _ranges(pair: _Pair, range_rows: int) -> list[Range]:
    count = -(-pair.rows // range_rows)
    if pair.bounds is None or count < 2:
        return [Range()]
    low, high = pair.bounds
    step = max(1, -(-(high - low) // count))
    inner = list(range(low + step, high, step))
    return [Range(first, last) for first, last in zip([None, *inner], [*inner, None], strict=True)]


def _compare(
    pair: _Pair,
    settings: PipelineSettings,
    settle_s: float,
    spark: SparkSession | None,
    range_rows: int,
) -> Verdict:
    ranges = _ranges(pair, range_rows)
    if len(ranges) > 1 and spark is None and not can_start():
        ranges = [Range()]
    if len(ranges) == 1:
        source, target = (side.digests(ranges[0]) for side in pair.sides)
    else:
        with session(settings, spark) as started:
            source, target = digests_by_tasks(started, pair.sides, ranges)
    differing = source.differing(target)
    found: list[Difference] = []
    sizes = source.counts + target.counts
    while differing and len(found) <= _MOST:
        group = [differing.pop()]
        while differing and sizes[[*group, differing[-1]]].sum() <= _MOST_ROWS:
            group.append(differing.pop())
        found += _Look(pair, group).differences(settle_s)
    has_more = bool(differing) or len(found) > _MOST
    return Verdict(pair.name, source.rows, target.rows, found[:_MOST], has_more)


class _Look:
    """Comparison of the rows in some buckets, one by one."""

    def __init__(self, pair: _Pair, buckets: Sequence[int]) -> None:
        self._pair: Final = pair
        self._buckets: Final = buckets

    def differences(self, settle_s: float) -> list[Difference]:
        """Return the differences that persist."""
        source, target = self._read()
        keys = [
            key
            for key in dict.fromkeys([*source, *target])
            if _values(source, key) != _values(target, key)
        ]
        # Former states of the source: the replica may lag by that much.
        past = {key: {_values(source, key)} for key in keys}
        for _ in range(_LOOKS if settle_s else 0):
            if not keys:
                break
            sleep(settle_s)
            before = {key: (_values(source, key), _values(target, key)) for key in keys}
            source, target = self._read()
            keys = [
                key
                for key in keys
                if _values(target, key) not in past[key]
                and _values(target, key) != _values(source, key)
            ]
            if all(before[key] == (_values(source, key), _values(target, key)) for key in keys):
                break
            for key in keys:
                past[key].add(_values(source, key))
        return [self._difference(source.get(key), target.get(key)) for key in keys]

    def _read(self) -> tuple[dict[Key, Found], dict[Key, Found]]:
        """Read the replica first: its rows were in the source before."""
        one, other = self._pair.sides
        target = other.rows(self._buckets)
        return matched(one.rows(self._buckets), target)

    def _difference(self, source: Found | None, target: Found | None) -> Difference:
        pair = self._pair
        found = source or target
        assert found is not None
        key = dict(zip(pair.columns, map(_shown, found.key), strict=False))
        if target is None:
            return Difference(pair.name, key, "missing")
        if source is None:
            return Difference(pair.name, key, "extra")
        values = zip(pair.columns, source.values, target.values, strict=True)
        return Difference(
            pair.name, key, "different", [name for name, own, its in values if own != its]
        )


def _values(rows: dict[Key, Found], key: Key) -> tuple[Any, ...] | None:
    found = rows.get(key)
    return None if found is None else found.values


def _shown(value: Any) -> object:
    try:
        return to_json(value)
    except InvalidValueError:
        return str(value)
