"""Columns that tables have gained: they get the values that were merged before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import inspect

from stompkit.replica.applier._rows import LACKING, WorkingRows
from stompkit.replica.data import Data
from stompkit.replica.rules import Rules
from stompkit.replica.store import Tx

__all__ = ["fill"]

#: Batch size in rows when a new column of a table is filled.
_FILLED: Final = 500


def fill(tx: Tx, data: Data, rules: Rules) -> int:
    """Fill columns that the tables have gained; returns the number of rows written."""
    lacking: dict[str, list[str]] = tx.meta(LACKING) or {}
    if not lacking:
        return 0
    data.forget()
    there = data.tables(tx.connection)
    count = 0
    left: dict[str, list[str]] = {}
    for name, columns in lacking.items():
        schema, _, table = name.rpartition(".")
        found: set[str] = set()
        if name in there:
            described = inspect(tx.connection).get_columns(table, schema or None)
            found = {each["name"].casefold() for each in described}
        arrived = [each for each in columns if each.casefold() in found]
        missing = [each for each in columns if each not in arrived]
        if missing:
            left[name] = missing
        if arrived:
            count += _fill(tx, data, rules, name, arrived)
    tx.set_meta(LACKING, left)
    return count


def _fill(tx: Tx, data: Data, rules: Rules, table: str, columns: Sequence[str]) -> int:
    """Write the rows of a table that have a value in one of these columns."""
    of_table = rules.of(table)
    count = 0
    after: bytes | None = None
    while records := tx.rows_of(table, after, _FILLED):
        after = records[-1].id
        rows = WorkingRows(tx, rules)
        for record in records:
            visible = record.state.visible(of_table) or {}
            if any(visible.get(each) is not None for each in columns):
                rows.take(record)
                count += 1
        rows.materialise(data)
        rows.store()
    return count
