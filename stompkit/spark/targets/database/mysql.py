"""Bulk writes to MariaDB and MySQL: rows go into staging tables, and from there to the target.

A staging table is of InnoDB, so its rows survive a crash. A replica that takes the server's place
may lack them. Therefore each task records the number of rows and their checksum, and the
transaction that copies them compares both. CREATE TABLE and DROP TABLE commit the transaction in
which they are run, so the driver drops the tables after its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from stompkit.replication.sql import Statements, TargetColumn, TargetTable, quote
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

#: Number of the row in a staging table, in the order of the changes.
_NUMBER: Final = "stompkit_row"
#: Servers can require a primary key for each table.
_KEY: Final = f"{_NUMBER} INT NOT NULL AUTO_INCREMENT PRIMARY KEY"
#: Maximum time in seconds for which :func:`drop_unused` waits for a lock.
_DROP_S: Final = 1
#: True if DROP TABLE is a part of the transaction.
DROPS_IN_TRANSACTION: Final = False


def stage(connection: Connection, table: TargetTable, op: Op, owner: str) -> bool:
    """Write the rows of an operation to a staging table of an owner, if possible."""
    columns = columns_of(table, op)
    if op.count < LEAST_ROWS or not _can_stage(table, op):
        return False
    name = new_name(owner)
    names = ", ".join(column.quoted for column in columns)
    here = replace(table, schema=None, name=name, quoted=quote(connection, name))
    insert = Statements("mysql", connection.dialect.paramstyle).insert(here, tuple(columns))
    is_made = False
    try:
        # This also fails if the user may not drop tables.
        _run(connection, f"DROP TABLE IF EXISTS {name}")
        _run(
            connection,
            f"CREATE TABLE {name} ({_KEY}) ENGINE=InnoDB"
            f" AS SELECT {names} FROM {table.quoted} WHERE FALSE",
        )
        is_made = True
        connection.exec_driver_sql(insert, op.rows())
        count, op.checksum = _checksum(connection, name, columns)
        is_staged = count == op.count and _has_each_key_once(connection, here, op)
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        # The user may not create tables, or the server rejects a row. The driver then writes the
        # rows, and finds the rejected one.
        is_staged = False
    if is_staged:
        op.stage, op.values = name, []
    else:
        op.checksum = ""
        if is_made:
            drop(connection, [name])
    return is_staged


def _has_each_key_once(connection: Connection, staged: TargetTable, op: Op) -> bool:
    """Return True unless keys that differ in the source are equal in the target's collation.

    Of such rows the last one wins, but a join has no order.
    """
    if op.kind != "merge" or all(staged.columns[name].family != "text" for name in op.key):
        return True
    key = ", ".join(staged.columns[name].quoted for name in op.key)
    query = f"SELECT COUNT(*) FROM (SELECT DISTINCT {key} FROM {staged.quoted}) keys_"
    return bool(connection.exec_driver_sql(query, ()).scalar() == op.count)


def _can_stage(table: TargetTable, op: Op) -> bool:
    """Return True if one statement for all rows has the effect of one for each row.

    The order of rows counts if they reference rows of the same table, or if one gets a unique value
    that another one gives up.
    """
    if op.kind in ("insert", "upsert"):
        return True
    if op.kind == "merge" and table.has_more_keys:
        return False
    return op.kind in ("merge", "delete") and table.identity not in table.related


def _checksum(
    connection: Connection, name: str, columns: Sequence[TargetColumn]
) -> tuple[int, str]:
    """Return the number of rows of a table, and the order-independent sum of their checksums."""
    # HEX makes columns of different character sets comparable; CONCAT_WS omits NULL.
    values = ", ".join(f"{each.quoted} IS NULL, HEX(CONCAT({each.quoted}))" for each in columns)
    count, total = connection.exec_driver_sql(
        f"SELECT COUNT(*), COALESCE(SUM(CRC32(CONCAT_WS(',', {values}))), 0) FROM {name}", ()
    ).one()
    return int(count), str(total)


def _check(connection: Connection, table: TargetTable, op: Op) -> None:
    """Raise :class:`StagingLostError` unless all rows staged by a task are present."""
    if op.stage not in table_names(connection):
        raise StagingLostError(f"{staged_rows(op)} are lost: the server has no such table")
    check_rows(op, *_checksum(connection, op.stage, columns_of(table, op)))


def apply_staged(connection: Connection, table: TargetTable, op: Op) -> int:
    """Run an operation with staged rows; return their number.

    Raises :class:`StagingLostError` if they are missing.
    """
    _check(connection, table, op)
    key = [table.columns[name].quoted for name in op.key]
    others = [table.columns[name].quoted for name in op.others]
    names = ", ".join((*key, *others))
    staged = ", ".join(f"s.{name}" for name in (*key, *others))
    same = " AND ".join(f"t.{name} = s.{name}" for name in key)
    insert = f"INSERT INTO {table.quoted} ({names}) SELECT {staged} FROM {op.stage} s"
    in_order = f"ORDER BY s.{_NUMBER}"
    match op.kind:
        case "delete":
            _run(connection, f"DELETE t FROM {table.quoted} t JOIN {op.stage} s ON {same}")
        case "insert":
            _run(connection, f"{insert} {in_order}")
        case "upsert":
            sets = [f"{name} = VALUES({name})" for name in others]
            # Without columns the row is unchanged.
            sets = sets or [f"{key[0]} = {table.quoted}.{key[0]}"]
            _run(connection, f"{insert} {in_order} ON DUPLICATE KEY UPDATE {', '.join(sets)}")
        case _:
            if others:
                sets = [f"t.{name} = s.{name}" for name in others]
                update = f"UPDATE {table.quoted} t JOIN {op.stage} s ON {same}"
                _run(connection, f"{update} SET {', '.join(sets)}")
            missing = f"LEFT JOIN {table.quoted} t ON {same} WHERE t.{key[0]} IS NULL"
            _run(connection, f"{insert} {missing} {in_order}")
    return op.count


def _run(connection: Connection, statement: str) -> None:
    # With parameters, since quoted names have doubled percent signs.
    connection.exec_driver_sql(statement, ())


def drop(connection: Connection, tables: Sequence[str]) -> None:
    """Drop existing tables of :func:`stage`; this commits the transaction."""
    if tables:
        _run(connection, f"DROP TABLE IF EXISTS {', '.join(tables)}")


def drop_unused(connection: Connection, table: str) -> None:
    """Drop a table, unless somebody uses it; this commits the transaction.

    A task that still writes to it keeps it locked, perhaps for hours if its machine is gone.
    """
    before = connection.exec_driver_sql("SELECT @@SESSION.lock_wait_timeout", ()).scalar()
    _run(connection, f"SET SESSION lock_wait_timeout = {_DROP_S}")
    try:
        drop(connection, [table])
    finally:
        _run(connection, f"SET SESSION lock_wait_timeout = {before}")


def prepare(connection: Connection) -> None:
    """Drop tables left by crashes."""
    drop(connection, [name for name in table_names(connection) if is_orphan(name)])


def table_names(connection: Connection) -> set[str]:
    """Return the names of all staging tables."""
    found = text(
        "SELECT table_name FROM information_schema.tables"
        " WHERE table_schema = DATABASE() AND LEFT(table_name, :size) = :prefix"
    )
    return set(connection.execute(found, {"size": len(PREFIX), "prefix": PREFIX}).scalars())
