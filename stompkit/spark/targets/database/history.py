"""Versions of rows with their validity periods: slowly changing dimensions of type 2."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from sqlalchemy import Connection

from stompkit.replication.sql import (
    Batch,
    RejectedRowError,
    SchemaError,
    TargetColumn,
    TargetTable,
    apply_batch,
)
from stompkit.spark.fence import Point
from stompkit.spark.states import Place, Step
from stompkit.spark.targets.base import NewColumn
from stompkit.spark.targets.planning.plan import Op, Plan

if TYPE_CHECKING:
    from stompkit.spark.targets.database.session import Session

__all__ = ["HISTORY_COLUMNS", "History"]

#: Columns of a version, besides those of its row.
HISTORY_COLUMNS: Final = {
    "valid_from_ordinal": NewColumn("valid_from_ordinal", "int", key=True),
    "valid_from": NewColumn("valid_from", "datetimez"),
    "valid_to": NewColumn("valid_to", "datetimez"),
    "is_current": NewColumn("is_current", "bool"),
}
_NO_CAUSE: Final[Any] = None

#: A table, and the columns of a key with their values.
Row = tuple[tuple[str | None, str], frozenset[tuple[str, object]]]
#: Numbers of versions; ``None`` for one that has another key now.
Begun = MutableMapping[Row, int | None]


class History:
    """Ends the current version of a row, and creates the next one.

    A version begins with a number, and with the time of its changeset. Several changes of a row in
    one message create one version. Its number is the ordinal of the message, or the next number if
    the row has a version of that one or a later one: from another spool or partition, or by another
    order of changes.
    """

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Store the times of the changes."""
        self._times: dict[Place, datetime | None] = {}
        for batch in batches:
            places = zip(
                *[batch.column(name).to_pylist() for name in ("_partition", "_ordinal", "change")],
                strict=True,
            )
            times = [None] * batch.num_rows
            if "committed" in batch.schema.names:
                times = batch.column("committed").to_pylist()
            self._times.update(zip(places, times, strict=True))
        self._message: Point | None = None
        #: Numbers of the versions that this message has begun.
        self._begun: Begun = {}

    def do(self, connection: Connection, session: Session, step: Step, plan: Plan) -> None:
        """Apply one step; raises SchemaError if the table has no columns for versions."""
        table = session.find(connection, *step.table)
        if table is None or step.kind == "truncate":
            raise RejectedRowError("rows cannot all go at once where versions are kept")
        place = step.states[0].place
        if place[:2] != self._message:
            self._message, self._begun = place[:2], {}
        # The numbers of a step that is rejected are forgotten with its versions.
        begun = ChainMap[Row, int | None]({}, self._begun)
        version = _Version(connection, session, table, place, self._times[place], begun)
        for op in plan.ops:
            rows = op.rows()
            match op.kind:
                case "delete":
                    for row in rows:
                        version.end(op.key, row)
                case "upsert" | "merge":
                    for row in rows:
                        version.write(op, row)
                case "move":
                    version.move(op, rows)
                case _:
                    raise RejectedRowError("a row without a key has no versions")
        self._begun.update(begun.maps[0])


