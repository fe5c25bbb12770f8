"""A store for tests: rows, offsets and a journal in an SQLite file, in one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.values import Row, row_from_json, row_to_json
from stompkit.replication.sinks import ApplyError

__all__ = ["POISON", "SqliteSink", "applied", "rows"]

#: No change of this table can be applied.
POISON = "poison"
_TABLES = """
CREATE TABLE IF NOT EXISTS offsets (origin TEXT PRIMARY KEY, sequence INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS journal (
    number INTEGER PRIMARY KEY AUTOINCREMENT, origin TEXT, sequence INTEGER
);
CREATE TABLE IF NOT EXISTS contents (
    name TEXT, key TEXT, contents TEXT, PRIMARY KEY (name, key)
);
"""
_PATIENCE_S = 30.0


class SqliteSink:
    """Applies changesets; the journal, unlike the rows, shows repeated changesets."""

    def __init__(self, path: Path) -> None:
        """Open the file, and create it if needed."""
        self._connection = sqlite3.connect(
            path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False
        )
        self._connection.executescript(_TABLES)
        #: Errors that the next calls of ``apply`` raise.
        self.failures: list[Exception] = []
        #: Number of changesets in each transaction.
        self.batches: list[int] = []

    def last(self, origin: str) -> int | None:
        """See Sink."""
        query = "SELECT sequence FROM offsets WHERE origin = ?"
        found = self._connection.execute(query, (origin,)).fetchone()
        return None if found is None else int(found[0])

    def apply(self, changesets: Sequence[Changeset]) -> None:
        """See Sink."""
        if self.failures:
            raise self.failures.pop(0)
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for changeset in changesets:
                self._apply(changeset)
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
        self.batches.append(len(changesets))

    def skip(self, changeset: Changeset) -> None:
        """See Sink."""
        self._note(changeset)

    def close(self) -> None:
        """See Sink."""
        self._connection.close()

    def _apply(self, changeset: Changeset) -> None:
        last = self.last(changeset.origin)
        if last is not None and changeset.sequence <= last:
            return
        for change in changeset.changes:
            if change.table == POISON:
                raise ApplyError(f"the table {POISON}\nis refused: it's a test")
            self._change(change)
        query = "INSERT INTO journal (origin, sequence) VALUES (?, ?)"
        self._connection.execute(query, (changeset.origin, changeset.sequence))
        self._note(changeset)

    def _change(self, change: RowChange) -> None:
        if change.action == "truncate":
            self._connection.execute("DELETE FROM contents WHERE name = ?", (change.name,))
            return
        before = self._contents(change) if change.action == "update" else {}
        if change.old_key is not None:
            self._delete(change.name, change.old_key)
        if change.action == "delete":
            self._delete(change.name, change.key)
            return
        contents = json.dumps({**before, **row_to_json(change.after or {})})
        row = (change.name, _text(change.key), contents)
        self._connection.execute("INSERT OR REPLACE INTO contents VALUES (?, ?, ?)", row)

    def _contents(self, change: RowChange) -> dict[str, object]:
        """Return the stored contents of a row that is updated."""
        key = change.key if change.old_key is None else change.old_key
        query = "SELECT contents FROM contents WHERE name = ? AND key = ?"
        found = self._connection.execute(query, (change.name, _text(key))).fetchone()
        contents: dict[str, object] = json.loads(found[0]) if found else {}
        return contents

    def _delete(self, name: str, key: Row) -> None:
        query = "DELETE FROM contents WHERE name = ? AND key = ?"
        self._connection.execute(query, (name, _text(key)))

    def _note(self, changeset: Changeset) -> None:
        row = (changeset.origin, changeset.sequence)
        self._connection.execute("INSERT OR REPLACE INTO offsets VALUES (?, ?)", row)


def _text(key: Row) -> str:
    return json.dumps(row_to_json(key), sort_keys=True)


# Reading the file from outside.


def applied(path: Path, origin: str = "o") -> list[int]:
    """Return the numbers of an origin's changesets in the order of application."""
    query = "SELECT sequence FROM journal WHERE origin = ? ORDER BY number"
    with sqlite3.connect(path, timeout=_PATIENCE_S) as connection:
        return [number for (number,) in connection.execute(query, (origin,))]


def rows(path: Path, name: str = "t") -> list[tuple[Row, Row]]:
    """Return the keys and the contents of a table's rows, ordered by the keys' texts."""
    query = "SELECT key, contents FROM contents WHERE name = ? ORDER BY key"
    with sqlite3.connect(path, timeout=_PATIENCE_S) as connection:
        found = connection.execute(query, (name,)).fetchall()
    return [(row_from_json(json.loads(key)), row_from_json(json.loads(row))) for key, row in found]
