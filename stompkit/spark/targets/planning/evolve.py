"""Schema evolution of a target: missing tables and columns, and wider columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Final

import msgspec
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from stompkit.replication.sql import (
    Catalog,
    Owners,
    SchemaError,
    SourceColumn,
    TargetTable,
    make_columns,
    make_table,
    rename_columns,
)
from stompkit.replication.sql.replacing import recreate_columns, unfit_columns
from stompkit.replication.sql.schema import backend_of
from stompkit.spark.targets.base import Lacking, NewColumn, Staged
from stompkit.spark.targets.planning.widen import Wider, both, statement_of

__all__ = [
    "check_new",
    "evolve",
    "lacking_of",
    "marked",
    "merged",
    "missing_table",
    "type_of",
    "unfit",
]

#: Column types by the tag of a tagged JSON value.
_TAGS: Final = {
    "$decimal": "decimal",
    "$date": "date",
    "$time": "time",
    "$interval": "interval",
    "$bytes": "bytes",
    "$uuid": "uuid",
    "$json": "json",
    "$set": "set",
    "$int": "decimal",
    "$float": "float",
}
_TYPES: Final[Mapping[type, str]] = {bool: "bool", int: "int", float: "float", str: "text"}
#: Pairs of types of which the second one also holds the values of the first.
_WIDER: Final = frozenset(
    {("int", "decimal"), ("bool", "int"), ("date", "datetime"), ("datetime", "datetimez")}
)


def type_of(values: Iterable[Any]) -> str:
    """Return the narrowest type for all values of a column; text if no other fits."""
    found = ""
    for value in values:
        if value is not None:
            found = _wider(found, _type(value))
    return found or "text"


def _type(value: Any) -> str:
    if isinstance(value, dict) and len(value) == 1:
        ((name, content),) = value.items()
        if name == "$datetime":
            # A zone is at the end: Z, +01:00 or -01:00.
            has_zone = str(content).endswith("Z") or str(content)[-6:-5] in ("+", "-")
            return "datetimez" if has_zone else "datetime"
        return _TAGS.get(name, "text")
    return _TYPES.get(type(value), "text")


def _wider(one: str, other: str) -> str:
    if not one or one == other or (one, other) in _WIDER:
        return other
    return one if (other, one) in _WIDER else "text"


def merged(parts: Iterable[Lacking]) -> dict[tuple[str, str], dict[str, NewColumn]]:
    """Return everything missing in any part, with types that hold the values of all parts."""
    made: dict[tuple[str, str], dict[str, NewColumn]] = {}
    for part in parts:
        for table, columns in part.items():
            known = made.setdefault(table, {})
            for name, column in columns.items():
                known[name] = _merged(known[name], column) if name in known else column
    return made


def lacking_of(parts: Sequence[Staged]) -> dict[tuple[str, str], dict[str, NewColumn]]:
    """Return everything that the target lacks for parts of a batch."""
    resent = {table for part in parts for table in part.resent}
    return marked(merged(part.lacking for part in parts), resent)


def marked(
    lacking: dict[tuple[str, str], dict[str, NewColumn]], resent: Set[tuple[str, str]]
) -> dict[tuple[str, str], dict[str, NewColumn]]:
    """Mark the columns of tables of which the source sends all rows again."""
    for source in resent & lacking.keys():
        lacking[source] = {
            name: msgspec.structs.replace(column, is_resent=True)
            for name, column in lacking[source].items()
        }
    return lacking


def check_new(
    source: tuple[str, str],
    columns: Iterable[NewColumn],
    target: tuple[str | None, str],
    written: Owners,
) -> None:
    """Raise SchemaError for a missing table whose changes the pipeline has applied before.

    They were in this table, or in another one. It is no loss if the source sends all rows again.
    """
    if any(each.is_resent for each in columns):
        return
    known = {_folded(each) for each in written}
    if _folded(target) not in known:
        for former in (each for each, owner in written.items() if owner == source):
            raise SchemaError(
                f"the changes of {'.'.join(filter(None, source))!r} have gone to the target's table"
                f" {former[1]!r} so far, and a new table {target[1]!r} would lack these rows. To go"
                " on, rename the table in the target; or have all changes applied again, by the job"
                " rebuild with --replace, or to an empty target; or, for the later changes alone,"
                " make an empty table there"
            )
        return
    raise SchemaError(
        f"the target has lost the table {target[1]!r}, and a new one would lack the rows of"
        f" {'.'.join(filter(None, source))!r} that were applied before. To go on, bring it back; or"
        " have all changes applied again, by the job rebuild with --replace, or to an empty target;"
        " or, for the later changes alone, make an empty table there"
    )


def missing_table(name: str, first: str = "") -> SchemaError:
    """Return the error for a table that may not be created; *first* is a further remedy."""
    return SchemaError(
        f"the target has no table {name!r}. To go on, {first}open the target with create=True,"
        " or name in `tables` those that are to be applied"
    )


def _folded(target: tuple[str | None, str]) -> tuple[str, str]:
    schema, name = target
    return (schema or "").casefold(), name.casefold()


def _merged(known: NewColumn, column: NewColumn) -> NewColumn:
    """Return a column that holds the values of both; a declared type takes precedence."""
    if isinstance(known, Wider) and isinstance(column, Wider):
        return both(known, column)
    if known.is_told != column.is_told:
        # Values may suggest a narrower type than the declared one, or a wider one.
        kept = known if known.is_told else column
        return msgspec.structs.replace(kept, key=known.key or column.key)
    wider = known.type if known.type == column.type else _wider(known.type, column.type)
    is_guess = not any(_numbers(column))
    kept = known if is_guess and wider == known.type else column
    return msgspec.structs.replace(kept, type=wider, key=known.key or column.key)


def evolve(
    connection: Connection,
    catalog: Catalog,
    lacking: Lacking,
    *,
    create: bool,
    add_columns: bool,
    written: Owners,
) -> None:
    """Create tables and columns that are still missing.

    ``written`` are the tables to which the pipeline has written so far. Raises
    :class:`~stompkit.replication.sinks.sql.SchemaError` with a remedy.
    """
    for source, columns in lacking.items():
        name = ".".join(filter(None, source))
        table = catalog.find(connection, *source)
        new = [_described(each) for each in columns.values() if not isinstance(each, Wider)]
        if table is not None:
            table = _rename(connection, catalog, table, source, columns, may=add_columns)
        if table is not None:
            replaced = [each for each in columns.values() if each.is_replaced]
            table = _replace(connection, catalog, table, source, replaced)
        if table is not None:
            widened = [each for each in columns.values() if isinstance(each, Wider)]
            _widen(connection, table, widened)
        if table is None:
            wanted = catalog.wanted(*source)
            if wanted is not None:
                check_new(source, columns.values(), wanted, written)
            if wanted is None or not create:
                raise missing_table(name, "make it there, or ")
            if not any(each.key or each.is_told for each in columns.values()):
                raise SchemaError(
                    f"the table {name!r} cannot be made: its changes tell no key."
                    " To go on, make it in the target"
                )
            _check_key(name, columns.values())
            make_table(connection, *wanted, new)
            continue
        new = [column for column in new if table.column(column.name) is None]
        if not new:
            continue
        names = ", ".join(f"{column.name} ({column.type})" for column in new)
        if any(column.key for column in new):
            raise SchemaError(
                f"the target's table {name!r} lacks a column of the key: {names}."
                " To go on, make it there, or name the key in `keys`"
            )
        if not add_columns:
            first = new[0]
            command = f"ALTER TABLE {table.quoted} ADD COLUMN {first.name} ... for {first.type}"
            raise SchemaError(
                f"the target's table {name!r} lacks {names}. To go on, {command},"
                " or open the target with evolve=True, or name them in `except_column_list`"
            )
        make_columns(connection, table, new)


def _check_key(name: str, columns: Iterable[NewColumn]) -> None:
    """Raise SchemaError if changes of rows use another key than the source reports."""
    key = [each for each in columns if each.key]
    reported = [each.name for each in key if each.is_told]
    other = [each.name for each in key if not each.is_told]
    if reported and other:
        raise SchemaError(
            f"the key of the table {name!r} is {', '.join(reported)} by its schema, and the key of"
            f" earlier changes has {', '.join(other)}. To go on, make the table in the target, and"
            " name its key in `keys`; or have the source copy its tables again, and apply that"
        )


def _rename(
    connection: Connection,
    catalog: Catalog,
    table: TargetTable,
    source: tuple[str, str],
    columns: Mapping[str, NewColumn],
    *,
    may: bool,
) -> TargetTable | None:
    """Rename columns as in the source; return the table afterwards."""
    renamed = {each.was: each.name for each in columns.values() if each.was}
    if not renamed:
        return table
    old, new = next(iter(renamed.items()))
    command = f"ALTER TABLE {table.quoted} RENAME COLUMN {old} TO {new}"
    if not may:
        raise SchemaError(
            f"the source calls the column {old!r} of the table {table.name!r} {new!r} now."
            f" To go on, {command}, or open the target with evolve=True"
        )
    try:
        rename_columns(connection, table, renamed)
    except DBAPIError as error:
        if error.connection_invalidated or error.orig is None:
            raise
        reason = " ".join(str(error.orig.args[-1]).split())
        raise SchemaError(
            f"the source calls the column {old!r} of the table {table.name!r} {new!r} now, and the"
            f" target refuses that name: {reason}. To go on, do what that asks for: {command}"
        ) from error
    catalog.forget()
    return catalog.find(connection, *source)


def unfit(table: TargetTable, columns: Iterable[NewColumn], backend: str) -> list[NewColumn]:
    """Return the columns whose values the target's columns of these names do not hold."""
    by_name = {each.name: each for each in columns}
    found = unfit_columns(table, map(_described, by_name.values()), backend)
    return [by_name[each.name] for each in found]


