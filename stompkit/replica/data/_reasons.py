"""Reasons for refused rows, without values of the rows."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy.exc import DBAPIError

__all__ = ["Kind", "Reason", "RefusedRowError", "reason_of"]

#: ``unique``: another row has the value; ``reference``: a foreign key; ``schema``: the table
#: definition has changed; ``other``: any other cause in the row.
Kind = Literal["unique", "reference", "schema", "other"]


class Reason(NamedTuple):
    """The reason why a row is refused."""

    kind: Kind
    text: str


class RefusedRowError(Exception):
    """Raised for a row that the database itself would accept."""

    def __init__(self, reason: Reason) -> None:
        """Store the reason."""
        super().__init__(reason.text)
        self.reason = reason


def reason_of(error: Exception, backend: str) -> Reason | None:
    """Return the reason for a refused row; ``None`` if the error has another cause."""
    if isinstance(error, RefusedRowError):
        return error.reason
    if isinstance(error, (UnicodeError, OverflowError)):
        return _UNFIT
    if not isinstance(error, DBAPIError) or error.connection_invalidated:
        return None
    return _READERS[backend](error.orig)


# Common reasons.

_UNFIT: Final = Reason("other", "a value does not fit its column")
_GONE: Final = Reason("schema", "the table or one of its columns is not there")
_DENIED: Final = Reason("other", "this user may not write to the table")
_TRIGGER: Final = Reason("other", "a trigger refuses it")


def _named(what: str, name: str | None) -> str:
    return f"{what} {name}" if name else what


def _unique(name: str | None) -> Reason:
    return Reason("unique", _named("UNIQUE constraint", name))


def _reference(name: str | None) -> Reason:
    return Reason("reference", _named("FOREIGN KEY constraint", name))


def _null(name: str | None) -> Reason:
    return Reason("other", _named("NOT NULL constraint: column", name))


def _check(name: str | None) -> Reason:
    return Reason("other", _named("CHECK constraint", name))


def _unfit(name: str | None) -> Reason:
    return Reason("other", f"a value does not fit its column {name}") if name else _UNFIT


# SQLite.

#: Low bytes of error codes that concern the database and not a row: aborted, busy, locked, no
#: memory, read-only, interrupted, I/O error, corrupt, full, cannot open, protocol, schema, not a
#: database.
_SQLITE_OTHERS: Final = frozenset({4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 17, 26})
#: Constraint errors, by code name, whose messages end with names.
_SQLITE_NAMED: Final[dict[str, Callable[[str | None], Reason]]] = {
    "SQLITE_CONSTRAINT_UNIQUE": _unique,
    "SQLITE_CONSTRAINT_PRIMARYKEY": _unique,
    "SQLITE_CONSTRAINT_ROWID": _unique,
    "SQLITE_CONSTRAINT_NOTNULL": _null,
    "SQLITE_CONSTRAINT_CHECK": _check,
}


def _of_sqlite(error: Any) -> Reason | None:
    code = getattr(error, "sqlite_errorcode", None)
    said = str(error)
    if code is None:
        # An error of Python's own checks; a closed connection is handled elsewhere.
        return _UNFIT if "bind" in said or isinstance(error, sqlite3.DataError) else None
    name = error.sqlite_errorname
    if code & 0xFF in _SQLITE_OTHERS or said.endswith("syntax error"):
        return None
    if name in _SQLITE_NAMED:
        return _SQLITE_NAMED[name](said.partition(": ")[2])
    if name == "SQLITE_CONSTRAINT_FOREIGNKEY":
        return _reference(None)
    if name == "SQLITE_CONSTRAINT_TRIGGER":
        return _TRIGGER
    if said.startswith(("no such table", "no such column")) or "has no column" in said:
        return _GONE
    return _UNFIT if name != "SQLITE_ERROR" else Reason("other", "SQLite refuses it")


# PostgreSQL.

#: Prefixes of error codes that concern connections, transactions, statements, syntax, resources,
#: objects in use or locked, operators, or the system.
_POSTGRESQL_OTHERS: Final = tuple("08 25 26 40 42601 53 55006 55P03 57 58 XX".split())
_POSTGRESQL_GONE: Final = frozenset({"42P01", "42703", "3F000", "42704"})
_POSTGRESQL_NAMED: Final[dict[str, Callable[[str | None], Reason]]] = {
    "23505": _unique,
    "23503": _reference,
    "23001": _reference,
    "23514": _check,
    "23P01": lambda name: Reason("other", _named("EXCLUDE constraint", name)),
}


def _of_postgresql(error: Any) -> Reason | None:
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if code is None:
        # An error of the driver's own checks.
        kinds = {kind.__name__ for kind in type(error).__mro__}
        return _UNFIT if kinds & {"DataError", "ProgrammingError", "NotSupportedError"} else None
    if code.startswith(_POSTGRESQL_OTHERS):
        return None
    told = getattr(error, "diag", None)
    if code in _POSTGRESQL_NAMED:
        return _POSTGRESQL_NAMED[code](getattr(told, "constraint_name", None))
    column = getattr(told, "column_name", None)
    if code == "23502":
        return _null(column)
    if code in _POSTGRESQL_GONE:
        return _GONE
    if code == "42501":
        return _DENIED
    if code == "P0001":
        return _TRIGGER
    return _unfit(column) if code.startswith("22") else Reason("other", f"SQLSTATE {code}")


# MySQL and MariaDB.

#: Errors that concern the server, the connection or the transaction: syntax, I/O, memory, full
#: disks and tables, concurrent row changes, connections, shutdown, networks, timeouts, locks,
#: deadlocks, commits, read-only mode, and all client errors.
_MYSQL_OTHERS: Final = frozenset(
    {1064, 1020, 1021, 1026, 1030, 1037, 1038, 1040, 1041, 1053, 1080, 1114, 1135, 1152, 1154, 1158}
    | {1159, 1160, 1161, 1180, 1184, 1203, 1205, 1206, 1213, 1226, 1290, 1317, 1614, 1637, 1792}
    | {1836, 1927, 1969, 3024, 3572, 4031, *range(2000, 3000)}
)
#: Reasons by error code, with patterns for names at the ends of messages without values.
_MYSQL_NAMED: Final[dict[int, tuple[Callable[[str | None], Reason], str]]] = {
    **dict.fromkeys((1022, 1062, 1169, 1586), (_unique, r".*for key '(.+)'")),
    **dict.fromkeys((1216, 1217, 1451, 1452, 1761, 1762), (_reference, r".*CONSTRAINT `([^`]+)`")),
    1048: (_null, r"Column '(.+)'"),
    1263: (_null, r".*column '(.+)'"),
    1364: (_null, r"Field '(.+)'"),
    3819: (_check, r"Check constraint '(.+)'"),
    4025: (_check, r"CONSTRAINT `([^`]+)`"),
    **dict.fromkeys((1264, 1265, 1292, 1366, 1406), (_unfit, r".*for column (.+?) at row")),
}
_MYSQL_GONE: Final = frozenset({1054, 1136, 1146, 1049, 1305})
_MYSQL_DENIED: Final = frozenset({1044, 1142, 1143, 1227})


def _of_mysql(error: Any) -> Reason | None:
    code = error.args[0] if error.args else None
    if not isinstance(code, int) or code < 1000 or code in _MYSQL_OTHERS:
        return None
    if code in _MYSQL_NAMED:
        make, pattern = _MYSQL_NAMED[code]
        found = re.match(pattern, str(error.args[-1]), re.DOTALL)
        return make(re.sub("['`]", "", found[1]) if found else None)
    if code in _MYSQL_GONE:
        return _GONE
    if code in _MYSQL_DENIED:
        return _DENIED
    return _TRIGGER if code == 1644 else Reason("other", f"the database's error {code}")


_READERS: Final[dict[str, Callable[[Any], Reason | None]]] = {
    "sqlite": _of_sqlite,
    "postgresql": _of_postgresql,
    "mysql": _of_mysql,
}
