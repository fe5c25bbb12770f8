"""Leases: exclusive rights that expire by the clock of a database."""

from __future__ import annotations

import time
from typing import Final

from sqlalchemy import ColumnElement, Double, literal_column

__all__ = ["Lease", "database_clock", "steady_s"]

_BOOT_TIME: Final = getattr(time, "CLOCK_BOOTTIME", None)

#: Current time in seconds since 1970, not the start time of the transaction.
_CLOCKS: Final = {
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
    "postgresql": "extract(epoch from clock_timestamp())",
    "mysql": "unix_timestamp(sysdate(6))",
    "mariadb": "unix_timestamp(sysdate(6))",
}


def steady_s() -> float:
    """Return the seconds of a clock that nobody sets, and that counts while the machine sleeps."""
    return time.monotonic() if _BOOT_TIME is None else time.clock_gettime(_BOOT_TIME)


def database_clock(dialect: str) -> ColumnElement[float]:
    """Return the database's clock in seconds since 1970; ValueError for an unknown dialect."""
    if dialect not in _CLOCKS:
        raise ValueError(
            f"the database has to be SQLite, PostgreSQL, MySQL or MariaDB, not {dialect}"
        )
    return literal_column(_CLOCKS[dialect], Double())


class Lease:
    """An exclusive right, for some seconds after it was acquired or renewed.

    The subclasses store it, with its expiry by the clock of the database.
    """

    def __init__(self, dialect: str, seconds: float) -> None:
        """Start without the right; ``dialect`` is that of the database."""
        self._clock: Final = database_clock(dialect)
        self._seconds: Final = seconds
        #: Expiry by :func:`steady_s`: never later than by the clock of the database.
        self._expires_s = float("-inf")

    @property
    def is_valid(self) -> bool:
        """True if it has certainly not expired."""
        return steady_s() < self._expires_s

    @property
    def due_in_s(self) -> float:
        """Seconds until it is time to renew it; negative if it is overdue."""
        return self._expires_s - self._seconds * 2 / 3 - steady_s()

    @property
    def is_due(self) -> bool:
        """True if it is time to renew it."""
        return self.due_in_s <= 0

    def expire(self) -> None:
        """Stop using it until it is acquired again."""
        self._expires_s = float("-inf")

    def _extend(self, asked_s: float) -> None:
        """Note that the right was acquired or renewed by a request made at that steady time."""
        self._expires_s = asked_s + self._seconds
