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

from stompkit.replica.store._records import LONGEST_NAME, LONGEST_ORIGIN

__all__ = ["HAS_CONFLICTS", "HAS_PROBLEM", "IS_TOMBSTONE", "Tables"]

#: Conditions that few rows fulfil. A query has to say the same, without a parameter, to be given an
#: index that has only such rows.
HAS_CONFLICTS: Final = "conflicts > 0"
HAS_PROBLEM: Final = "has_problem > 0"
IS_TOMBSTONE: Final = "is_live = 0"


class _Octets(TypeDecorator[bytes]):
    """Octets that drivers take as they are."""

    impl = LargeBinary
    cache_ok = True

    def __init__(self, length: int | None = None) -> None:
        """Describe as many octets, or any number."""
        super().__init__()
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """What MySQL calls it, where it is not the same as elsewhere."""
        if dialect.name not in ("mysql", "mariadb"):
            return LargeBinary()
        return mysql.BINARY(self.length) if self.length else mysql.LONGBLOB()

    def bind_processor(self, dialect: Dialect) -> None:
        """Nothing."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        """Nothing, but for drivers that give views of octets."""
        return bytes if dialect.driver == "psycopg2" else None


_OCTETS: Final = _Octets()
_TEXT: Final = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
#: Ids of rows, and digests.
_SHORT: Final = _Octets(16)
#: Ids of changesets.
_LONG: Final = _Octets(32)
#: SQLite takes only a key that is exactly INTEGER for the number of the row.
_NUMBER: Final = BigInteger().with_variant(Integer(), "sqlite")
_ORIGIN: Final = String(LONGEST_ORIGIN)
_NAME: Final = String(LONGEST_NAME)

#: Names that differ by case, or by blanks at their ends, are different names everywhere.
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
    """Describes the tables, whose names begin with ``prefix``.

    Columns that can be large come last: SQLite need not read them to get at the others.
    """

    def __init__(self, prefix: str, mysql_collation: str = _MYSQL_COLLATION) -> None:
        """Describe them."""
        self.prefix: Final = prefix
        self._options: Final = {**_OPTIONS, "mysql_collate": mysql_collation}
        self.metadata: Final = MetaData()
        #: One row, which every transaction locks first. ``generation`` counts transactions that
        #: have written something, ``position`` is that of the last changeset.
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
            # MySQL can't index a text that has no bound.
            Column("has_problem", SmallInteger, nullable=False),
            Column("row_key", _OCTETS, nullable=False),
            Column("state", _OCTETS, nullable=False),
        )
        for name, column, condition in _RARE:
            self._index_few(name, column, condition)
        #: By table: of all rows that are live.
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
        """An index of the rows for which a condition holds: only those, where that can be had."""
        where = text(condition)
        partial = Index(
            f"{self.prefix}rows_{name}", self.rows.c.id, sqlite_where=where, postgresql_where=where
        )
        whole = Index(f"{self.prefix}rows_{name}", self.rows.c[column], self.rows.c.id)
        # Of the two, each kind of database is given one.
        partial.ddl_if(callable_=_has_partial)
        whole.ddl_if(callable_=_has_no_partial)

    def create(self, connection: Connection) -> None:
        """Make what is missing."""
        tables = self
        if connection.dialect.name == "mysql" and getattr(connection.dialect, "is_mariadb", False):
            # MariaDB, reached by a URL that says MySQL.
            tables = Tables(self.prefix, _MARIADB_COLLATION)
        tables.metadata.create_all(connection)
        for table in tables.metadata.sorted_tables:
            for index in table.indexes:
                # Those databases that commit each statement may have been interrupted in between.
                index.create(connection, checkfirst=True)
        if connection.execute(select(self.state.c.id)).one_or_none() is None:
            row = {"id": 1, "generation": 0, "position": 0}
            connection.execute(insert(self.state).values(row))


def _has_partial(*_: object, dialect: Dialect, **__: object) -> bool:
    return dialect.name in ("sqlite", "postgresql")


def _has_no_partial(*_: object, dialect: Dialect, **__: object) -> bool:
    return dialect.name not in ("sqlite", "postgresql")


#: Their indexes: name, column and condition.
_RARE: Final = (
    ("conflicts", "conflicts", HAS_CONFLICTS),
    ("problems", "has_problem", HAS_PROBLEM),
    ("tombstones", "is_live", IS_TOMBSTONE),
)
