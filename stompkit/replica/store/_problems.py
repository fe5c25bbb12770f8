"""What can go wrong between a store and its database, and passes."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy.exc import DBAPIError

__all__ = ["StoreBusy", "StoreProblem", "StoreUnavailable", "problem_of"]


class StoreProblem(Exception):
    """The database did not do what it was asked, and nothing has changed; ``str()`` says why."""


class StoreBusy(StoreProblem):
    """Others were in the way: the same may succeed at once."""


class StoreUnavailable(StoreProblem):
    """The database can't be used, which may pass."""


#: SQLite: somebody else writes.
_SQLITE_BUSY: Final = frozenset({5, 6})
#: SQLite: errors of who asks, and constraints. All others are those of files and the machine.
_SQLITE_OTHERS: Final = frozenset({1, 18, 19, 20, 21, 25})
#: PostgreSQL: serialization, deadlock, a lock that was not had in time, a statement that took long.
_POSTGRESQL_BUSY: Final = frozenset({"40001", "40P01", "55P03", "57014"})
#: PostgreSQL: the connection, resources, an administrator, the system; a standby.
_POSTGRESQL_GONE: Final = ("08", "53", "57", "58", "25006")
#: MySQL and MariaDB: a lock that was not had in time, or not at once, deadlock, a row that was
#: changed since this transaction saw it, a statement that was ended.
_MYSQL_BUSY: Final = frozenset({1205, 3572, 1213, 1020, 1317})
#: MySQL and MariaDB: too many connections, shutting down, hosts, quotas, disks, reading only.
_MYSQL_GONE: Final = frozenset(
    {1021, 1030, 1040, 1042, 1043, 1053, 1114, 1129, 1203, 1226, 1290, 1836, 1927}
)
#: And from here to there, errors of the client library: there is no connection.
_MYSQL_CLIENT: Final = range(2000, 3000)


def problem_of(error: DBAPIError, dialect: str) -> StoreProblem | None:
    """What an error of the driver means to a store; ``None`` where it is about what was asked."""
    said: Any = error.orig
    # The first line: others can quote whole rows.
    reason = str(said.args[-1] if said.args else said).strip().partition("\n")[0]
    if dialect == "sqlite":
        code = getattr(said, "sqlite_errorcode", 1) & 0xFF
        is_busy, is_gone = code in _SQLITE_BUSY, code not in _SQLITE_OTHERS
    elif dialect == "postgresql":
        state = getattr(said, "sqlstate", None) or getattr(said, "pgcode", None) or ""
        is_busy = state in _POSTGRESQL_BUSY
        is_gone = state.startswith(_POSTGRESQL_GONE) or (
            not state and type(said).__name__ in ("OperationalError", "InterfaceError")
        )
    else:
        code = said.args[0] if said.args and isinstance(said.args[0], int) else 0
        is_busy, is_gone = code in _MYSQL_BUSY, code in _MYSQL_GONE or code in _MYSQL_CLIENT
    if is_busy:
        return StoreBusy(f"the store is in use: {reason}")
    if is_gone or error.connection_invalidated:
        return StoreUnavailable(f"the store can't be used: {reason}")
    return None
