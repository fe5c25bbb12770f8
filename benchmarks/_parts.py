"""A table of ten columns, for benchmarks of replication, and its rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final

import sqlalchemy
from sqlalchemy import Column, MetaData, Table
from sqlalchemy.dialects import mysql

__all__ = ["PARTS", "rows"]

_MICROSECONDS: Final = sqlalchemy.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
PARTS: Final = Table(
    "parts",
    MetaData(),
    Column("id", sqlalchemy.Integer, primary_key=True, autoincrement=False),
    Column("name", sqlalchemy.String(50)),
    Column("price", sqlalchemy.Numeric(10, 2)),
    Column("made", _MICROSECONDS),
    Column("day", sqlalchemy.Date),
    Column("amount", sqlalchemy.Integer),
    Column("weight", sqlalchemy.Double),
    Column("data", sqlalchemy.LargeBinary(50)),
    Column("note", sqlalchemy.Text),
    Column("flag", sqlalchemy.Boolean),
)


def rows(count: int) -> Iterator[dict[str, Any]]:
    """Yield rows of the table; the same for the same ``count``."""
    chance = Random(1)
    begin = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    for number in range(1, count + 1):
        yield {
            "id": number,
            "name": f"part {chance.randrange(10**9)}",
            "price": Decimal(chance.randrange(10**7)) / 100,
            "made": begin + timedelta(microseconds=chance.randrange(10**13)),
            "day": date(2026, 1, 1) + timedelta(days=number % 365),
            "amount": chance.randrange(10**6),
            "weight": chance.random() * 100,
            "data": chance.randbytes(12),
            "note": "x" * chance.randrange(20, 60),
            "flag": number % 2 == 0,
        }