def _described(column: NewColumn) -> SourceColumn:
    native = "time" if column.is_clock else ""
    return SourceColumn(
        column.name, column.type, column.key, True, *_numbers(column), native=native
    )


def _replace(
    connection: Connection,
    catalog: Catalog,
    table: TargetTable,
    source: tuple[str, str],
    columns: Iterable[NewColumn],
) -> TargetTable | None:
    """Create columns again whose rows are sent again; return the table afterwards."""
    replaced = unfit(table, columns, backend_of(connection))
    if not replaced:
        return table
    names = ", ".join(repr(each.name) for each in replaced)
    try:
        recreate_columns(connection, table, map(_described, replaced))
    except DBAPIError as error:
        if error.connection_invalidated or error.orig is None:
            raise
        reason = " ".join(str(error.orig.args[-1]).split())
        raise SchemaError(
            f"the source has other columns or types for {names} of the table {table.name!r}, and"
            f" the target does not drop its own: {reason}. To go on, do what that asks for, and"
            f" drop {names} there"
        ) from error
    catalog.forget()
    return catalog.find(connection, *source)


def _widen(connection: Connection, table: TargetTable, columns: Iterable[Wider]) -> None:
    for column in columns:
        statement = statement_of(connection, table, column)
        if statement is None:
            continue
        try:
            connection.exec_driver_sql(statement)
        except DBAPIError as error:
            if error.connection_invalidated or error.orig is None:
                raise
            # Servers report errors in several lines, and some drivers prefix a number.
            reason = " ".join(str(error.orig.args[-1]).split())
            shown = statement.replace("%%", "%")
            raise SchemaError(
                f"the column {column.name!r} of the target's table {table.name!r} cannot be made"
                f" wider: {reason}. To go on, do what that asks for, and then: {shown}"
            ) from error


def _numbers(column: NewColumn) -> tuple[int | None, int | None, int | None]:
    return column.precision, column.scale, column.length
