"""Errors of database drivers: their cause, and a text that quotes nothing stored."""

from __future__ import annotations

from typing import Final

__all__ = ["lacks_room", "reason"]

#: Error codes for lack of space: SQLite's result code, PostgreSQL's SQLSTATE, MariaDB's numbers.
_SQLITE_FULL: Final = 13
_POSTGRESQL_FULL: Final = "53100"
_MARIADB_FULL: Final = ((1021,), (1114,))


def lacks_room(error: BaseException | None) -> bool:
    """Return True if a driver's error reports a lack of space."""
    return (
        getattr(error, "sqlite_errorcode", None) == _SQLITE_FULL
        or getattr(error, "sqlstate", None) == _POSTGRESQL_FULL
        or (error is not None and error.args[:1] in _MARIADB_FULL)
    )


def reason(error: BaseException | None) -> str:
    """Return the driver's message, without the lines that can quote stored data."""
    text = str(error.args[-1]) if error is not None and error.args else repr(error)
    return text.strip().partition("\n")[0]
