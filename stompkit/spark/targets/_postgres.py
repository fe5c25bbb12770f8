"""Many rows at once into PostgreSQL: by COPY into a table of their own, and from there."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

import psycopg
import pyarrow as pa
import pyarrow.csv as pa_csv
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from stompkit.replication.sinks.sql.parts import TargetColumn, TargetTable
from stompkit.spark.targets._plan import Op

__all__ = ["apply_staged", "drop", "stage", "sweep"]

#: From how many rows on a table is worth it.
LEAST_ROWS: Final = 1000
#: How old a table is that nobody will ask for, in seconds.
_ORPHAN_S: Final = 6 * 3600

_PREFIX: Final = "stompkit_stage_"
_MICROSECOND: Final = timedelta(microseconds=1)


def _text(value: Any) -> str:
    return str(value)


#: How values of a column are written in CSV; the other families have no one form.
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
_BOOLS: Final = frozenset({bool, type(None)})
_INTS: Final = frozenset({int, type(None)})
_STRS: Final = frozenset({str, type(None)})


def stage(connection: Connection, table: TargetTable, op: Op) -> bool:
    """Copy the rows of an operation into a table of their own, if that can be done."""
    raw = connection.connection.driver_connection
    if op.count < LEAST_ROWS or op.kind not in ("upsert", "merge", "insert", "delete"):
        return False
    if not isinstance(raw, psycopg.Connection):
        return False
    columns = [table.columns[name] for name in (*op.key, *op.others)]
    if any(column.family not in _WRITERS and column.family != "bool" for column in columns):
        return False
    names = ", ".join(column.quoted for column in columns)
    if "%" in names or "%" in table.quoted:
        # It is doubled for statements of the driver, and COPY is none of them.
        return False
    try:
        arrays = [_array(column, values) for column, values in zip(columns, op.values, strict=True)]
    except (UnicodeError, pa.ArrowException):
        # The driver tells what is wrong with it.
        return False
    name = f"{_PREFIX}{int(time.time())}_{uuid4().hex[:16]}"
    connection.exec_driver_sql(
        f"CREATE UNLOGGED TABLE {name} AS SELECT {names} FROM {table.quoted} WITH NO DATA"
    )
    _copy(raw, f"COPY {name} ({names}) FROM STDIN (FORMAT csv)", arrays)
    op.stage, op.values = name, []
    return True


def _copy(raw: psycopg.Connection[Any], statement: str, arrays: Sequence[pa.Array]) -> None:
    octets = io.BytesIO()
    batch = pa.RecordBatch.from_arrays(arrays, names=[str(n) for n in range(len(arrays))])
    pa_csv.write_csv(batch, octets, pa_csv.WriteOptions(include_header=False))
    try:
        with raw.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(octets.getbuffer())
    except psycopg.Error as error:
        # As if SQLAlchemy had run it: whoever catches its errors looks at what has caused them.
        raise DBAPIError(statement, None, error, connection_invalidated=raw.closed) from error


def _array(column: TargetColumn, values: Sequence[Any]) -> pa.Array:
    """The values of a column, in types that CSV has one form for."""
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
    """Do an operation whose rows are in a table; return how many rows it had."""
    key = [table.columns[name].quoted for name in op.key]
    others = [table.columns[name].quoted for name in op.others]
    names = ", ".join((*key, *others))
    same = " AND ".join(f"t.{name} = s.{name}" for name in key)
    # The source has given numbers already that the target would give.
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
            sets = ", ".join(f"{name} = excluded.{name}" for name in others)
            change = f"UPDATE SET {sets}" if sets else "NOTHING"
            _run(connection, f"{insert} ON CONFLICT ({', '.join(key)}) DO {change}")
        case _:
            sets = ", ".join(f"{name} = s.{name}" for name in others or key[:1])
            update = f"UPDATE {table.quoted} t SET {sets} FROM {op.stage} s WHERE {same}"
            if _run(connection, update) < op.count:
                missing = f"NOT EXISTS (SELECT 1 FROM {table.quoted} t WHERE {same})"
                _run(connection, f"{insert} WHERE {missing}")
    return op.count


def _run(connection: Connection, statement: str) -> int:
    return connection.exec_driver_sql(statement).rowcount


def drop(connection: Connection, tables: Sequence[str]) -> None:
    """Drop tables of :func:`stage`, those that are there."""
    if tables:
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {', '.join(tables)}")


def sweep(connection: Connection, age_s: float = _ORPHAN_S) -> int:
    """Drop tables that crashes have left, older than so many seconds; return how many."""
    found = connection.execute(
        text(
            "SELECT tablename FROM pg_tables"
            " WHERE schemaname = current_schema() AND starts_with(tablename, :prefix)"
        ),
        {"prefix": _PREFIX},
    ).scalars()
    before = time.time() - age_s
    old = [name for name in found if _made_at(name) <= before]
    drop(connection, old)
    return len(old)


def _made_at(name: str) -> float:
    number = name.removeprefix(_PREFIX).partition("_")[0]
    return float(number) if number.isdecimal() else 0.0
