"""Executes planned batches, within a transaction."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

from stompkit.replication.sql.fixed_columns import (
    FixedColumnError,
    check_fixed,
    fixed_of,
    settable,
)
from stompkit.replication.sql.planner import Batch
from stompkit.replication.sql.row_id import check_row_id
from stompkit.replication.sql.statements import Statements

__all__ = ["apply_batch"]

_log: Final = logging.getLogger(__name__)

Values = tuple[object, ...]


def apply_batch(connection: Connection, statements: Statements, batch: Batch) -> None:
    """Execute the operation of a batch for its rows."""
    table, key, others, rows = batch.table, batch.key, batch.others, batch.rows
    match batch.kind:
        case "upsert":
            check_fixed(connection, statements, table, key, others, rows)
            _run(connection, statements.upsert(table, key, others), rows)
        case "insert":
            _run(connection, statements.insert(table, others), rows)
        case "delete":
            _run(connection, statements.delete(table, key), rows)
        case "merge":
            check_fixed(connection, statements, table, key, others, rows)
            _merge(connection, statements, batch, rows)
        case "move":
            _Moves(connection, statements, batch).run()
        case "truncate":
            if others:
                _run(connection, statements.empty(table, others), [()])
            _run(connection, statements.truncate(table), [()])
        case "delete_one":
            check_row_id(connection, table)
            for row in rows:
                if not _run(connection, statements.delete_one(table, key), [row]):
                    _log.warning(
                        "%s has no row like one that the source has deleted; it has no key that"
                        " tells which one it is",
                        table.quoted,
                    )
        case "update_one":
            check_row_id(connection, table)
            for row in rows:
                _update_one(connection, statements, batch, row)


def _run(connection: Connection, statement: str, rows: Sequence[Values]) -> int:
    """Run a statement for each row; return the number of rows found, or -1 if unknown."""
    parameters = rows[0] if len(rows) == 1 else list(rows)
    return connection.exec_driver_sql(statement, parameters).rowcount


def _merge(
    connection: Connection, statements: Statements, batch: Batch, rows: Sequence[Values]
) -> None:
    """Update rows, and insert missing ones; the key comes first in each."""
    table, key, others = batch.table, batch.key, batch.others
    free, _ = settable(others, others)
    update = statements.update(table, free, key)
    changed = [settable(others, row[len(key) :])[1] + row[: len(key)] for row in rows]
    found = _run(connection, update, changed)
    if found == 0:
        _run(connection, statements.insert(table, key + others), rows)
    elif found < len(rows):
        # In order: a row may take a unique value that an earlier one gives up.
        for row in rows:
            _merge(connection, statements, batch, [row])


def _update_one(connection: Connection, statements: Statements, batch: Batch, row: Values) -> None:
    """Update one of the rows that match the image, or insert its new values."""
    image, others = row[: len(batch.key)], row[len(batch.key) :]
    old = dict(zip(batch.key, image, strict=True))
    new = dict(zip(batch.others, others, strict=True))
    changed = tuple(each for each in fixed_of(batch.others) if old.get(each) != new[each])
    if changed:
        raise FixedColumnError(batch.table, changed)
    columns, values = settable(batch.others, others)
    if not columns:
        return
    update = statements.update_one(batch.table, columns, batch.key)
    if not _run(connection, update, [values + image]):
        _run(connection, statements.insert(batch.table, batch.others), [others])


class _Moves:
    """Rows that get other keys, all in one transaction of the source."""

    def __init__(self, connection: Connection, statements: Statements, batch: Batch) -> None:
        self._connection = connection
        self._statements = statements
        self._batch = batch
        size = len(batch.key)
        #: Remaining moves by old key: the new key and the other values.
        self._left = {row[:size]: (row[size : 2 * size], row[2 * size :]) for row in batch.rows}

    def run(self) -> None:
        """Move all rows, each when its new key is free."""
        while self._left:
            path = [next(iter(self._left))]
            while path:
                old = path[-1]
                new, _ = self._left[old]
                if new not in self._left or not self._is_taken(old, new):
                    self._move(path.pop())
                elif new in path:
                    # They swap keys: each row stays in place, and gets another's values.
                    for each in path[path.index(new) :]:
                        self._write(*self._left.pop(each))
                    del path[path.index(new) :]
                else:
                    path.append(new)

    def _is_taken(self, old: Values, new: Values) -> bool:
        """Return True if another row has the new key."""
        question = self._statements.another(self._batch.table, self._batch.key)
        return self._connection.exec_driver_sql(question, new + old).first() is not None

    def _move(self, old: Values) -> None:
        """Move a row; an existing row with the new key stays, and gets its values."""
        new, others = self._left.pop(old)
        batch, statements = self._batch, self._statements
        if self._is_taken(old, new):
            self._write(new, others)
            _run(self._connection, statements.delete(batch.table, batch.key), [old])
            return
        check_fixed(
            self._connection, statements, batch.table, batch.key, batch.others, [old + others]
        )
        changed = tuple(
            column
            for column, is_, was in zip(batch.key, new, old, strict=True)
            if column.is_fixed and is_ != was
        )
        if changed:
            raise FixedColumnError(batch.table, changed)
        # An update keeps unreported columns, and CASCADE updates referencing rows.
        columns, values = settable(batch.key + batch.others, new + others)
        update = statements.update(batch.table, columns, batch.key)
        if not _run(self._connection, update, [values + old]):
            self._write(new, others)

    def _write(self, new: Values, others: Values) -> None:
        row, batch = new + others, self._batch
        check_fixed(self._connection, self._statements, batch.table, batch.key, batch.others, [row])
        _merge(self._connection, self._statements, batch, [row])
