"""The tables of a store in an SQL database."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
)
from sqlalchemy.dialects import mysql

__all__ = ["LANES", "MESSAGES", "META", "RECORDS", "TABLES", "VERSION"]

#: The version of these tables. Who changes them counts it up, and adds to the migrations what
#: turns the last ones into the new ones.
VERSION: Final = 1

#: Octets of any number. Names and ids are kept as octets, too: they can be no UTF-8 at all, and
#: hold what a database takes for no text.
_OCTETS: Final = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
_DIGEST: Final = LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb")

TABLES: Final = MetaData()

#: One row. ``stamp`` is another after each change: whoever knows an older one is not up to date.
META: Final = Table(
    "stompkit_meta",
    TABLES,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    Column("uuid", String(32), nullable=False),
    Column("stamp", String(32), nullable=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)

LANES: Final = Table(
    "stompkit_lanes",
    TABLES,
    Column("lane", BigInteger, primary_key=True, autoincrement=False),
    Column("queue", _OCTETS, nullable=False),
    Column("part", BigInteger, nullable=False),
    Column("messages", BigInteger, nullable=False),
    Column("octets", BigInteger, nullable=False),
    Column("last_place", BigInteger, nullable=False),
    Column("delivered_place", BigInteger, nullable=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)

MESSAGES: Final = Table(
    "stompkit_messages",
    TABLES,
    Column("lane", BigInteger, primary_key=True, autoincrement=False),
    Column("place", BigInteger, primary_key=True, autoincrement=False),
    Column("deliveries", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Column("due_ms", BigInteger, nullable=False),
    Column("id", _OCTETS, nullable=False),
    Column("header_lines", _OCTETS, nullable=False),
    Column("body", _OCTETS, nullable=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)

#: ``digest`` is SHA-256 of the name, which may be longer than a key can be.
RECORDS: Final = Table(
    "stompkit_records",
    TABLES,
    Column("digest", _DIGEST, primary_key=True),
    Column("name", _OCTETS, nullable=False),
    Column("value", _OCTETS, nullable=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)
