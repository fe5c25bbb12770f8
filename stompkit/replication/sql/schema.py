"""Schema changes: creating and altering the target's tables and columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
from sqlalchemy import Column, Connection, MetaData, Table, types
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.schema import CreateColumn

from stompkit._common.tables import create_missing
from stompkit.replication.model.events import RowChange
from stompkit.replication.sql.families import Family
from stompkit.replication.sql.tables import TargetTable, quote, table_options

__all__ = [
    "HOLDERS",
    "ColumnChanges",
    "SchemaError",
    "SourceColumn",
    "backend_of",
    "changes_of",
    "column_type",
    "columns_of",
    "differences",
    "make_columns",
    "make_table",
    "rename_columns",
]

#: Maximum number of characters of a key that MySQL can index.
_MYSQL_KEY: Final = 255
#: Maximum number of characters of a name in a message.
_SHOWN_NAME: Final = 63
#: Maximum length of a name: PostgreSQL silently truncates longer ones. SQLite has no limit, but
#: received names need one.
_LONGEST_NAME: Final[Mapping[str, tuple[int, str]]] = {
    "postgresql": (63, "octets"),
    "sqlite": (63, "octets"),
    "mysql": (64, "characters"),
}
#: Last character that MySQL allows in names.
_LAST_OF_MYSQL: Final = "\uffff"

#: Maximum number of digits in MySQL, in total and after the point.
_MYSQL_DIGITS: Final = (65, 30)
#: More digits than any database has, on either side of the point.
_MOST_SCALE: Final = 20_000
#: PostgreSQL's types whose values are sent as its own text, which it reads in any locale.
_BASES: Final = (
    "inet cidr macaddr macaddr8 varbit tsvector tsquery point line lseg box path polygon circle"
    " pg_lsn int4range int8range numrange tsrange tstzrange daterange int4multirange"
    " int8multirange nummultirange tsmultirange tstzmultirange datemultirange"
).split()
_ITEMS: Final = (
    "bool bytea int2 int4 int8 text varchar json jsonb float4 float8 date time timetz timestamp"
    " timestamptz interval numeric uuid oid"
).split()
_POSTGRESQL_OWN: Final = frozenset(
    (*_BASES, "json", "jsonb", "timetz", *(f"{name}[]" for name in (*_BASES, *_ITEMS)))
)

#: Column families that hold the values of a type without loss, besides text.
HOLDERS: Final[Mapping[str, frozenset[Family]]] = {
    "bool": frozenset({"bool", "int"}),
    "int": frozenset({"int", "decimal"}),
    "float": frozenset({"float"}),
    "decimal": frozenset({"decimal"}),
    "text": frozenset({"uuid", "json"}),
    "bytes": frozenset({"bytes"}),
    "date": frozenset({"date", "datetime"}),
    "time": frozenset({"time", "interval"}),
    "datetime": frozenset({"datetime"}),
    "datetimez": frozenset({"datetime"}),
    "interval": frozenset({"interval", "int", "time", "datetime"}),
    "uuid": frozenset({"uuid", "bytes"}),
    "json": frozenset({"json"}),
    "set": frozenset(),
}


class SchemaError(ValueError):
    """Columns that cannot be created; ``str()`` gives the reason."""


class SourceColumn(msgspec.Struct, frozen=True):
    """A column as a change with the action ``schema`` describes it."""

    name: str
    type: str
    key: bool = False
    nullable: bool = True
    precision: int | None = None
    scale: int | None = None
    length: int | None = None
    #: True for unsigned integers of up to 64 bits.
    unsigned: bool = False
    #: The source's own name for a type that is more specific than ``type``.
    native: str = ""


def columns_of(change: RowChange) -> list[SourceColumn]:
    """Return the columns of a change; empty if it has only a statement.

    Raises :class:`SchemaError`.
    """
    reported = (change.after or {}).get("columns")
    if reported is None:
        return []
    try:
        columns = msgspec.convert(reported, list[SourceColumn])
    except msgspec.ValidationError as error:
        raise SchemaError(f"its columns cannot be read: {error}") from None
    for column in columns:
        if column.type not in HOLDERS:
            raise SchemaError(f"the column {column.name!r} is of a type {column.type!r}")
    return columns


def make_table(
    connection: Connection, schema: str | None, name: str, columns: Iterable[SourceColumn]
) -> None:
    """Create a table; all columns outside of the key are nullable, independently of the source.

    New rows can then omit a column that the source has dropped.
    """
    backend = backend_of(connection)
    columns = list(columns)
    _refuse_equal_names(columns, backend)
    made = [
        Column(
            _checked(column.name, backend),
            column_type(column, backend),
            primary_key=column.key,
            quote=True,
            nullable=not column.key,
            autoincrement=False,
        )
        for column in columns
    ]
    table = Table(_checked(name, backend), MetaData(), *made, schema=schema, quote=True)
    table.dialect_kwargs.update(table_options(connection))
    create_missing(connection, [table])


def make_columns(
    connection: Connection, table: TargetTable, columns: Iterable[SourceColumn]
) -> None:
    """Add nullable columns to a table."""
    backend = backend_of(connection)
    for column in columns:
        made = Column(_checked(column.name, backend), column_type(column, backend), quote=True)
        definition = CreateColumn(made).compile(dialect=connection.dialect)
        # The driver would interpret percent signs as parameters, so they are doubled.
        connection.exec_driver_sql(f"ALTER TABLE {table.quoted} ADD COLUMN {definition}")


@dataclass(frozen=True)
class ColumnChanges:
    """Renamed and retyped columns in a change ``schema``."""

    renamed: Mapping[str, str]
    """New names by the old ones."""
    retyped: frozenset[str]
    """Columns of another type than before; their rows are published again."""
    untold: Literal["", "names", "values"] = ""
    """Part of existing rows that has changed and is not published again: the columns' names,
    or values; empty if there is none, or the source does not report it.
    """


def changes_of(change: RowChange) -> ColumnChanges:
    """Return the renamed and retyped columns; raises :class:`SchemaError` if invalid.

    A source that reads its log late can report the columns of today beside an earlier statement. A
    column that has its old name again by then is not renamed: the changes of rows use this name.
    """
    reported = change.after or {}
    current = {column.name for column in columns_of(change)}
    try:
        renamed = msgspec.convert(reported.get("renamed") or {}, dict[str, str])
        return ColumnChanges(
            {old: new for old, new in renamed.items() if new in current or old not in current},
            frozenset(msgspec.convert(reported.get("retyped") or [], list[str])),
            msgspec.convert(reported.get("untold") or "", Literal["", "names", "values"]),
        )
    except msgspec.ValidationError as error:
        raise SchemaError(f"what has become of its columns cannot be read: {error}") from None


def rename_columns(connection: Connection, table: TargetTable, renamed: Mapping[str, str]) -> bool:
    """Rename columns as in the source; return True if there were any.

    Columns with another name in the target, or whose new name exists already, are left unchanged.
    """
    is_done = False
    for old, new in renamed.items():
        column = table.column(old)
        if column is not None and table.column(new) is None:
            name = quote(connection, _checked(new, backend_of(connection)))
            connection.exec_driver_sql(
                f"ALTER TABLE {table.quoted} RENAME COLUMN {column.quoted} TO {name}"
            )
            is_done = True
    return is_done


def differences(table: TargetTable, name: str, columns: Iterable[SourceColumn]) -> list[str]:
    """Return the reasons that prevent rows with these columns from being stored in a table."""
    found = []
    theirs = set()
    key = set()
    for column in columns:
        own = table.column(column.name)
        if own is None:
            found.append(f"{name}: the target has no column {column.name!r}")
            continue
        theirs.add(own.name)
        if column.key:
            key.add(own.name)
        held = HOLDERS[column.type] | {"text", "other"}
        if own.family not in held and not (own.family == "array" and column.native[-2:] == "[]"):
            kind = own.type_.__visit_name__
            found.append(
                f"{name}: column {column.name!r} is {column.type}, and {kind} in the target"
            )
        elif column.unsigned and own.family == "int" and not getattr(own.type_, "unsigned", False):
            found.append(
                f"{name}: column {column.name!r} has numbers up to 2**64 - 1, and"
                f" {own.type_.__visit_name__} in the target is too small"
            )
        elif column.nullable and own.is_required:
            found.append(f"{name}: column {column.name!r} can be NULL, but not in the target")
    found += [
        f"{name}: the target's column {column.name!r} has to have a value, and the source has none"
        for column in table.columns.values()
        if column.is_required and not column.is_generated and column.name not in theirs
    ]
    if key and frozenset(key) not in table.uniques:
        found.append(f"{name}: ({', '.join(sorted(key))}) is no key in the target")
    if table.engine_without_transactions:
        engine = table.engine_without_transactions
        found.append(f"{name}: the target's engine {engine} has no transactions")
    return found


def backend_of(connection: Connection) -> str:
    """Return the kind of database: ``sqlite``, ``postgresql`` or ``mysql``."""
    name = connection.dialect.name
    return "mysql" if name == "mariadb" else name


def _checked(name: str, backend: str) -> str:
    """Return a received name; raises :class:`SchemaError` if it is invalid."""
    if not name or not name.isprintable() or name != name.strip():
        raise SchemaError(f"a table or a column cannot be called {name[:_SHOWN_NAME]!r}")
    if backend == "mysql" and max(name) > _LAST_OF_MYSQL:
        raise SchemaError(
            f"the name {name[:_SHOWN_NAME]!r} has characters beyond U+FFFF, and the target's "
            "cannot have them: give it another name by --table-map, or leave the column out"
        )
    most, unit = _LONGEST_NAME[backend]
    length = len(name.encode()) if unit == "octets" else len(name)
    if length > most:
        raise SchemaError(
            f"the name {name[:_SHOWN_NAME]!r}... has {length} {unit}, and the target's has at most "
            f"{most}: give it another name by --table-map, or leave the column out"
        )
    return name


def _refuse_equal_names(columns: Sequence[SourceColumn], backend: str) -> None:
    """Raise :class:`SchemaError` for names that are equal in a case-insensitive database."""
    names: dict[str, str] = {}
    for column in columns if backend != "postgresql" else ():
        other = names.setdefault(column.name.casefold(), column.name)
        if other != column.name:
            raise SchemaError(
                f"the columns {other!r} and {column.name!r} differ by case only, which is no "
                "difference in the target: leave one out by --exclude-columns"
            )


def column_type(column: SourceColumn, backend: str) -> types.TypeEngine[Any]:
    """Return the type of a new column, which holds every value of the source's if possible."""
    numbers = (column.precision, column.length)
    if any(number is not None and not 0 <= number < 2**31 for number in numbers) or (
        column.scale is not None and abs(column.scale) > _MOST_SCALE
    ):
        raise SchemaError(f"the column {column.name!r} has digits or a length that cannot be")
    if backend == "postgresql" and column.native in _POSTGRESQL_OWN:
        return _Own(column.native)
    match column.type:
        case "decimal":
            return _decimal(column, backend)
        case "int" if column.unsigned and backend == "mysql":
            return mysql.BIGINT(unsigned=True)
        case "int" if (column.precision or 0) > 19:
            return _decimal(msgspec.structs.replace(column, scale=0), backend)
        case "int" if backend == "sqlite":
            return types.INTEGER()
        case "time" if column.native == "timetz":
            # Other databases have no times with a zone.
            return _text(msgspec.structs.replace(column, type="text"), backend)
        case "interval" if column.native != "time" and backend != "postgresql":
            # A number has neither months nor days, which are not 24 hours.
            return _text(msgspec.structs.replace(column, type="text"), backend)
        case "text" | "bytes" | "set":
            return _text(column, backend)
    return _TYPES[column.type].get(backend) or _TYPES[column.type][""]


