"""Tables of an outbox, and the clock of their database."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    literal_column,
)
from sqlalchemy.dialects import mysql

__all__ = ["OutboxTables", "database_clock"]

#: SQLite numbers rows automatically only if a key is exactly INTEGER.
_NUMBER: Final = BigInteger().with_variant(Integer(), "sqlite")
_OCTETS: Final = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
_INNODB: Final[dict[str, Any]] = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}

#: Current time in seconds since 1970, not the start time of the transaction.
_CLOCKS: Final = {
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
    "postgresql": "extract(epoch from clock_timestamp())",
    "mysql": "unix_timestamp(sysdate(6))",
    "mariadb": "unix_timestamp(sysdate(6))",
}


def database_clock(dialect: str) -> ColumnElement[float]:
    """Return the database's clock in seconds since 1970; ValueError for an unknown dialect."""
    if dialect not in _CLOCKS:
        raise ValueError(f"an outbox can be in SQLite, PostgreSQL, MySQL or MariaDB, not {dialect}")
    return literal_column(_CLOCKS[dialect], Double())


class OutboxTables:
    """The table of changesets, and a table with a single row for the relays."""

    def __init__(self, name: str) -> None:
        """Define the tables: ``name``, and ``name_state``."""
        self.metadata: Final = MetaData()
        #: ``sequence`` is NULL until a relay has seen the row. Ids are in no order of commits.
        self.rows: Final = Table(
            name,
            self.metadata,
            Column("id", _NUMBER, primary_key=True, autoincrement=True),
            Column("sequence", BigInteger),
            Column("stored_at", Double, nullable=False),
            Column("published_at", Double),
            Column("size", BigInteger, nullable=False),
            Column("body", _OCTETS, nullable=False),
            Index(f"{name}_sequence", "sequence", "id"),
            Index(f"{name}_published", "published_at"),
            sqlite_autoincrement=True,
            **_INNODB,
        )
        self.state: Final = Table(
            f"{name}_state",
            self.metadata,
            Column("id", SmallInteger, primary_key=True, autoincrement=False),
            Column("origin", String(200), nullable=False),
            Column("last_sequence", BigInteger, nullable=False),
            Column("lease_owner", String(200)),
            Column("lease_number", BigInteger, nullable=False),
            Column("lease_expires", Double, nullable=False),
            **_INNODB,
        )
