"""Publishing of snapshots, with a checkpoint after each chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from stompkit._common.graph import parents_first, references_of
from stompkit.replication.sources.postgres._catalogue import (
    CatalogueTable,
    read_references,
    read_tables,
)
from stompkit.replication.sources.postgres._connections import Connection, format_lsn
from stompkit.replication.sources.postgres._published import PublishedTable
from stompkit.replication.sources.postgres._shapes import stored
from stompkit.replication.sources.postgres._slot import OffsetLostError
from stompkit.replication.sources.postgres._snapshot import (
    PublishedRows,
    chunks,
    open_snapshot,
    published_rows,
)
from stompkit.replication.sources.publication import Publication

__all__ = ["Copier", "Progress", "is_unfinished", "to_copy"]

#: Function called with a table, its number of published rows, and its estimated total.
Progress = Callable[[str, int, int], None]

#: Number of chunks after which all must be confirmed.
_UNCONFIRMED: Final = 16
_ANY_ROWS: Final = PublishedRows(None, None)


def is_unfinished(state: dict[str, Any]) -> bool:
    """Return True if a publication's state is one of an incomplete snapshot."""
    return bool(state.get("snapshot"))


def to_copy(state: dict[str, Any]) -> list[str]:
    """Return the full names of the tables whose rows have to be published again."""
    return list(state.get("copy", ()))


