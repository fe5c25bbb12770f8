"""Output of changesets and their changes, for ``stompkit replica``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stompkit._commands.replica.documents import (
    as_members,
    document_as_json,
    document_text,
    is_document,
)
from stompkit._commands.replica.graph import draw
from stompkit._commands.shared.text import aligned, when
from stompkit._commands.shared.values import shown_key, shown_row, shown_value
from stompkit._common.spelling import amount
from stompkit._common.text import shown
from stompkit.replica.history import Entry, Shown
from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import Value, row_to_json

__all__ = [
    "change_lines",
    "changes_as_json",
    "entry_lines",
    "log_lines",
    "rows_as_json",
    "rows_lines",
]


# Changesets.


def log_lines(entries: Sequence[Entry], *, is_graph: bool = False) -> list[str]:
    """Return a line for each changeset, children before parents, with or without graph lines."""
    rows = [
        (
            entry.short_id,
            entry.name,
            when(entry.time.timestamp()),
            shown(entry.author),
            ("(head) " if entry.is_head else "") + (shown(entry.comment) or summary(entry)),
        )
        for entry in entries
    ]
    lines = aligned(rows) if rows else []
    if not is_graph:
        return lines
    drawn = list(draw((entry.id, entry.parents) for entry in entries))
    width = max((len(each.line) for each in drawn), default=0)
    found = []
    for each, line in zip(drawn, lines, strict=True):
        found.append(f"{each.line.ljust(width)}  {line}")
        if each.below:
            found.append(each.below)
    return found


def summary(entry: Entry) -> str:
    """Return a summary of a changeset without a comment."""
    parts = []
    for table, counts in entry.tables.items():
        done = [
            f"{count} {what}" for what, count in msgspec.structs.asdict(counts).items() if count
        ]
        parts.append(f"{shown(table)}: {', '.join(done)}")
    return "; ".join(parts) or amount(entry.changes, "change")


def entry_lines(entry: Entry) -> list[str]:
    """Return all details of a changeset except its changes."""
    facts = [
        ("changeset", entry.id),
        ("name", entry.name + (" (head)" if entry.is_head else "")),
        ("time", f"{when(entry.time.timestamp())} UTC"),
        ("author", shown(entry.author)),
        ("comment", shown(entry.comment)),
        *(("" if number else "parents", each) for number, each in enumerate(entry.parents)),
        ("came from", entry.via),
        ("size", f"{amount(entry.changes, 'change')}, {amount(entry.size, 'octet')}"),
    ]
    return aligned([(name, value) for name, value in facts if value])


# Changes.


def change_lines(changes: Iterable[RowChange]) -> Iterator[str]:
    """Yield lines with rows and the changes of their columns."""
    for change in changes:
        yield f"{shown(change.name)} {shown_key(change.key)}  {change.action}"
        before, after = (_members(change, side) for side in (change.before, change.after))
        for name in {**before, **after}:
            was, now = (_shown(side, name) for side in (before, after))
            line = f"{was} -> {now}" if change.action == "update" else now if after else was
            yield f"  {shown(name)}: {line}"


def _members(change: RowChange, side: Mapping[str, Value] | None) -> dict[str, Value]:
    """Return the columns beside the key; missing members of documents are omitted."""
    columns = {
        name: value
        for name, value in (side or {}).items()
        if name not in change.key and not (value is None and is_document(change.name))
    }
    return as_members(change.name, columns)


def _shown(side: Mapping[str, Value], name: str) -> str:
    return shown_value(side[name]) if name in side else "(none)"


def changes_as_json(changes: Iterable[RowChange]) -> list[dict[str, Any]]:
    """Return changes as JSON data, with values as in ``values``."""
    return [
        {
            "table": change.name,
            "action": change.action,
            "key": row_to_json(change.key),
            "before": None if change.before is None else row_to_json(change.before),
            "after": None if change.after is None else row_to_json(change.after),
        }
        for change in changes
    ]


# Rows.


def rows_lines(tables: Shown) -> Iterator[str]:
    """Yield a line for each row of the tables."""
    for table, rows in sorted(tables.items()):
        yield f"{shown(table)}: {amount(len(rows), 'row')}"
        for row in rows.values():
            if is_document(table):
                text = document_text(_document(table, row), is_short=True)
                yield f"  id={shown_value(row['id'])}  {text}"
            else:
                yield f"  {shown_row(row)}"


def rows_as_json(tables: Shown) -> dict[str, list[dict[str, Any]]]:
    """Return rows as JSON data, with values as in ``values``."""
    found: dict[str, list[dict[str, Any]]] = {}
    for table, rows in sorted(tables.items()):
        if is_document(table):
            found[table] = [
                {"id": row["id"], "document": document_as_json(_document(table, row))}
                for row in rows.values()
            ]
        else:
            found[table] = [row_to_json(row) for row in rows.values()]
    return found


def _document(table: str, row: Mapping[str, Value]) -> dict[str, Value]:
    columns = {name: value for name, value in row.items() if name != "id" and value is not None}
    return as_members(table, columns)
