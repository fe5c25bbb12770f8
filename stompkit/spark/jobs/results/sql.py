"""Results of the job *analytics* as tables of a database. Requires the extra ``sql``.

``stompkit_analytics_changes``, ``_top_keys`` and ``_lag`` contain the results of all pipelines that
use the database. ``stompkit_analytics_fence`` contains the position of each pipeline. Times are
UTC.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Double,
    Inspector,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    bindparam,
    delete,
    func,
    insert,
    inspect,
    select,
    update,
)

from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.replication.sql import Database, RejectedRowError, SchemaError, create_tables
from stompkit.spark.jobs.results.base import CHANGES, TABLES, Mark, Row, Spec, merged
from stompkit.spark.jobs.results.counting import Counted

__all__ = ["SqlResults"]

_PREFIX: Final = "stompkit_analytics"
#: Maximum number of minutes in one query.
_MOST_MINUTES: Final = 500
_TYPES: Final = {int: BigInteger, float: Double, str: Text}
#: Maximum lengths of texts in keys, which MySQL requires.
_BOUNDED: Final = {"table_name": 200, "operation": 20}


class SqlResults:
    """The results of a pipeline in a database."""

    def __init__(self, url: str, pipeline: str) -> None:
        """Start unconnected; raises ValueError for a URL that is not one of a database."""
        self._database: Final = Database(url, "deferred")
        self._pipeline: Final = pipeline
        #: True if no table lacks a column.
        self._is_checked = False
        data = MetaData()
        self._tables: Final = {spec.name: _table(spec, data) for spec in TABLES}
        self._fence: Final = Table(
            f"{_PREFIX}_fence",
            data,
            Column("pipeline", String(100), primary_key=True),
            Column("query", String(64), nullable=False),
            Column("spool", String(64), nullable=False),
            # JSON: the last ordinal of each partition.
            Column("ordinals", Text, nullable=False),
        )

    @property
    def passing(self) -> tuple[type[Exception], ...]:
        """Errors for which a retry may succeed: an unreachable database."""
        return (SinkUnavailableError,)

    def apply(self, counted: Counted, mark: Mark) -> None:
        """Write the result of a batch in one transaction."""
        self._prepare()
        with self._database.transaction() as connection:
            last = self._mark(connection, is_locked=True)
            new = mark.after(last, self._database.name)
            # First, so that a concurrent run cannot pass this point.
            self._note(connection, last, new)
            minutes = sorted(counted.minutes())
            for begin in range(0, len(minutes), _MOST_MINUTES):
                for spec in TABLES:
                    chosen = minutes[begin : begin + _MOST_MINUTES]
                    self._change(connection, spec, chosen, counted)

    def mark(self) -> Mark | None:
        """Return the mark of the results."""
        if not self._is_there():
            return None
        with self._database.transaction() as connection:
            return None if self._missing(connection) else self._mark(connection, is_locked=False)

    def rows(self, spec: Spec, since: int) -> list[Row]:
        """Return the rows of a table from a minute on."""
        if not self._is_there():
            return []
        with self._database.transaction() as connection:
            if self._missing(connection):
                return []
            table = self._tables[spec.name]
            return self._rows(connection, spec, table.c.minute >= _time(since))

    def latest(self) -> int | None:
        """Return the last minute with changes."""
        if not self._is_there():
            return None
        with self._database.transaction() as connection:
            if self._missing(connection):
                return None
            column = self._tables[CHANGES.name].c
            found = select(func.max(column.minute)).where(column.pipeline == self._pipeline)
            latest = connection.execute(found).scalar_one()
            return None if latest is None else _seconds(latest)

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    def _prepare(self) -> None:
        with self._database.transaction() as connection:
            is_missing = self._missing(connection)
        if is_missing:
            try:
                with self._database.transaction() as connection:
                    self._create(connection)
            except (RejectedRowError, SinkUnavailableError):
                # Another pipeline may have created the tables meanwhile.
                with self._database.transaction() as connection:
                    if self._missing(connection):
                        raise

    def _is_there(self) -> bool:
        """Return True if the database exists: SQLite would create the file."""
        file = self._database.engine.url.database or ""
        return self._database.backend != "sqlite" or Path(file).exists()

    def _missing(self, connection: Connection) -> bool:
        """Return True if a table is missing; raises SchemaError if a column is missing."""
        inspector = inspect(connection)
        there = set(inspector.get_table_names())
        tables = (*self._tables.values(), self._fence)
        if any(table.name not in there for table in tables):
            return True
        if not self._is_checked:
            for table in tables:
                self._check_columns(table, inspector)
            self._is_checked = True
        return False

    def _check_columns(self, table: Table, inspector: Inspector) -> None:
        there = {each["name"].lower() for each in inspector.get_columns(table.name)}
        missing = [each for each in table.columns if each.name not in there]
        if missing:
            dialect = self._database.engine.dialect
            added = ", ".join(
                f"ADD COLUMN {each.name} {each.type.compile(dialect)}" for each in missing
            )
            names = ", ".join(each.name for each in missing)
            raise SchemaError(
                f"the table {table.name} of {self._database.name} lacks {names}. To go on,"
                f" ALTER TABLE {table.name} {added}, or drop all tables {_PREFIX}_* and give the"
                " pipeline another name: then all that the spool has is counted"
            )

    def _create(self, connection: Connection) -> None:
        create_tables(connection, [*self._tables.values(), self._fence])

    def _mark(self, connection: Connection, *, is_locked: bool) -> Mark | None:
        found = select(self._fence).where(self._fence.c.pipeline == self._pipeline)
        row = connection.execute(found.with_for_update() if is_locked else found).one_or_none()
        if row is None:
            return None
        ordinals = {int(number): ordinal for number, ordinal in json.loads(row.ordinals).items()}
        return Mark(row.query, row.spool, ordinals)

    def _note(self, connection: Connection, last: Mark | None, new: Mark) -> None:
        values = {
            "query": new.query,
            "spool": new.spool,
            "ordinals": json.dumps(new.ordinals),
        }
        if last is None:
            connection.execute(insert(self._fence), {"pipeline": self._pipeline, **values})
            return
        changed = update(self._fence).where(self._fence.c.pipeline == self._pipeline)
        connection.execute(changed.values(**values))

    def _change(
        self, connection: Connection, spec: Spec, minutes: list[int], counted: Counted
    ) -> None:
        table = self._tables[spec.name]
        chosen = table.c.minute.in_([_time(minute) for minute in minutes])
        before = self._rows(connection, spec, chosen)
        after = merged(spec, before, counted, set(minutes))
        names = ("minute", *spec.columns)
        there = {row[: spec.keys + 1]: row for row in before}
        changed = [row for row in after if there.get(row[: spec.keys + 1]) != row]
        gone = there.keys() - {row[: spec.keys + 1] for row in after}
        gone |= there.keys() & {row[: spec.keys + 1] for row in changed}
        if gone:
            keys = [dict(zip(names, key, strict=False)) for key in gone]
            where = (table.c[name] == bindparam(f"its_{name}") for name in keys[0])
            connection.execute(
                delete(table).where(table.c.pipeline == self._pipeline, *where),
                [{f"its_{name}": _value(name, key[name]) for name in key} for key in keys],
            )
        if changed:
            own = {"pipeline": self._pipeline}
            rows = [dict(zip(names, row, strict=True)) for row in changed]
            connection.execute(
                insert(table),
                [{**own, **{name: _value(name, row[name]) for name in row}} for row in rows],
            )

    def _rows(self, connection: Connection, spec: Spec, where: Any) -> list[Row]:
        table = self._tables[spec.name]
        columns = [table.c[name] for name in ("minute", *spec.columns)]
        found = (
            select(*columns)
            .where(table.c.pipeline == self._pipeline, where)
            .order_by(*columns[: spec.keys + 1])
        )
        return [(_seconds(row[0]), *row[1:]) for row in connection.execute(found)]


def _table(spec: Spec, data: MetaData) -> Table:
    columns: list[Column[Any]] = [
        Column("pipeline", String(100), primary_key=True),
        Column("minute", DateTime, primary_key=True),
    ]
    for place, (name, kind) in enumerate(spec.columns.items()):
        is_key = place < spec.keys
        made: Any = String(_BOUNDED[name]) if name in _BOUNDED else _TYPES[kind]()
        if is_key and kind is int:
            made = Integer()
        columns.append(Column(name, made, primary_key=is_key, autoincrement=False))
    return Table(f"{_PREFIX}_{spec.name}", data, *columns)


def _value(column: str, value: Any) -> Any:
    return _time(value) if column == "minute" else value


def _time(minute: int) -> datetime:
    return datetime.fromtimestamp(minute, UTC).replace(tzinfo=None)


def _seconds(time: datetime) -> int:
    return int(time.replace(tzinfo=UTC).timestamp())