class Copier:
    """Publishes the existing rows.

    The progress is in the publication's state, as ``snapshot``: the tables that are ``done``, and
    for the current one its name, the key of its last row and its number of rows.
    """

    def __init__(
        self,
        publication: Publication,
        *,
        publication_name: str | None,
        chunk_rows: int,
        announce: bool,
        look: Callable[[], None],
        on_progress: Progress | None,
    ) -> None:
        """Copy the tables of the server's publication; ``None`` for all selected tables.

        With ``announce``, the columns of each table are published before its rows. ``look`` is
        called between chunks, and raises an exception to end the copy.
        """
        self._publication = publication
        self._publication_name = publication_name
        self._chunk_rows = chunk_rows
        self._announce = announce
        self._look = look
        self._on_progress = on_progress
        self._chunks = 0
        # Numbers after the checkpoint may have been used for other rows.
        self._has_used_numbers = is_unfinished(publication.state) or bool(
            to_copy(publication.state)
        )

    def run(self, connection: Connection, exported: str) -> None:
        """Start or continue with the snapshot of that name; the current state if it is empty.

        Raises :class:`psycopg.Error`, and errors of publishing.
        """
        publication = self._publication
        position = publication.position
        self.pass_used_numbers()
        open_snapshot(connection, exported)
        state = {"tables": {}, **publication.state}
        if is_unfinished(state) and not exported:
            self._refuse_keyless(connection, state["snapshot"]["done"])
        if not is_unfinished(state):
            state["snapshot"] = {"done": []}
            publication.advance(position, state)
            publication.flush()
        for table, rows in self._tables(connection):
            if table.full_name in state["snapshot"]["done"]:
                continue
            state = self._copy(connection, table, rows, state)
        connection.execute(b"COMMIT")
        publication.end_snapshot(position, {**state, "snapshot": {}})
        # Only later chunks have numbers that are the same after a crash.
        publication.flush()

    def copy_again(self, connection: Connection, exported: str, lsn: int) -> None:
        """Publish the rows of the tables in :func:`to_copy` again, as of a log position.

        Each is emptied first, together with its first chunk. ``exported`` is the snapshot at
        ``lsn``: earlier commits are not published once more. An interrupted copy starts again.
        Raises :class:`psycopg.Error`, and errors of publishing.
        """
        publication = self._publication
        position = publication.position
        self.pass_used_numbers()
        # The following changesets may differ after a crash.
        self._has_used_numbers = True
        open_snapshot(connection, exported)
        state = publication.state
        wanted = to_copy(state)
        found = {table.full_name: (table, rows) for table, rows in self._tables(connection)}
        copied = dict(state.get("copied", {}))
        for name in wanted:
            if name in found:
                state = self._copy_again(connection, *found[name], state)
            copied[name] = format_lsn(lsn)
        connection.execute(b"COMMIT")
        publication.end_snapshot(position, {**state, "copy": [], "copied": copied})
        publication.flush()
        self._has_used_numbers = False

    def _copy_again(
        self,
        connection: Connection,
        table: CatalogueTable,
        rows: PublishedRows,
        state: dict[str, Any],
    ) -> dict[str, Any]:
        """Publish a table that is emptied first; return the state after it."""
        publication = self._publication
        published = PublishedTable(rows.relation(table), table)
        before = stored(state.get("shapes", {})).get(table.full_name)
        state = _noted(state, published, table)
        head = [published.truncated(), published.changed(before)]
        done = 0
        for chunk in chunks(
            connection, table, rows, key=published.key, after=[], size=self._chunk_rows
        ):
            self._look()
            found = [published.found(row) for row in chunk.rows]
            if head or found:
                publication.publish(
                    [*head, *found], position=publication.position, is_snapshot=True
                )
            head = []
            done += len(found)
            self._count_chunk(table, done)
        return state

    def _count_chunk(self, table: CatalogueTable, done_rows: int) -> None:
        """Wait for confirmations periodically, and report a table's number of published rows."""
        self._chunks += 1
        if self._chunks % _UNCONFIRMED == 0:
            self._publication.flush()
        if self._on_progress is not None:
            self._on_progress(table.full_name, done_rows, max(table.rows, done_rows))

    def pass_used_numbers(self) -> None:
        """Publish empty changesets for numbers that consumers may have with other chunks."""
        if not self._has_used_numbers:
            return
        publication = self._publication
        for _ in range(_UNCONFIRMED):
            publication.publish([], position=publication.position, is_snapshot=True)
        publication.flush()
        self._has_used_numbers = False

    def _refuse_keyless(self, connection: Connection, done: list[str]) -> None:
        """Refuse to continue with tables without a key, whose rows cannot be matched later."""
        keyless = [
            table.full_name
            for table, rows in self._tables(connection)
            if table.full_name not in done and not PublishedTable(rows.relation(table), table).key
        ]
        if keyless:
            raise OffsetLostError(
                f"the snapshot was interrupted, and {', '.join(keyless)} cannot be taken up again: "
                "without a key, rows that come twice are there twice. Empty the targets, drop the "
                "slot and start over with empty offsets, or leave the table out"
            )

    def _tables(self, connection: Connection) -> list[tuple[CatalogueTable, PublishedRows]]:
        found = read_tables(connection)
        order = parents_first(references_of(found, read_references(connection)))
        tables = [
            table
            for table in map(found.__getitem__, order)
            if self._publication.tables.wants(table.schema, table.name)
        ]
        if self._publication_name is None:
            return [(table, _ANY_ROWS) for table in tables if not table.is_partitioned]
        published = published_rows(connection, self._publication_name)
        return [
            (table, rows) for table in tables if (rows := published.get(table.place)) is not None
        ]

    def _copy(
        self,
        connection: Connection,
        table: CatalogueTable,
        rows: PublishedRows,
        state: dict[str, Any],
    ) -> dict[str, Any]:
        """Publish a table; return the state after it."""
        publication = self._publication
        name = table.full_name
        snapshot = state["snapshot"]
        is_begun = snapshot.get("table") == name
        done_rows = snapshot["rows"] if is_begun and snapshot["after"] else 0
        after = snapshot["after"] if is_begun else []
        published = PublishedTable(rows.relation(table), table)
        state = _noted(state, published, table)
        found = chunks(
            connection, table, rows, key=published.key, after=after, size=self._chunk_rows
        )
        for chunk in found:
            self._look()
            changes = [published.found(row) for row in chunk.rows]
            if self._announce and not done_rows:
                changes.insert(0, published.changed())
            done_rows += len(chunk.rows)
            progress: dict[str, Any] = {"done": snapshot["done"]}
            if chunk.is_last:
                progress["done"] = [*snapshot["done"], name]
            else:
                progress |= {"table": name, "after": chunk.last, "rows": done_rows}
            state = {**state, "snapshot": progress}
            if changes:
                publication.publish(
                    changes, position=publication.position, is_snapshot=True, state=state
                )
            else:
                publication.advance(publication.position, state)
            self._count_chunk(table, done_rows)
        return state


def _noted(
    state: dict[str, Any], published: PublishedTable, table: CatalogueTable
) -> dict[str, Any]:
    """Return a state that includes the published columns of a table."""
    name = table.full_name
    before = stored(state.get("shapes", {})).get(name)
    shape = msgspec.to_builtins(published.shape.after(before))
    return {
        **state,
        "tables": {**state.get("tables", {}), name: published.digest},
        "shapes": {**state.get("shapes", {}), name: shape},
        "types": {**state.get("types", {}), name: table.types},
    }