class _Version:
    """The changes of one row's versions by one change."""

    def __init__(
        self,
        connection: Connection,
        session: Session,
        table: TargetTable,
        place: Place,
        time: datetime | None,
        begun: Begun,
    ) -> None:
        missing = [name for name in HISTORY_COLUMNS if name not in table.columns]
        if missing:
            raise SchemaError(
                f"the target's table {table.name!r} lacks {', '.join(missing)}, where versions of"
                " its rows are kept. To go on, make the columns there, valid_from_ordinal being of"
                " the key"
            )
        self._connection = connection
        self._session = session
        self._table = table
        self._mark = "?" if session.database.engine.dialect.paramstyle == "qmark" else "%s"
        self._ordinal = place[1]
        self._begun = begun
        self._from, self._begin, self._end, self._current = (
            table.columns[name] for name in HISTORY_COLUMNS
        )
        self._at = self._begin.adapt(time)

    def end(self, key: tuple[str, ...], values: tuple[object, ...]) -> int:
        """End the current version of a row; return the number of ended versions."""
        return self._close(key, values, "")

    def write(self, op: Op, values: tuple[object, ...]) -> None:
        """Create a version with changed columns."""
        key, others = values[: len(op.key)], values[len(op.key) :]
        self._lay_over(op, key, others, self._copy(op.key, key))

    def move(self, op: Op, rows: Sequence[tuple[object, ...]]) -> None:
        """Change the keys of rows, all at once."""
        size = len(op.key)
        left = [row[:size] for row in rows]
        #: Temporary numbers of versions, which no others have.
        aside: dict[tuple[object, ...], int] = {}
        for row in rows:
            old, new, others = left.pop(0), row[size : 2 * size], row[2 * size :]
            if new in left and new not in aside:
                # A row whose key changes later keeps its state until then.
                number = self._copy(op.key, new)
                if self._rename(op.key, new, (), (), number, -1 - number):
                    aside[new] = -1 - number
                    self._begun[self._row(op.key, new)] = None
            begun = aside[old] if old in aside else self._copy(op.key, old)
            self._close(op.key, new, f" AND {self._from.quoted} >= 0")
            number = self._next(op.key, new)
            names = (*op.key, *op.others)
            if not self._rename(op.key, old, names, (*new, *others), begun, number):
                self._lay_over(op, new, others, number)
            if old not in aside:
                self._begun[self._row(op.key, old)] = None
            self._begun[self._row(op.key, new)] = number

    def _row(self, key: tuple[str, ...], values: tuple[object, ...]) -> Row:
        """Return the identity of a row, whatever the order of its columns."""
        return self._table.identity, frozenset(zip(key, values, strict=True))

    def _next(self, key: tuple[str, ...], values: tuple[object, ...]) -> int:
        """Return the number of the next version of a row."""
        statement = (
            f"SELECT MAX({self._from.quoted}) FROM {self._table.quoted} WHERE {self._is(key)}"
        )
        last = self._connection.exec_driver_sql(statement, values).scalar()
        return self._ordinal if last is None else max(self._ordinal, int(last) + 1)

    def _rename(
        self,
        key: tuple[str, ...],
        old: tuple[object, ...],
        names: Sequence[str],
        values: tuple[object, ...],
        begun: int,
        begins: int,
    ) -> int:
        """Change the version that this message has created; return the number of changed rows."""
        sets = [f"{self._table.columns[name].quoted} = {self._mark}" for name in names]
        sets.append(f"{self._from.quoted} = {begins}")
        return self._run(
            f"UPDATE {self._table.quoted} SET {', '.join(sets)} WHERE {self._is(key)}"
            f" AND {self._from.quoted} = {begun} AND {self._current.quoted} = TRUE",
            (*values, *old),
        )

    def _close(self, key: tuple[str, ...], values: tuple[object, ...], condition: str) -> int:
        return self._run(
            f"UPDATE {self._table.quoted} SET {self._end.quoted} = {self._mark},"
            f" {self._current.quoted} = FALSE"
            f" WHERE {self._is(key)} AND {self._current.quoted} = TRUE{condition}",
            (self._at, *values),
        )

    def _copy(self, key: tuple[str, ...], values: tuple[object, ...]) -> int:
        """Create a version as a copy of the former one, unless this message has created one.

        Returns its number, also if there is no former version.
        """
        row = self._row(key, values)
        begun = self._begun.get(row)
        if begun is not None:
            return begun
        number = self._begun[row] = self._next(key, values)
        if not self._close(key, values, ""):
            return number
        rest = [
            column.quoted
            for name, column in self._table.columns.items()
            if name not in HISTORY_COLUMNS and not column.is_generated
        ]
        names = ", ".join((*rest, *(self._table.columns[name].quoted for name in HISTORY_COLUMNS)))
        told = ", ".join((*rest, str(number), self._end.quoted, "NULL", "TRUE"))
        self._run(
            f"INSERT INTO {self._table.quoted} ({names}) SELECT {told} FROM {self._table.quoted}"
            f" WHERE {self._is(key)} ORDER BY {self._from.quoted} DESC LIMIT 1",
            values,
        )
        return number

    def _lay_over(
        self, op: Op, key: tuple[object, ...], others: tuple[object, ...], number: int
    ) -> None:
        """Write columns to the version that this message has created, or create it."""
        columns = [self._table.columns[name] for name in op.others]
        row = (*key, number, *others, self._at, None, self._current.adapt(True))
        named: tuple[TargetColumn, ...] = (*columns, self._begin, self._end, self._current)
        at = (*(self._table.columns[name] for name in op.key), self._from)
        batch = Batch("merge", self._table, at, named, _NO_CAUSE, [row])
        apply_batch(self._connection, self._session.statements, batch)

    def _is(self, key: tuple[str, ...]) -> str:
        return " AND ".join(f"{self._table.columns[name].quoted} = {self._mark}" for name in key)

    def _run(self, statement: str, values: tuple[object, ...]) -> int:
        return self._connection.exec_driver_sql(statement, values).rowcount