def _text(column: SourceColumn, backend: str) -> types.TypeEngine[Any]:
    return _mysql_text(column) if backend == "mysql" else _TYPES[column.type][""]


def _decimal(column: SourceColumn, backend: str) -> types.TypeEngine[Any]:
    if backend == "sqlite":
        # Its numbers have at most 15 digits.
        return types.TEXT()
    precision, scale = column.precision, column.scale or 0
    if backend == "postgresql":
        # Older servers support neither negative scales nor scales beyond the precision.
        is_plain = precision is not None and 0 <= scale <= precision
        return types.NUMERIC(precision, scale) if is_plain else types.NUMERIC()
    most, most_scale = _MYSQL_DIGITS
    if precision is not None:
        precision, scale = max(precision, scale) - min(scale, 0), max(scale, 0)
        if precision <= most and scale <= most_scale:
            return mysql.DECIMAL(precision, scale)
    # As text, keys that are equal as numbers would differ.
    is_key = column.key
    return mysql.DECIMAL(most, most_scale) if is_key else mysql.LONGTEXT()


class _Own(types.UserDefinedType[Any]):
    """A PostgreSQL type, by its name."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        """Return the type in CREATE TABLE."""
        return self.name


def _mysql_text(column: SourceColumn) -> types.TypeEngine[Any]:
    length = min(column.length or _MYSQL_KEY, _MYSQL_KEY)
    if column.type == "bytes":
        return mysql.VARBINARY(length) if column.key else mysql.LONGBLOB()
    return mysql.VARCHAR(length) if column.key else mysql.LONGTEXT()


#: Types by kind of database; the empty name stands for all others.
_TYPES: Final[Mapping[str, Mapping[str, types.TypeEngine[Any]]]] = {
    "bool": {"": types.Boolean()},
    "int": {"": types.BigInteger()},
    "float": {"": types.Double()},
    "text": {"": types.Text()},
    "bytes": {"": types.LargeBinary()},
    "date": {"": types.Date()},
    "time": {"": types.Time(), "mysql": mysql.TIME(fsp=6)},
    "datetime": {"": types.DateTime(), "mysql": mysql.DATETIME(fsp=6)},
    "datetimez": {"": types.DateTime(timezone=True), "mysql": mysql.DATETIME(fsp=6)},
    "interval": {
        "": types.BigInteger(),
        "postgresql": postgresql.INTERVAL(),
        "mysql": mysql.TIME(fsp=6),
    },
    "uuid": {"": types.CHAR(36), "postgresql": postgresql.UUID()},
    "json": {"": types.Text(), "postgresql": postgresql.JSONB(), "mysql": mysql.LONGTEXT()},
    "set": {"": types.Text()},
}
