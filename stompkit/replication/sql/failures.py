"""Classification of database errors as permanent or temporary.

The rule is the same for all databases: an error is permanent unless it is known to be temporary. A
statement that the database will never accept then ends the job, or becomes a dead letter, instead
of being retried forever and blocking all later ones.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

__all__ = ["Failure", "failure_of", "is_orphan"]

#: ``passing``: locks, shutdowns, lost connections, full disks: the same statement can succeed
#: later. ``stale``: tables have changed since they were read. ``denied``: the user or the database
#: is misconfigured, for any statement. ``final``: this statement with these values will never
#: succeed.
Failure = Literal["passing", "stale", "denied", "final"]

#: Prefixes of PostgreSQL's codes: connections, transactions that others have broken, resources
#: (disk, memory, connections), objects in use, operators, the system, internal errors; a read-only
#: or aborted transaction; an outdated plan or prepared statement; features that a plan lacks.
_POSTGRESQL_PASSING: Final = tuple("08 25 26 40 53 55006 55P03 55P04 57 58 F0 XX".split())
_POSTGRESQL_STALE: Final = frozenset(
    # Missing table or column; existing table, column, type or schema.
    {"42P01", "42703", "42P07", "42701", "42710", "42P06"}
)
#: Authentication, missing database or schema, missing privileges.
_POSTGRESQL_DENIED: Final = ("28", "3D000", "3F000", "42501")
#: PostgreSQL gives the reason of a refused connection only as text.
_POSTGRESQL_REFUSED: Final = re.compile(
    r"FATAL:\s+(database \".*\" does not exist|password authentication failed"
    r"|role \".*\" (does not exist|is not permitted to log in)|no pg_hba.conf entry"
    r"|permission denied for database)"
)

#: Codes of MySQL and MariaDB: connections and their number, memory, disks, I/O, locks, deadlocks,
#: shutdown, read-only servers, timeouts, transactions that a cluster refuses, a node that is not
#: ready; all client errors of the connection (2000 to 2999), except a packet that is too large.
_MYSQL_PASSING: Final = (
    frozenset(
        {1004, 1009, 1010, 1014, 1015, 1016, 1020, 1021, 1023, 1024, 1026, 1027, 1028, 1030, 1034}
        | {1035, 1037, 1038, 1040, 1041, 1042, 1043, 1047, 1053, 1077, 1078, 1079, 1080, 1081}
        | {1105, 1114, 1119, 1129, 1130, 1135, 1152, 1154, 1155, 1156, 1157, 1158, 1159, 1160}
        | {1161, 1165, 1180, 1181, 1184, 1189, 1190, 1194, 1195, 1203, 1205, 1206, 1213, 1223}
        | {1226, 1290, 1296, 1297, 1317, 1412, 1429, 1430, 1436, 1480, 1568, 1614, 1615, 1637}
        | {1689, 1792, 1836, 1880, 1927, 1969, 3024, 3058, 3098, 3100, 3101, 3168, 3572, 4031}
    )
    | frozenset(range(2000, 3000))
) - {2020}
_MYSQL_STALE: Final = frozenset({1050, 1051, 1054, 1060, 1146})
_MYSQL_DENIED: Final = frozenset({1044, 1045, 1049, 1142, 1143, 1227, 1370, 1698})

#: Low bytes of SQLite's codes: permissions, aborted, busy, locked, no memory, read-only,
#: interrupted, I/O, corrupt, full, cannot open, protocol, schema, not a database.
_SQLITE_PASSING: Final = frozenset({2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 17, 26})
_SQLITE_STALE: Final = re.compile(
    r"no such (table|column)|has no column|already exists|duplicate column"
)


def is_orphan(error: BaseException | None, backend: str) -> bool:
    """Return True if the error is a violated foreign key: a missing or still referenced row."""
    if backend == "postgresql":
        return (getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)) == "23503"
    if backend == "mysql":
        return error is not None and error.args[:1] in ((1452,), (1216,), (1451,), (1217,))
    return getattr(error, "sqlite_errorname", "") == "SQLITE_CONSTRAINT_FOREIGNKEY"


def failure_of(error: BaseException | None, backend: str) -> Failure:
    """Return the class of a driver's error."""
    if error is None:
        return "passing"
    if backend == "postgresql":
        return _of_postgresql(error)
    return _of_mysql(error) if backend == "mysql" else _of_sqlite(error)


def _kinds(error: BaseException) -> frozenset[str]:
    """Return the names of the exception's classes, among them those of PEP 249."""
    return frozenset(kind.__name__ for kind in type(error).__mro__)


def _of_postgresql(error: Any) -> Failure:
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""
    if not code:
        if _POSTGRESQL_REFUSED.search(str(error)):
            return "denied"
        # The driver itself refuses only values; all other errors are about the connection.
        return _of_driver(error)
    if code in _POSTGRESQL_STALE:
        return "stale"
    if code.startswith(_POSTGRESQL_DENIED):
        return "denied"
    if code.startswith(_POSTGRESQL_PASSING) or "cached plan" in str(error):
        return "passing"
    return "final"


def _of_mysql(error: Any) -> Failure:
    code = error.args[0] if error.args else None
    if not isinstance(code, int) or code < 1000:
        return _of_driver(error)
    if code in _MYSQL_STALE:
        return "stale"
    if code in _MYSQL_DENIED:
        return "denied"
    return "passing" if code in _MYSQL_PASSING else "final"


def _of_sqlite(error: Any) -> Failure:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return _of_driver(error)
    if code & 0xFF in _SQLITE_PASSING:
        return "passing"
    return "stale" if _SQLITE_STALE.search(str(error)) else "final"


def _of_driver(error: BaseException) -> Failure:
    """Return the class of an error that the driver raised without the database."""
    kinds = _kinds(error)
    if not kinds.isdisjoint({"IntegrityError", "DataError", "NotSupportedError"}):
        return "final"
    if "ProgrammingError" in kinds or "InterfaceError" in kinds:
        return "final" if re.search(r"bind|adapt|convert", str(error)) else "passing"
    return "passing"
