"""Comparison of the application's tables with the state that the replica has recorded.

They differ only in rows that existed before the replica, in changes that were not captured, and in
rows that the database has refused. SQL text of another program is not captured, for example.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from stompkit.replica.applier import Applier
from stompkit.replica.data.sql import RowFilter
from stompkit.replica.store import Reader, RowRecord, Store, Tx, row_id
from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import Json, Value, same_document, to_json

__all__ = ["Difference", "differences", "import_rows"]

#: Number of rows per batch; each batch of imported rows is one changeset.
_PAGE: Final = 500


class Difference(NamedTuple):
    """A row whose table differs from the recorded state."""

    table: str
    key: dict[str, Value]
    #: ``unknown``: the row is in the table but not recorded. ``missing``: it is recorded only.
    kind: Literal["unknown", "missing", "changed"]
    #: Columns that differ.
    columns: tuple[str, ...] = ()


def differences(
    store: Store, applier: Applier, filters: Mapping[str, RowFilter]
) -> Iterator[Difference]:
    """Yield the differences by table, in one snapshot; refused rows are omitted."""
    with store.reading() as reader:
        for table in applier.data.tables(reader.connection):
            if not applier.wants(table):
                continue
            seen: set[bytes] = set()
            for page in _pages(reader, applier, table):
                seen.update(row_id(table, key) for key, _ in page)
                for difference, _ in _unlike(reader, applier, table, page):
                    yield difference
            yield from _missing(reader, applier, table, seen, filters.get(table))


def import_rows(
    store: Store,
    applier: Applier,
    tables: Sequence[str],
    filters: Mapping[str, RowFilter],
    *,
    comment: str,
) -> int:
    """Record all :func:`differences` as changes of this node; returns their number.

    ``tables`` are in dependency order: referenced tables first. Deletions come last, in reverse
    order.
    """
    count = 0
    for table in tables:
        count += _import_present(store, applier, table, comment)
    for table in reversed(tables):
        count += _import_deletions(store, applier, table, filters.get(table), comment)
    return count


def _import_present(store: Store, applier: Applier, table: str, comment: str) -> int:
    """Record the unknown and differing rows of a table."""
    count = 0
    after: dict[str, Value] | None = None
    while True:
        with store.transaction() as tx:
            page = applier.data.read(tx.connection, table, after, _PAGE)
            if not page:
                return count
            after = page[-1][0]
            changes = [
                change
                for difference, change_here in _unlike(tx, applier, table, page)
                if (change := _without_nulls(difference, change_here)) is not None
            ]
            applier.record(tx, changes, comment=comment)
            count += len(changes)


def _import_deletions(
    store: Store, applier: Applier, table: str, wants: RowFilter | None, comment: str
) -> int:
    """Record the deletion of rows that are missing from a table."""
    with store.reading() as reader:
        seen = {row_id(table, key) for page in _pages(reader, applier, table) for key, _ in page}
        missing = [
            row_id(table, each.key) for each in _missing(reader, applier, table, seen, wants)
        ]
    count = 0
    for start in range(0, len(missing), _PAGE):
        with store.transaction() as tx:
            records = tx.rows(missing[start : start + _PAGE]).values()
            # Others may have written or deleted a row since it was looked for.
            changes = [
                _deletion(record)
                for record in records
                if record.is_live
                and not record.problem
                and applier.data.read_one(tx.connection, table, record.key) is None
            ]
            applier.record(tx, changes, comment=comment)
            count += len(changes)
    return count


def _deletion(record: RowRecord) -> RowChange:
    schema, _, table = record.table.rpartition(".")
    return RowChange(schema=schema, table=table, action="delete", key=record.key)


def _without_nulls(difference: Difference, change: RowChange) -> RowChange | None:
    """Return a change without NULLs for columns with a recorded value; ``None`` if it is empty.

    Such a column may be new in the table here, and have its value at other nodes.
    """
    if difference.kind != "changed":
        return change
    after = change.after or {}
    empty = {name for name in difference.columns if after[name] is None}
    if empty >= set(difference.columns):
        return None
    kept = {name: value for name, value in after.items() if name not in empty}
    return msgspec.structs.replace(change, after=kept)


_Page = list[tuple[dict[str, Value], dict[str, Value]]]


def _pages(reader: Reader, applier: Applier, table: str) -> Iterator[_Page]:
    after: dict[str, Value] | None = None
    while page := applier.data.read(reader.connection, table, after, _PAGE):
        yield page
        after = page[-1][0]


def _unlike(
    reader: Reader | Tx, applier: Applier, table: str, page: _Page
) -> Iterator[tuple[Difference, RowChange]]:
    """Yield the rows of a page that differ from the recorded state, each with its change."""
    rules = applier.rules.of(table)
    schema, _, name = table.rpartition(".")
    records = reader.rows([row_id(table, key) for key, _ in page])
    for key, values in page:
        record = records.get(row_id(table, key))
        if record is not None and record.problem:
            # The table is known to differ in this row.
            continue
        visible = None if record is None else record.state.visible(rules)
        change = RowChange(schema=schema, table=name, action="write", key=key, after=values)
        if visible is None:
            yield Difference(table, key, "unknown"), change
            continue
        columns = tuple(
            column
            for column, value in values.items()
            if column in visible and not _are_equal(value, visible[column])
        )
        if columns:
            yield Difference(table, key, "changed", columns), change


def _missing(
    reader: Reader, applier: Applier, table: str, seen: set[bytes], wants: RowFilter | None
) -> Iterator[Difference]:
    rules = applier.rules.of(table)
    after: bytes | None = None
    while records := reader.rows_of(table, after, _PAGE):
        after = records[-1].id
        for record in records:
            if not record.is_live or record.problem or record.id in seen:
                continue
            visible = record.state.visible(rules) or {}
            if wants is None or wants({**record.key, **visible}):
                yield Difference(table, record.key, "missing")


def _are_equal(one: Value, other: Value) -> bool:
    """Return True if a value that was read equals the recorded one."""
    if type(one) is Json:
        # Databases write the same document in several ways; older versions recorded scalar
        # documents without their type.
        return same_document(one, other)
    return bool(one == other) or to_json(one) == to_json(other)
