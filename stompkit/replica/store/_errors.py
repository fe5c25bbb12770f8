"""Transient errors between a store and its database."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy.exc import DBAPIError

__all__ = ["ReplicaStoreError", "StoreBusyError", "StoreUnavailableError", "problem_of"]


class ReplicaStoreError(Exception):
    """The database has failed, and nothing has changed; ``str()`` says why."""


class StoreBusyError(ReplicaStoreError):
    """Another transaction was in the way; an immediate retry may succeed."""


class StoreUnavailableError(ReplicaStoreError):
    """The database is unusable, perhaps temporarily."""


#: SQLite: another connection writes, or has changed the schema since the statement was compiled.
_SQLITE_BUSY: Final = frozenset({5, 6, 17})
#: SQLite: errors of the caller, and constraints. All others concern files and the machine.
_SQLITE_OTHERS: Final = frozenset({1, 18, 19, 20, 21, 25})
#: PostgreSQL: serialization failure, deadlock, lock timeout, cancelled statement.
_POSTGRESQL_BUSY: Final = frozenset({"40001", "40P01", "55P03", "57014"})
#: PostgreSQL: connection, resources, administrator, system; a standby.
_POSTGRESQL_GONE: Final = ("08", "53", "57", "58", "25006")
#: MySQL and MariaDB: lock timeout, lock not available, deadlock, row changed since the snapshot,
#: interrupted statement.
_MYSQL_BUSY: Final = frozenset({1205, 3572, 1213, 1020, 1317})
#: MySQL and MariaDB: too many connections, shutdown, hosts, quotas, disks, read-only mode.
_MYSQL_GONE: Final = frozenset(
    {1021, 1030, 1040, 1042, 1043, 1053, 1114, 1129, 1203, 1226, 1290, 1836, 1927}
)
#: Error codes of the client library: no connection.
_MYSQL_CLIENT: Final = range(2000, 3000)


def problem_of(error: DBAPIError, dialect: str) -> ReplicaStoreError | None:
    """Return the store's error for a driver error; ``None`` if the statement is at fault."""
    said: Any = error.orig
    # Only the first line, because others can quote whole rows.
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
        return StoreBusyError(f"the store is in use: {reason}")
    if is_gone or error.connection_invalidated:
        return StoreUnavailableError(f"the store cannot be used: {reason}")
    return None
