"""The tables of a store."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Dialect,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    insert,
    select,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

from stompkit._common.tables import ONLY_ON, create_missing
from stompkit.replica.store._records import LONGEST_NAME, LONGEST_ORIGIN

__all__ = ["HAS_CONFLICTS", "HAS_PROBLEM", "IS_TOMBSTONE", "Tables"]

#: Conditions for partial indexes. A query must contain exactly the same condition, without a
#: parameter, to use such an index.
HAS_CONFLICTS: Final = "conflicts > 0"
HAS_PROBLEM: Final = "has_problem > 0"
IS_TOMBSTONE: Final = "is_live = 0"


class _Octets(TypeDecorator[bytes]):
    """Binary data that drivers accept unchanged."""

    impl = LargeBinary
    cache_ok = True

    def __init__(self, length: int | None = None) -> None:
        """Describe bytes of a fixed length, or of any length."""
        super().__init__()
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the binary type of the dialect; MySQL's differs from the others."""
        if dialect.name not in ("mysql", "mariadb"):
            return LargeBinary()
        return mysql.BINARY(self.length) if self.length else mysql.LONGBLOB()

    def bind_processor(self, dialect: Dialect) -> None:
        """Return no processor."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        """Return no processor, except for drivers that return memory views."""
        return bytes if dialect.driver == "psycopg2" else None


_OCTETS: Final = _Octets()
_TEXT: Final = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
#: Ids of rows, and digests.
_SHORT: Final = _Octets(16)
#: Ids of changesets.
_LONG: Final = _Octets(32)
#: SQLite uses a key as the row id only if its type is exactly INTEGER.
_NUMBER: Final = BigInteger().with_variant(Integer(), "sqlite")
_ORIGIN: Final = String(LONGEST_ORIGIN)
_NAME: Final = String(LONGEST_NAME)

#: Names that differ in case or in trailing spaces are different in all databases.
_MARIADB_COLLATION: Final = "utf8mb4_nopad_bin"
_MYSQL_COLLATION: Final = "utf8mb4_0900_bin"
_OPTIONS: Final[dict[str, Any]] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": _MARIADB_COLLATION,
}


class Tables:
    """The table definitions, whose names begin with ``prefix``.

    Large columns come last, so that SQLite can read the others without them.
    """

    def __init__(self, prefix: str, mysql_collation: str = _MYSQL_COLLATION) -> None:
        """Describe the tables."""
        self.prefix: Final = prefix
        self._options: Final = {**_OPTIONS, "mysql_collate": mysql_collation}
        self.metadata: Final = MetaData()
        #: The row that every write transaction locks first. ``generation`` counts write
        #: transactions, ``position`` is that of the last changeset.
        self.state: Final = self._table(
            "state",
            Column("id", SmallInteger, primary_key=True, autoincrement=False),
            Column("generation", BigInteger, nullable=False),
            Column("position", BigInteger, nullable=False),
        )
        self.meta: Final = self._table(
            "meta",
            Column("name", _NAME, primary_key=True),
            Column("content", _OCTETS, nullable=False),
        )
        self.origins: Final = self._table(
            "origins",
            Column("origin", _ORIGIN, primary_key=True),
            Column("sequence", BigInteger, nullable=False),
            Column("floor", BigInteger, nullable=False),
            Column("last_id", _NAME, nullable=False),
            Column("clock", _OCTETS, nullable=False),
        )
        self.changesets: Final = self._table(
            "changesets",
            Column("position", _NUMBER, primary_key=True, autoincrement=False),
            Column("origin", _ORIGIN, nullable=False),
            Column("sequence", BigInteger, nullable=False),
            Column("id", _LONG, nullable=False),
            Column("hlc", BigInteger, nullable=False),
            Column("time", Double, nullable=False),
            Column("author", _TEXT, nullable=False),
            Column("comment", _TEXT, nullable=False),
            Column("changes", Integer, nullable=False),
            Column("via", _ORIGIN, nullable=False),
            Column("size", BigInteger, nullable=False),
            Column("signature", _OCTETS, nullable=False),
            Column("body", _OCTETS),
            UniqueConstraint("origin", "sequence", name=f"{prefix}changesets_dot"),
            Index(f"{prefix}changesets_id", "id"),
        )
        self.touched: Final = self._table(
            "touched",
            Column("row_id", _SHORT, primary_key=True),
            Column("position", _NUMBER, primary_key=True, autoincrement=False),
            Index(f"{prefix}touched_position", "position"),
            sqlite_with_rowid=False,
        )
        self.rows: Final = self._table(
            "rows",
            Column("id", _SHORT, primary_key=True),
            Column("table_name", _NAME, nullable=False),
            Column("is_live", SmallInteger, nullable=False),
            Column("conflicts", Integer, nullable=False),
            Column("digest", _SHORT, nullable=False),
            Column("page", Integer),
            Column("problem", _TEXT, nullable=False),
            # MySQL cannot index a text without a maximum length.
            Column("has_problem", SmallInteger, nullable=False),
            Column("row_key", _OCTETS, nullable=False),
            Column("state", _OCTETS, nullable=False),
        )
        for name, column, condition in _RARE:
            self._index_few(name, column, condition)
        #: Digest and number of live rows, by table.
        self.digests: Final = self._table(
            "digests",
            Column("table_name", _NAME, primary_key=True),
            Column("digest", _SHORT, nullable=False),
            Column("live", BigInteger, nullable=False),
        )
        self.base: Final = self._table(
            "base",
            Column("id", _SHORT, primary_key=True),
            Column("table_name", _NAME, nullable=False),
            Column("is_live", SmallInteger, nullable=False),
            Column("row_key", _OCTETS, nullable=False),
            Column("state", _OCTETS, nullable=False),
        )
        self.pages: Final = self._table(
            "pages",
            Column("page", Integer, primary_key=True, autoincrement=False),
            Column("vector", _OCTETS, nullable=False),
        )
        self.held: Final = self._table(
            "held",
            Column("origin", _ORIGIN, primary_key=True),
            Column("sequence", BigInteger, primary_key=True, autoincrement=False),
            Column("id", _LONG, nullable=False),
            Column("received_at", Double, nullable=False),
            Column("via", _ORIGIN, nullable=False),
            Column("is_quarantined", SmallInteger, nullable=False),
            Column("size", BigInteger, nullable=False),
            Column("problem", _TEXT, nullable=False),
            Column("signature", _OCTETS, nullable=False),
            Column("body", _OCTETS, nullable=False),
        )
        self.peers: Final = self._table(
            "peers",
            Column("origin", _ORIGIN, primary_key=True),
            Column("counter", BigInteger, nullable=False),
            Column("heard_at", Double, nullable=False),
            Column("ports", _OCTETS, nullable=False),
            Column("vector", _OCTETS, nullable=False),
            Column("facts", _OCTETS, nullable=False),
            Column("body", _OCTETS, nullable=False),
        )
        self.sessions: Final = self._table(
            "sessions",
            Column("number", _NUMBER, primary_key=True, autoincrement=False),
            Column("session", _NAME, nullable=False),
            Column("start", BigInteger, nullable=False),
        )

    def _table(self, name: str, *parts: Any, **options: Any) -> Table:
        return Table(f"{self.prefix}{name}", self.metadata, *parts, **self._options, **options)

    def _index_few(self, name: str, column: str, condition: str) -> None:
        """Add an index of the rows that fulfil a condition; it is partial if possible."""
        where = text(condition)
        # Each kind of database gets one of the two.
        Index(
            f"{self.prefix}rows_{name}",
            self.rows.c.id,
            sqlite_where=where,
            postgresql_where=where,
            info={ONLY_ON: ("sqlite", "postgresql")},
        )
        Index(
            f"{self.prefix}rows_{name}",
            self.rows.c[column],
            self.rows.c.id,
            info={ONLY_ON: ("mysql", "mariadb")},
        )

    def create(self, connection: Connection) -> None:
        """Create the missing tables."""
        tables = self
        if connection.dialect.name == "mysql" and getattr(connection.dialect, "is_mariadb", False):
            # MariaDB, reached by a MySQL URL.
            tables = Tables(self.prefix, _MARIADB_COLLATION)
        create_missing(connection, tables.metadata.sorted_tables)
        if connection.execute(select(self.state.c.id)).one_or_none() is None:
            row = {"id": 1, "generation": 0, "position": 0}
            connection.execute(insert(self.state).values(row))


#: Partial indexes: name, column and condition.
_RARE: Final = (
    ("conflicts", "conflicts", HAS_CONFLICTS),
    ("problems", "has_problem", HAS_PROBLEM),
    ("tombstones", "is_live", IS_TOMBSTONE),
)
