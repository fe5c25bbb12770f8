"""Checks of a server's configuration; all problems are reported at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import pymysql
from pymysql.connections import Connection

from stompkit.replication.sources.mysql._binlog.charsets import unreadable
from stompkit.replication.sources.mysql._binlog.payloads import CAN_READ, HOW_TO_READ
from stompkit.replication.sources.mysql._server import Server, text_of

__all__ = ["SYSTEM_SCHEMAS", "Findings", "examine", "missing_tables", "table_names"]

#: The server's internal schemas, which are never replicated.
SYSTEM_SCHEMAS: Final = ("information_schema", "mysql", "performance_schema", "sys")
_TABLES: Final = "SELECT TABLE_SCHEMA, TABLE_NAME FROM INFORMATION_SCHEMA.TABLES"
_COLUMNS: Final = "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM INFORMATION_SCHEMA.COLUMNS"

#: Oldest versions whose log can have the names of columns.
_OLDEST_MARIADB: Final = (10, 5)
_OLDEST_MYSQL: Final = (8, 0, 14)
#: Required values of variables, if the server has them, and the consequence otherwise.
_NEEDED: Final = (
    ("log_bin", "ON", "changes are not logged at all"),
    ("binlog_format", "ROW", "changes are logged as statements: rows are not in there"),
    (
        "binlog_row_metadata",
        "FULL",
        "the log has no names of columns, no keys and no signs of numbers; what is logged before "
        "it is set cannot be read",
    ),
    ("log_bin_compress", "OFF", "compressed rows cannot be read"),
    ("binlog_alter_two_phase", "OFF", "ALTER TABLE would be told when it begins, and again"),
)
_NEEDED_WITHOUT_ZSTD: Final = (
    "binlog_transaction_compression",
    "OFF",
    f"compressed transactions cannot be read here: {HOW_TO_READ}, or",
)
#: Error code for missing privileges.
_DENIED: Final = 1227
_REPLICATION: Final = re.compile(r"\bREPLICATION (SLAVE|REPLICA)\b(?! ADMIN)|\bALL PRIVILEGES\b")
_RELOAD: Final = re.compile(r"\bRELOAD\b|\bALL PRIVILEGES\b")
_SELECT: Final = re.compile(r"\bSELECT\b|\bALL PRIVILEGES\b")


@dataclass(frozen=True)
class Findings:
    """Result of the checks: problems that prevent reading, and warnings."""

    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def examine(
    connection: Connection[Any],
    server: Server,
    *,
    wants: Callable[[str, str], bool],
    server_id: int,
    with_snapshot: bool,
) -> Findings:
    """Check a server's settings, and the privileges of its user.

    Different settings of other sessions cannot be detected here, only in the log. Raises the errors
    of PyMySQL for a lost connection.
    """
    problems = _settings(server)
    problems += _grants(connection, with_snapshot=with_snapshot, is_mariadb=server.is_mariadb)
    problems += _server_ids(connection, server, server_id)
    compressed = _names(
        connection,
        "SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM INFORMATION_SCHEMA.COLUMNS "
        "WHERE TABLE_SCHEMA NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys') "
        "AND COLUMN_TYPE LIKE '%COMPRESSED*/%'",
        wants,
    )
    if compressed:
        problems.append(
            f"columns with the attribute COMPRESSED cannot be read: leave {compressed} out, or "
            "change the columns"
        )
    problems += _charsets(connection, wants)
    return Findings(tuple(problems), tuple(_warnings(connection, server, wants)))


def _charsets(connection: Connection[Any], wants: Callable[[str, str], bool]) -> list[str]:
    """Return the text columns whose character set cannot be decoded."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT CHARACTER_SET_NAME, MAXLEN FROM INFORMATION_SCHEMA.CHARACTER_SETS")
        longest = {text_of(row[0]): int(row[1]) for row in cursor.fetchall()}
        names = ", ".join(f"'{name}'" for name in unreadable(longest) if name.isidentifier())
        if not names:
            return []
        cursor.execute(
            "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, CHARACTER_SET_NAME "
            f"FROM INFORMATION_SCHEMA.COLUMNS WHERE CHARACTER_SET_NAME IN ({names})"
        )
        rows = [[text_of(each) for each in row] for row in cursor.fetchall()]
    return [
        f"the column {column} of {schema}.{table} has the character set {charset}, which cannot be "
        "read: convert the column, or leave the table out"
        for schema, table, column, charset in rows
        if wants(schema, table)
    ]


