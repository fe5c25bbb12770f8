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

#: Version of these tables. Increase it when they change, and add a migration from the previous
#: version.
VERSION: Final = 1

#: Bytes of any length. Names and ids are stored as bytes, too: they may be invalid UTF-8, or
#: contain characters that a database rejects in text.
_OCTETS: Final = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
_DIGEST: Final = LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb")

TABLES: Final = MetaData()

#: One row. ``stamp`` changes with each transaction: a broker with an older stamp is out of date.
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

#: ``digest`` is SHA-256 of the name, which may exceed the maximum key length.
RECORDS: Final = Table(
    "stompkit_records",
    TABLES,
    Column("digest", _DIGEST, primary_key=True),
    Column("name", _OCTETS, nullable=False),
    Column("value", _OCTETS, nullable=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)
