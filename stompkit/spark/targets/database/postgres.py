"""Bulk writes to PostgreSQL: COPY into staging tables, and from there to the target.

Staging tables are unlogged, which halves the write load. PostgreSQL empties unlogged tables
silently when it recovers from a crash, and when a standby is promoted. Therefore each task records
the number of rows, their checksum and the server, and the transaction that copies them compares all
three. A token in another unlogged table identifies the server; it is lost whenever rows are.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

import psycopg
import pyarrow as pa
import pyarrow.csv as pa_csv
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from stompkit.replication.sql import TargetColumn, TargetTable
from stompkit.replication.sql.fixed_columns import FixedColumnError, fixed_of, settable
from stompkit.spark.targets.base import StagingLostError
from stompkit.spark.targets.database.staging_tables import (
    LEAST_ROWS,
    PREFIX,
    check_rows,
    columns_of,
    is_orphan,
    new_name,
    staged_rows,
)
from stompkit.spark.targets.planning.plan import Op

__all__ = ["apply_staged", "drop", "drop_unused", "prepare", "stage", "table_names"]

#: True if DROP TABLE is a part of the transaction.
DROPS_IN_TRANSACTION: Final = True
#: Table with the server's token.
_SERVER: Final = "stompkit_pipeline_server"
#: Maximum time in seconds for which :func:`drop_unused` waits for a lock.
_DROP_S: Final = 1
_MICROSECOND: Final = timedelta(microseconds=1)


def _text(value: Any) -> str:
    return str(value)


#: CSV formats of values by column family; other families have no unique format.
_WRITERS: Final[Mapping[str, Callable[[Any], str]]] = {
    "int": _text,
    "float": repr,
    "decimal": _text,
    "text": _text,
    "bytes": lambda value: f"\\x{value.hex()}",
    "date": _text,
    "time": _text,
    "datetime": _text,
    "interval": lambda value: f"{value // _MICROSECOND} microseconds",
    "uuid": _text,
    "json": _text,
}
#: Lowest PostgreSQL version that hashes whole rows.
_HASHES_RECORDS: Final = (14,)
#: Type families that can be hashed; other values are hashed as text.
_HASHED: Final = frozenset(
    {"bool", "int", "float", "decimal", "bytes", "date", "time", "datetime", "interval", "uuid"}
)
_BOOLS: Final = frozenset({bool, type(None)})
_INTS: Final = frozenset({int, type(None)})
_STRS: Final = frozenset({str, type(None)})


def stage(connection: Connection, table: TargetTable, op: Op, owner: str) -> bool:
    """Copy the rows of an operation into a staging table of an owner, if possible."""
    raw = connection.connection.driver_connection
    if op.count < LEAST_ROWS or op.kind not in ("upsert", "merge", "insert", "delete"):
        return False
    if not isinstance(raw, psycopg.Connection):
        return False
    columns = columns_of(table, op)
    if any(column.family not in _WRITERS and column.family != "bool" for column in columns):
        return False
    names = ", ".join(column.quoted for column in columns)
    if "%" in names or "%" in table.quoted:
        # The percent sign is doubled for driver statements, but COPY does not use those.
        return False
    try:
        arrays = [_array(column, values) for column, values in zip(columns, op.values, strict=True)]
    except (UnicodeError, pa.ArrowException):
        # The driver reports the error.
        return False
    name = new_name(owner)
    connection.exec_driver_sql(
        f"CREATE UNLOGGED TABLE {name} AS SELECT {names} FROM {table.quoted} WITH NO DATA"
    )
    _copy(raw, f"COPY {name} ({names}) FROM STDIN (FORMAT csv)", arrays)
    op.stage, op.values = name, []
    op.server, op.checksum = _server_of(connection), _checksum(connection, name, columns)[1]
    return True


def _server_of(connection: Connection) -> str:
    """Return the server's token, which changes after a crash and on a promoted standby."""
    found = _token(connection)
    if found is None:
        # Concurrent calls would get different tokens, or fail to create the table.
        _run(connection, f"SELECT pg_advisory_xact_lock(hashtext('{_SERVER}'))")
        _run(connection, f"CREATE UNLOGGED TABLE IF NOT EXISTS {_SERVER} (token text NOT NULL)")
        connection.execute(
            text(
                f"INSERT INTO {_SERVER} SELECT CAST(:token AS text)"
                f" WHERE NOT EXISTS (SELECT 1 FROM {_SERVER})"
            ),
            {"token": uuid4().hex},
        )
        found = _token(connection)
    assert found is not None
    return found


def _token(connection: Connection) -> str | None:
    """Return the server's current token."""
    if not _is_there(connection, _SERVER):
        return None
    found: str | None = connection.exec_driver_sql(f"SELECT min(token) FROM {_SERVER}").scalar()
    return found


def _is_there(connection: Connection, name: str) -> bool:
    """Return True if a table exists."""
    found = text("SELECT to_regclass(:name) IS NOT NULL")
    return bool(connection.execute(found, {"name": name}).scalar())


def _checksum(
    connection: Connection, name: str, columns: Sequence[TargetColumn]
) -> tuple[int, str]:
    """Return the number of rows of a table, and the order-independent sum of their hashes."""
    if (connection.dialect.server_version_info or ()) >= _HASHES_RECORDS:
        # A fifth of the time of converting them all to text.
        values = ", ".join(
            each.quoted if each.family in _HASHED else f"{each.quoted}::text" for each in columns
        )
        hashed = f"hash_record_extended(ROW({values}), 0)"
    else:
        hashed = "hashtextextended(s::text, 0)"
    count, total = connection.exec_driver_sql(
        f"SELECT count(*), coalesce(sum({hashed}), 0)::text FROM {name} s"
    ).one()
    return int(count), str(total)


