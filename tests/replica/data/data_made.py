"""Rows as they are wanted, and what a database makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import event

from stompkit.replica.data import Data, Wanted
from stompkit.replica.data.sql import SqlData
from stompkit.replication.values import Value
from tests.replication.sinks.sql_targets import Target

__all__ = ["as_it_is", "checked", "gone", "key_of", "row", "text_of", "written"]


def key_of(key: Value) -> dict[str, Value]:
    """A key: of ``id`` where it is one value."""
    return dict(key) if isinstance(key, Mapping) else {"id": key}


def text_of(table: str, key: Value) -> str:
    """What a row is called here."""
    return f"{table} {key!r}"


def row(table: str, key: Value, /, **values: Value) -> Wanted:
    """A row that is to be there."""
    return Wanted(text_of(table, key).encode(), table, key_of(key), values)


def gone(table: str, key: Value) -> Wanted:
    """A row that is not to be there."""
    return Wanted(text_of(table, key).encode(), table, key_of(key), None)


def checked(target: Target) -> Target:
    """The same database, where SQLite looks at foreign keys, too."""

    def check(driver: Any, _: object) -> None:
        driver.execute("PRAGMA foreign_keys = ON")

    if target.kind == "sqlite":
        event.listen(target.engine, "connect", check)
    return target


def as_it_is(target: Target) -> SqlData:
    """All tables that are there."""
    return SqlData(target.engine, None)


def written(target: Target, rows: Iterable[Wanted], data: Data | None = None) -> dict[str, str]:
    """Write rows and commit; gives the reasons of those that are refused."""
    data = as_it_is(target) if data is None else data
    with target.engine.begin() as connection:
        reasons = data.write(connection, list(rows))
    return {id.decode(): reason for id, reason in reasons.items()}
