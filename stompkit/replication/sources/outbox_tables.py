"""Tables of an outbox."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
)
from sqlalchemy.dialects import mysql

__all__ = ["OutboxTables"]

#: SQLite numbers rows automatically only if a key is exactly INTEGER.
_NUMBER: Final = BigInteger().with_variant(Integer(), "sqlite")
_OCTETS: Final = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
_INNODB: Final[dict[str, Any]] = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}


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
