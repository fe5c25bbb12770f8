"""Row changes made by statements, as far as the statements contain them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import BindParameter, Column, Connection, Dialect, Table, cast, literal, select

from stompkit.replication.model.events import Action, RowChange
from stompkit.replication.model.values import Value
from stompkit.replication.sources.session._images import Image
from stompkit.replication.sources.session.statements import (
    Parameters,
    SelectAs,
    UnseenChangeError,
    bound_values,
    rows_by_keys,
)
from stompkit.replication.sources.session.values import UNKNOWN, Converters, name_of

__all__ = ["Plan", "Row", "Rows", "complete"]


@dataclass(slots=True)
class Row:
    """A change that may be incomplete until the end of the flush."""

    table: Table
    connection: Connection
    action: Action
    key: dict[str, Value]
    #: Values of the key in the program's form.
    raw_key: list[Any] = field(default_factory=list)
    after: dict[str, Value] | None = None
    before: dict[str, Value] | None = None
    old_key: dict[str, Value] | None = None
    #: Columns that the database has generated.
    generated: list[Column[Any]] = field(default_factory=list)

    @property
    def change(self) -> RowChange:
        """The change to publish."""
        return RowChange(
            table=name_of(self.table),
            schema=str(self.table.schema or ""),
            action=self.action,
            key=self.key,
            before=self.before,
            after=self.after,
            old_key=self.old_key,
        )


@dataclass(slots=True)
class Plan:
    """Information about a statement from before its execution."""

    table: Table
    rows: Parameters
    #: Old rows: the key in the program's form, followed by all columns.
    found: list[tuple[Any, ...]] | None = None
    #: Columns that the condition compares by equality; the unit of work itself checks that the row
    #: exists.
    by_key: Mapping[Column[Any], BindParameter[Any]] | None = None


def complete(row: Row, image: Image) -> None:
    """Add the ORM's knowledge of a row to that of its statement."""
    if row.action == "delete":
        row.before = image.unchanged | image.changed | (row.before or {})
        return
    reported = row.after or {}
    row.after = {**image.after, **reported}
    if row.action == "update":
        same = {name: value for name, value in image.unchanged.items() if name not in reported}
        row.before = same | image.changed | (row.before or {})