def _settings(server: Server) -> list[str]:
    problems = []
    oldest = _OLDEST_MARIADB if server.is_mariadb else _OLDEST_MYSQL
    if server.version < oldest:
        name = "MariaDB" if server.is_mariadb else "MySQL"
        problems.append(
            f"{name} {_dotted(server.version)} is too old: {_dotted(oldest)} is the first that "
            "logs the names of columns"
        )
    for name, needed, otherwise in _NEEDED if CAN_READ else (*_NEEDED, _NEEDED_WITHOUT_ZSTD):
        found = server.variables.get(name)
        if found is not None and found.upper() != needed:
            cure = f"SET GLOBAL {name} = {needed}"
            if name == "log_bin":
                cure = "put log_bin below [mysqld] in its configuration, and restart it"
            problems.append(f"{name} is {found}, and {otherwise}: {cure}")
    image = server.variables.get("binlog_row_image", "FULL").upper()
    if server.variables.get("binlog_row_value_options") and image != "FULL":
        problems.append(
            f"binlog_row_value_options is set and binlog_row_image is {image}: of JSON documents "
            "only parts would be in the log, and not what they are parts of: "
            "SET GLOBAL binlog_row_image = FULL"
        )
    if server.id == 0:
        problems.append("server_id is 0, with which no reader is let in: SET GLOBAL server_id = 1")
    return problems


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _grants(connection: Connection[Any], *, with_snapshot: bool, is_mariadb: bool) -> list[str]:
    problems = []
    with connection.cursor() as cursor:
        cursor.execute("SHOW GRANTS")
        grants = [text_of(row[0]) for row in cursor.fetchall()]
        everywhere = [grant for grant in grants if " ON *.* " in grant]
        if not any(map(_REPLICATION.search, everywhere)):
            problems.append("the user may not read the log: GRANT REPLICATION SLAVE ON *.*")
        try:
            cursor.execute("SHOW BINARY LOGS")
        except pymysql.err.OperationalError as error:
            # This error is also returned if there is no log at all.
            if error.args[0] == _DENIED:
                problems.append(
                    "the user may not see where the log is: GRANT BINLOG MONITOR ON *.* (of "
                    "MySQL, REPLICATION CLIENT)"
                )
        except pymysql.err.MySQLError:
            pass
    if with_snapshot and not any(map(_SELECT.search, grants)):
        problems.append("the user may not read tables for the snapshot: GRANT SELECT")
    if with_snapshot and not is_mariadb and not any(map(_RELOAD.search, everywhere)):
        problems.append("the user may not lock tables to begin the snapshot: GRANT RELOAD ON *.*")
    return problems


def _server_ids(connection: Connection[Any], server: Server, server_id: int) -> list[str]:
    if server_id == server.id:
        return [f"server_id {server_id} is the server's own: choose another for this publisher"]
    # MySQL has removed the older name, and old MariaDB versions lack the newer one.
    for question in ("SHOW REPLICAS", "SHOW SLAVE HOSTS"):
        try:
            with connection.cursor() as cursor:
                cursor.execute(question)
                others = {int(row[0]) for row in cursor.fetchall()}
        except pymysql.err.MySQLError:
            # This may need more privileges than reading; a conflict is then detected later.
            continue
        break
    else:
        return []
    if server_id in others:
        return [f"server_id {server_id} is another reader's already: choose another"]
    return []


def _warnings(
    connection: Connection[Any], server: Server, wants: Callable[[str, str], bool]
) -> list[str]:
    warnings = []
    image = server.variables.get("binlog_row_image", "FULL").upper()
    if image != "FULL":
        warnings.append(
            f"binlog_row_image is {image}: columns that a change is not about are missing in it. "
            "The job ends at new rows without a column that has a DEFAULT, and after REPLACE "
            "columns that the statement does not name keep their old values: SET GLOBAL "
            "binlog_row_image = FULL"
        )
    cascades = _names(
        connection,
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME FROM INFORMATION_SCHEMA.REFERENTIAL_CONSTRAINTS "
        "WHERE DELETE_RULE IN ('CASCADE', 'SET NULL') OR UPDATE_RULE IN ('CASCADE', 'SET NULL')",
        wants,
    )
    if cascades:
        warnings.append(
            f"what foreign keys of {cascades} change by ON DELETE or ON UPDATE is not in the log"
        )
    versioned = _names(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM INFORMATION_SCHEMA.TABLES "
        "WHERE TABLE_TYPE = 'SYSTEM VERSIONED'",
        wants,
    )
    if versioned:
        warnings.append(
            f"{versioned}: rows of tables with system versioning are told with their history, a "
            "delete as an update"
        )
    return warnings


def _names(connection: Connection[Any], query: str, wants: Callable[[str, str], bool]) -> str:
    """Return the selected tables of a query's result, for display."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        rows = [(text_of(row[0]), text_of(row[1])) for row in cursor.fetchall()]
    return ", ".join(f"{schema}.{table}" for schema, table in rows if wants(schema, table))


def table_names(
    connection: Connection[Any], *, with_columns: bool = False
) -> dict[tuple[str, str], list[str]]:
    """Return all tables that the user may see, by database and name, with their columns or none."""
    found: dict[tuple[str, str], list[str]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS if with_columns else _TABLES)
        for schema, table, *column in cursor.fetchall():
            found.setdefault((text_of(schema), text_of(table)), []).extend(map(text_of, column))
    return found


def missing_tables(
    connection: Connection[Any],
    names: Iterable[tuple[str, str]],
    *,
    wants: Callable[[str, str], bool],
    needs_tables: bool,
    needs_database: str,
) -> list[str]:
    """Return the required databases and tables that do not exist or are not visible.

    ``names`` are those of all visible tables.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT SCHEMA_NAME FROM INFORMATION_SCHEMA.SCHEMATA")
        databases = {text_of(row[0]) for row in cursor.fetchall()}
        if needs_database and needs_database not in databases:
            return [f"there is no database {needs_database} that the user may see"]
    if not needs_tables or any(wants(*name) for name in names):
        return []
    return ["no table is there that is wanted, or the user may see none: look at --tables"]
