"""Wanted rows, and the rows that a database makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import event

from stompkit.replica.data import Data, Wanted
from stompkit.replica.data.sql import SqlData
from stompkit.replication.model.values import Value
from tests.replication.sinks.sql_targets import Target

__all__ = ["as_it_is", "checked", "gone", "key_of", "row", "text_of", "written"]


def key_of(key: Value) -> dict[str, Value]:
    """Return a key of ``id`` if it is one value."""
    return dict(key) if isinstance(key, Mapping) else {"id": key}


def text_of(table: str, key: Value) -> str:
    """Return the name of a row in these tests."""
    return f"{table} {key!r}"


def row(table: str, key: Value, /, **values: Value) -> Wanted:
    """Return a row that must exist."""
    return Wanted(text_of(table, key).encode(), table, key_of(key), values)


def gone(table: str, key: Value) -> Wanted:
    """Return a row that must not exist."""
    return Wanted(text_of(table, key).encode(), table, key_of(key), None)


def checked(target: Target) -> Target:
    """Return the same database; SQLite enforces foreign keys, too."""

    def check(driver: Any, _: object) -> None:
        driver.execute("PRAGMA foreign_keys = ON")

    if target.kind == "sqlite":
        event.listen(target.engine, "connect", check)
    return target


def as_it_is(target: Target) -> SqlData:
    """Return data of all existing tables."""
    return SqlData(target.engine, None)


def written(target: Target, rows: Iterable[Wanted], data: Data | None = None) -> dict[str, str]:
    """Write rows and commit; return the reasons of the refused ones."""
    data = as_it_is(target) if data is None else data
    with target.engine.begin() as connection:
        reasons = data.write(connection, list(rows))
    return {id.decode(): reason for id, reason in reasons.items()}