class Rows:
    """Reads the parameters and results of statements."""

    def __init__(self, converters: Converters) -> None:
        """Convert values by ``converters``."""
        self._converters = converters

    def inserted(self, connection: Connection, plan: Plan, result: Any) -> list[Row]:
        """Return the rows of an INSERT; raises :class:`UnseenChangeError` if a key is not known."""
        table, dialect = plan.table, connection.dialect
        primary = list(table.primary_key)
        executions = result.context.compiled_parameters
        keys = result.inserted_primary_key_rows if primary else [()] * len(executions)
        postfetch = result.postfetch_cols()
        rows = []
        for parameters, values in zip(executions, keys, strict=True):
            key = self._key(connection, primary, values)
            if None in key.values():
                raise UnseenChangeError(
                    f"a row of {table.fullname} was inserted without a known key"
                )
            given, generated = self._given(table, parameters, dialect)
            after = given | key
            unknown = {*generated}
            generated = [each for each in generated if not each.primary_key]
            for column in table.columns:
                if name_of(column) in after or column in unknown:
                    continue
                if _has_default(column) or column in postfetch:
                    generated.append(column)
                else:
                    after[name_of(column)] = None
            row = Row(table, connection, "write", key, list(values), after, generated=generated)
            rows.append(row)
        return rows

    def by_key(self, connection: Connection, plan: Plan, result: Any) -> list[Row]:
        """Return the rows of an UPDATE or a DELETE by the unit of work."""
        assert plan.by_key is not None
        table, dialect = plan.table, connection.dialect
        is_update = result.context.isupdate
        executions = result.context.compiled_parameters if is_update else plan.rows
        generated = list(result.postfetch_cols()) if is_update else []
        if any(column.primary_key for column in generated):
            raise UnseenChangeError(f"a key of {table.fullname} was set to an expression")
        names = {bind.key for bind in plan.by_key.values()}
        rows = []
        for parameters, given in zip(executions, plan.rows, strict=True):
            values = bound_values(plan.by_key, given)
            was = self._was(connection, values)
            key = {name_of(column): was[name_of(column)] for column in table.primary_key}
            if not is_update:
                raw = [values[column] for column in table.primary_key]
                rows.append(Row(table, connection, "delete", key, raw, before=was))
                continue
            after, unknown = self._given(table, parameters, dialect, names)
            reported = [
                column
                for column in table.primary_key
                if name_of(column) in after or column in unknown
            ]
            after |= self._key(connection, reported, [parameters[each.key] for each in reported])
            new = {name: after.get(name, value) for name, value in key.items()}
            raw = [
                parameters[column.key] if column in reported else values[column]
                for column in table.primary_key
            ]
            row = Row(table, connection, "update", new, raw, new | after, before=key)
            row.generated = generated + [each for each in unknown if not each.primary_key]
            if new != key:
                row.old_key = key
            rows.append(row)
        return rows

    def expanded(self, connection: Connection, plan: Plan, result: Any) -> list[Row]:
        """Return a statement's changes of the rows found before, by reading them again.

        Raises :class:`UnseenChangeError` if there were other rows, and if keys have changed.
        """
        table, dialect = plan.table, connection.dialect
        found = plan.found or []
        count = _row_count(dialect, result)
        if count is not None and count != len(found):
            raise UnseenChangeError(
                f"{count} rows of {table.fullname} were changed, not {len(found)}"
            )
        primary, columns = list(table.primary_key), list(table.columns)
        size = len(primary)
        raw = [list(row[:size]) for row in found]
        old = [self._convert(columns, row[size:], dialect) for row in found]
        keys = [{name_of(column): row[name_of(column)] for column in primary} for row in old]
        if result.context.isdelete:
            return [
                Row(table, connection, "delete", key, each, before=row)
                for key, each, row in zip(keys, raw, old, strict=True)
            ]
        new = self._read(connection, table, columns, raw)
        if len(new) != len(found) or _sets_key(result.context, plan):
            raise UnseenChangeError(
                f"keys of {table.fullname} were changed: change them by objects"
            )
        return [
            Row(table, connection, "update", key, each, new[tuple(key.values())], before=row)
            for key, each, row in zip(keys, raw, old, strict=True)
            if new[tuple(key.values())] != row
        ]

    def fetch(self, rows: Iterable[Row], *, everything: bool = False) -> None:
        """Read the unknown values that the database has generated; or all columns."""
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            if row.after is None or not row.key:
                continue
            columns = tuple(each for each in row.generated if name_of(each) not in row.after)
            if everything:
                columns = tuple(row.table.columns)
            if columns:
                groups.setdefault((row.connection, row.table, columns), []).append(row)
        for (connection, table, columns), group in groups.items():
            raw = [row.raw_key for row in group]
            found = self._read(connection, table, list(columns), raw)
            for row in group:
                assert row.after is not None
                row.after |= found.get(tuple(row.key.values()), {})

    def _read(
        self,
        connection: Connection,
        table: Table,
        columns: list[Column[Any]],
        keys: list[list[Any]],
    ) -> dict[tuple[Any, ...], dict[str, Value]]:
        """Return columns of rows by their keys."""
        primary = list(table.primary_key)
        wanted = [*primary, *columns]
        select_as = self.select_as(connection.dialect)
        found = {}
        for values in rows_by_keys(connection, table, [*map(select_as, wanted)], keys):
            row = self._convert(wanted, values, connection.dialect)
            found[tuple(row[name_of(column)] for column in primary)] = row
        return found

    def select_as(self, dialect: Dialect) -> SelectAs:
        """Return the function from columns to select expressions that :meth:`_convert` can read."""
        return lambda column: self._converters.find(column.type, dialect).expression(column)

    def _convert(
        self, columns: Iterable[Column[Any]], values: Iterable[Any], dialect: Dialect
    ) -> dict[str, Value]:
        """Return the converted columns of a selected row."""
        find = self._converters.find
        return {
            name_of(column): find(column.type, dialect).read(value)
            for column, value in zip(columns, values, strict=True)
        }

    def _given(
        self,
        table: Table,
        parameters: Mapping[str, Any],
        dialect: Dialect,
        without: Iterable[str] = (),
    ) -> tuple[dict[str, Value], list[Column[Any]]]:
        """Return the columns with values in a statement, and the columns that have to be read."""
        reported: dict[str, Value] = {}
        unknown = []
        for column in table.columns:
            if column.key not in parameters or column.key in without:
                continue
            value = self._converters.find(column.type, dialect).given(parameters[column.key])
            if value is UNKNOWN:
                unknown.append(column)
            else:
                reported[name_of(column)] = value
        return reported, unknown

    def _key(
        self, connection: Connection, columns: Iterable[Column[Any]], values: Iterable[Any]
    ) -> dict[str, Value]:
        """Return the key for the program's values; query the database for unknown forms."""
        key = {}
        for column, value in zip(columns, values, strict=True):
            found = self._converters.find(column.type, connection.dialect)
            made = found.given(value)
            if made is UNKNOWN:
                asked = select(found.expression(cast(literal(value, column.type), column.type)))
                made = found.read(connection.execute(asked).scalar_one())
            key[name_of(column)] = made
        return key

    def _was(self, connection: Connection, values: Mapping[Column[Any], Any]) -> dict[str, Value]:
        """Return the old values in a statement's condition: the key, and other columns."""
        keys = [column for column in values if column.primary_key]
        reported = self._key(connection, keys, [values[column] for column in keys])
        for column, value in values.items():
            if not column.primary_key:
                made = self._converters.find(column.type, connection.dialect).given(value)
                if made is not UNKNOWN:
                    reported[name_of(column)] = made
        return reported


def _has_default(column: Column[Any]) -> bool:
    """Return True if the database may have filled a column without a value."""
    return (
        column.default is not None
        or column.server_default is not None
        or column.computed is not None
        or column.identity is not None
    )


def _row_count(dialect: Dialect, result: Any) -> int | None:
    """Return the number of rows that a statement has changed, if it is reliable."""
    if not dialect.supports_sane_rowcount or result.rowcount < 0:
        return None
    if result.context.executemany and not dialect.supports_sane_multi_rowcount:
        return None
    # A driver may count the rows of RETURNING as they are read.
    return None if result.returns_rows else result.rowcount


def _sets_key(context: Any, plan: Plan) -> bool:
    parameters = context.compiled_parameters[0] if context.compiled_parameters else {}
    return any(
        column in context.compiled.postfetch or column.key in parameters
        for column in plan.table.primary_key
    )