def _check(connection: Connection, table: TargetTable, op: Op) -> None:
    """Raise :class:`StagingLostError` unless all rows staged by a task are present."""
    if not _is_there(connection, op.stage):
        raise StagingLostError(f"{staged_rows(op)} are lost: the server has no such table")
    if (server := _server_of(connection)) != op.server:
        raise StagingLostError(
            f"{staged_rows(op)} are lost: since then the server has recovered from a crash, or"
            f" another server has taken its place ({op.server[:8]} was the one staged on,"
            f" {server[:8]} is this)"
        )
    check_rows(op, *_checksum(connection, op.stage, columns_of(table, op)))


def _copy(raw: psycopg.Connection[Any], statement: str, arrays: Sequence[pa.Array]) -> None:
    octets = io.BytesIO()
    batch = pa.RecordBatch.from_arrays(arrays, names=[str(n) for n in range(len(arrays))])
    pa_csv.write_csv(batch, octets, pa_csv.WriteOptions(include_header=False))
    try:
        with raw.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(octets.getbuffer())
    except psycopg.Error as error:
        # As if SQLAlchemy had run it: handlers of its errors examine the cause.
        raise DBAPIError(statement, None, error, connection_invalidated=raw.closed) from error


def _array(column: TargetColumn, values: Sequence[Any]) -> pa.Array:
    """Return the values of a column, in types with a unique CSV format."""
    kinds = set(map(type, values))
    if column.family == "bool":
        return pa.array(values, pa.bool_())
    if kinds <= _INTS:
        try:
            return pa.array(values, pa.int64())
        except (OverflowError, pa.ArrowInvalid):
            pass
    if kinds <= _STRS:
        return pa.array(values, pa.string())
    write = _WRITERS[column.family]
    return pa.array([None if each is None else write(each) for each in values], pa.string())


def apply_staged(connection: Connection, table: TargetTable, op: Op) -> int:
    """Run an operation with staged rows; return their number.

    Raises :class:`StagingLostError` if they are missing.
    """
    _check(connection, table, op)
    _check_fixed(connection, table, op)
    key = [table.columns[name].quoted for name in op.key]
    others = [table.columns[name].quoted for name in op.others]
    names = ", ".join((*key, *others))
    same = " AND ".join(f"t.{name} = s.{name}" for name in key)
    columns = tuple(table.columns[name] for name in op.others)
    changed = [column.quoted for column in settable(columns, columns)[0]]
    # The source has already assigned the numbers of identity columns.
    insert = (
        f"INSERT INTO {table.quoted} ({names}) OVERRIDING SYSTEM VALUE"
        f" SELECT {names} FROM {op.stage} s"
    )
    match op.kind:
        case "delete":
            _run(connection, f"DELETE FROM {table.quoted} t USING {op.stage} s WHERE {same}")
        case "insert":
            _run(connection, insert)
        case "upsert":
            sets = ", ".join(f"{name} = excluded.{name}" for name in changed)
            change = f"UPDATE SET {sets}" if sets else "NOTHING"
            _run(connection, f"{insert} ON CONFLICT ({', '.join(key)}) DO {change}")
        case _:
            sets = ", ".join(f"{name} = s.{name}" for name in changed or key[:1])
            update = f"UPDATE {table.quoted} t SET {sets} FROM {op.stage} s WHERE {same}"
            if _run(connection, update) < op.count:
                missing = f"NOT EXISTS (SELECT 1 FROM {table.quoted} t WHERE {same})"
                _run(connection, f"{insert} WHERE {missing}")
    return op.count


def _check_fixed(connection: Connection, table: TargetTable, op: Op) -> None:
    """Raise :class:`FixedColumnError` if rows have other values in fixed columns than staged."""
    fixed = fixed_of(tuple(table.columns[name] for name in op.others))
    if not fixed or op.kind not in ("upsert", "merge"):
        return
    same = " AND ".join(
        f"t.{name} = s.{name}" for name in (table.columns[n].quoted for n in op.key)
    )
    differ = " OR ".join(f"t.{each.quoted} <> s.{each.quoted}" for each in fixed)
    query = f"SELECT 1 FROM {table.quoted} t, {op.stage} s WHERE {same} AND ({differ}) LIMIT 1"
    if connection.exec_driver_sql(query).first() is not None:
        raise FixedColumnError(table, fixed)


def _run(connection: Connection, statement: str) -> int:
    return connection.exec_driver_sql(statement).rowcount


def drop(connection: Connection, tables: Sequence[str]) -> None:
    """Drop existing tables of :func:`stage`."""
    if tables:
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {', '.join(tables)}")


def drop_unused(connection: Connection, table: str) -> None:
    """Drop a table, unless somebody uses it."""
    _run(connection, f"SET LOCAL lock_timeout = '{_DROP_S}s'")
    drop(connection, [table])


def prepare(connection: Connection) -> None:
    """Drop tables left by crashes, and store the server's token if it has none."""
    drop(connection, [name for name in table_names(connection) if is_orphan(name)])
    _server_of(connection)


def table_names(connection: Connection) -> set[str]:
    """Return the names of all staging tables."""
    found = text(
        "SELECT tablename FROM pg_tables"
        " WHERE schemaname = current_schema() AND starts_with(tablename, :prefix)"
    )
    return set(connection.execute(found, {"prefix": PREFIX}).scalars())
