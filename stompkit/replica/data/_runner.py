"""Executes statements that change and find rows of a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlalchemy import Connection

from stompkit.replica.data._many import (
    Values,
    each_row,
    insert_rows,
    mark_of,
    parts_of,
    together,
)
from stompkit.replica.data._plan import Batch, Columns
from stompkit.replica.data._reasons import Reason, RefusedRowError
from stompkit.replication.sql import Statements, TargetTable
from stompkit.replication.sql.fixed_columns import FixedColumnError, check_fixed, settable

__all__ = ["Runner"]

#: Number of keys in one statement that finds rows.
_CHUNK: Final = 300
_ALIKE: Final = Reason("unique", "another row has a key that its collation takes for the same")


class Runner:
    """Runs statements in the transaction of a connection."""

    def __init__(self, connection: Connection, statements: Statements, backend: str) -> None:
        """Use the statements for a kind of database."""
        self.connection = connection
        self._statements = statements
        self._backend = backend
        #: Placeholder of a parameter.
        self.mark = mark_of(connection)

    def run(self, batch: Batch) -> None:
        """Execute a batch; raises the database's errors, or :class:`RefusedRowError`."""
        shape = batch.shape
        table = shape.target.table
        if shape.kind == "delete":
            self._delete(batch)
            return
        try:
            check_fixed(
                self.connection, self._statements, table, shape.key, shape.others, batch.rows
            )
        except FixedColumnError as error:
            raise RefusedRowError(Reason("other", str(error))) from None
        if shape.kind == "upsert":
            insert_rows(
                self.connection, self._statements.upsert(table, shape.key, shape.others), batch.rows
            )
        else:
            self._merge(batch)
        if shape.folding:
            self._compare(batch)

    def find(
        self, table: TargetTable, columns: Columns, where: Columns, values: Values
    ) -> Values | None:
        """Return columns of a row that has these values; ``None`` if there is none."""
        same = " AND ".join(f"{column.quoted} = {self.mark}" for column in where)
        names = ", ".join(column.quoted for column in columns)
        statement = f"SELECT {names} FROM {table.quoted} WHERE {same}"
        found = self.connection.exec_driver_sql(statement, values).first()
        return None if found is None else tuple(found)

    # Internals.

    def _merge(self, batch: Batch) -> None:
        """Update rows, and insert the missing ones."""
        shape = batch.shape
        table, size = shape.target.table, len(shape.key)
        insert = self._statements.insert(table, shape.key + shape.others)
        free, _ = settable(shape.others, shape.others)
        update = self._statements.update(table, free, shape.key)
        if len(batch) == 1:
            (row,) = batch.rows
            changed = settable(shape.others, row[size:])[1] + row[:size]
            if not self.connection.exec_driver_sql(update, changed).rowcount:
                self.connection.exec_driver_sql(insert, row)
            return
        there = set(self._keys(batch))
        insert_rows(self.connection, insert, [row for row in batch.rows if row[:size] not in there])
        old = [
            settable(shape.others, row[size:])[1] + row[:size]
            for row in batch.rows
            if row[:size] in there
        ]
        each_row(self.connection, update, old)

    def _delete(self, batch: Batch) -> None:
        shape, rows = batch.shape, batch.rows
        table = shape.target.table
        if shape.folding:
            # Delete only the exact row, and none whose key is equal only by collation.
            rows = [row for row in rows if self._is_exact(batch, row)]
        if self._backend != "postgresql" or len(rows) == 1:
            each_row(self.connection, self._statements.delete(table, shape.key), rows)
            return
        for part in parts_of(rows):
            statement = f"DELETE FROM {table.quoted} WHERE {self._among(shape.key, len(part))}"
            self.connection.exec_driver_sql(statement, together(part))

    def _compare(self, batch: Batch) -> None:
        """Refuse a write that has changed a row whose key is equal only by collation."""
        folding = batch.shape.folding
        wanted = sorted(str([row[place] for place in folding]) for row in batch.rows)
        found = sorted(str([key[place] for place in folding]) for key in self._keys(batch))
        if wanted != found:
            raise RefusedRowError(_ALIKE)

    def _is_exact(self, batch: Batch, row: Values) -> bool:
        shape = batch.shape
        found = self.find(shape.target.table, shape.key, shape.key, row)
        return found is not None and all(found[place] == row[place] for place in shape.folding)

    def _keys(self, batch: Batch) -> Iterator[Values]:
        """Yield the keys of the existing rows."""
        table, key = batch.shape.target.table, batch.shape.key
        names = ", ".join(column.quoted for column in key)
        for start in range(0, len(batch), _CHUNK):
            rows = [row[: len(key)] for row in batch.rows[start : start + _CHUNK]]
            statement = f"SELECT {names} FROM {table.quoted} WHERE {self._among(key, len(rows))}"
            for found in self.connection.exec_driver_sql(statement, together(rows)):
                yield tuple(found)

    def _among(self, key: Columns, count: int) -> str:
        """Return the condition that a row's key is one of ``count`` keys."""
        names = ", ".join(column.quoted for column in key)
        marks = ", ".join([self._marks(len(key))] * count)
        values = "VALUES " if self._backend == "sqlite" and len(key) > 1 else ""
        return f"({names}) IN ({values}{marks})"

    def _marks(self, count: int) -> str:
        return f"({', '.join([self.mark] * count)})"
