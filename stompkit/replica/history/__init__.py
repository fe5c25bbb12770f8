"""History: changes by author and time, and past states of rows.

Nodes with the same changesets have the same history, except for the order of arrival. A revision is
a changeset, and its state is what its writer saw: rows merged from exactly the changesets in its
past. To compute it, changesets are applied again from the start of history: the first changeset, or
the base left by :mod:`~stompkit.replica.compaction`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from stompkit._common.moved import renamed
from stompkit.replica.data import Data
from stompkit.replica.history._differences import difference, in_order
from stompkit.replica.history._entries import (
    Counts,
    Entry,
    RevisionError,
    RowVersion,
    entry_of,
)
from stompkit.replica.history._graph import Edge, Graph, GraphNode, graph_of
from stompkit.replica.history._names import HEAD, heads_of, resolve
from stompkit.replica.history._replay import (
    Base,
    Rows,
    Steps,
    clock_of_next,
    context_of,
    skipped_in,
    whole,
)
from stompkit.replica.history._versions import versions
from stompkit.replica.history._views import Key, Shown, Views
from stompkit.replica.rules import Rules
from stompkit.replica.store import ChangesetRecord, Reader, Store, row_id
from stompkit.replica.vectors import Dot, dot_text
from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.values import Value

__all__ = [
    "HEAD",
    "Base",
    "Counts",
    "Edge",
    "Entry",
    "Graph",
    "GraphNode",
    "History",
    "Key",
    "RevisionError",
    "RowVersion",
    "Rows",
    "Shown",
    "clock_of_next",
    "context_of",
]

#: Number of changesets or rows per batch.
_PAGE: Final = 500
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class History:
    """Read-only queries of the history in a store.

    Methods with a ``revision`` raise :class:`RevisionError` if it is unknown, ambiguous or
    compacted. All methods raise :class:`~stompkit.replica.store.ReplicaStoreError`.
    """

    def __init__(self, store: Store, rules: Rules, data: Data) -> None:
        """Query a store whose rows are merged by ``rules`` and visible in ``data``."""
        self._store = store
        self._rules = rules
        self._data = data

    # Changesets.

    def log(
        self,
        table: str | None = None,
        key: Mapping[str, Value] | None = None,
        origin: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[Entry]:
        """Return changesets, last applied first.

        They can be filtered by ``table``, by the row with ``key`` in it, and by an origin or
        branch. ``before`` continues after a revision, such as the last one of the previous call.
        Raises ValueError for a key without a table.
        """
        if key is not None and table is None:
            raise ValueError("a key is one of a table: say which")
        with self._store.reading() as reader:
            last = reader.last_position()
            if before is not None and before != HEAD:
                last = resolve(reader, before).position - 1
            # Without a filter, no more than the requested number are read.
            most = limit if before is None and origin is None else None
            if key is not None:
                records = iter(reader.touching(row_id(table or "", key), most))
            else:
                records = _backwards(reader, last, _PAGE if table or origin else limit)
            origins = reader.origins()
            heads = _heads(origins)
            found: list[Entry] = []
            for record in records:
                if len(found) >= limit:
                    break
                if record.position > last or not _is_of(record.origin, origin):
                    continue
                entry = entry_of(record, is_head=(record.origin, record.sequence) in heads)
                if table is None or table in entry.tables:
                    found.append(entry)
            return found

    def get(self, revision: str) -> Changeset:
        """Return a complete changeset."""
        with self._store.reading() as reader:
            return whole(resolve(reader, revision))

    def entry(self, revision: str) -> Entry:
        """Return the entry of a changeset, as in :meth:`log`."""
        with self._store.reading() as reader:
            record = resolve(reader, revision)
            dot = record.origin, record.sequence
            return entry_of(record, is_head=dot in _heads(reader.origins()))

    def graph(self, limit: int = 50) -> Graph:
        """Return the last applied changesets with their parents."""
        with self._store.reading() as reader:
            records = reader.changesets(limit=limit + 1, descending=True)
            heads = _heads(reader.origins())
            entries = [
                entry_of(record, is_head=(record.origin, record.sequence) in heads)
                for record in records[:limit]
            ]
            is_cut = len(records) > limit or bool(reader.floor())
            return graph_of(entries, self._in_conflict(reader), is_cut=is_cut)

    def _in_conflict(self, reader: Reader) -> Counter[Dot]:
        """Return the number of current conflicts in which each changeset has won or lost."""
        found: Counter[Dot] = Counter()
        after = None
        while page := reader.with_conflicts(after=after, limit=_PAGE):
            for record in page:
                for conflict in record.state.conflicts(self._rules.of(record.table)):
                    stamps = {each.stamp for each in (conflict.winner, *conflict.losers)}
                    found.update((stamp.origin, stamp.sequence) for stamp in stamps)
            after = page[-1].id
        return found

    # Rows.

    def at(self, revision: str, tables: Iterable[str] | None = None) -> Shown:
        """Return all rows, or those of ``tables``, as the writer of a revision saw them.

        ``head`` is the current state of this replica. Empty tables are omitted, and so are by
        default those that are not replicated here. Raises ValueError for an unknown table.
        """
        with self._views(tables) as (reader, steps, views):
            if revision.strip() == HEAD:
                return views.now()
            return views.at(_vector(reader, steps, revision))

    def at_time(self, moment: datetime, tables: Iterable[str] | None = None) -> Shown:
        """Return all rows as written anywhere up to a time, as far as known here.

        Times are those of the writers' hybrid clocks, and a changeset is included only with its
        causal predecessors. Raises :class:`RevisionError` for a time without a time zone, and for
        one before history begins.
        """
        if moment.tzinfo is None:
            raise RevisionError(f"say in which zone {moment.isoformat(' ')} is, as in +00:00")
        hlc = (moment - _EPOCH) // timedelta(microseconds=1)
        with self._views(tables) as (_, steps, views):
            if steps.base.vector and hlc < steps.base.hlc:
                begin = _EPOCH + timedelta(microseconds=steps.base.hlc)
                raise RevisionError(
                    f"history begins at {begin.isoformat(' ', 'seconds')}: what was before is"
                    " compacted"
                )
            return views.at_time(hlc)

    def diff(self, a: str, b: str, tables: Iterable[str] | None = None) -> list[RowChange]:
        """Return the changes that turn the state at ``a`` into the state at ``b``.

        They are sorted by table and key; an update has the columns that differ.
        """
        with self._views(tables) as (reader, steps, views):
            vectors = [_vector(reader, steps, name) for name in (a, b)]
            changed, positions = views.changed_between(*vectors)
            before, after = (
                views.some_now(changed)
                if name.strip() == HEAD
                else views.some_at(vector, changed, positions)
                for name, vector in zip((a, b), vectors, strict=True)
            )
        found = (difference(each, before.get(id), after.get(id)) for id, each in changed.items())
        return in_order(each for each in found if each is not None)

    def row(
        self, table: str, key: Mapping[str, Value], limit: int | None = None
    ) -> list[RowVersion]:
        """Return the versions of a row: author, changes, and the row as the writer saw it.

        The last applied one comes first. A row that was never changed has none, and changes from
        before history was saved are missing.
        """
        id = row_id(table, key)
        with self._store.reading() as reader:
            heads = _heads(reader.origins())
            records = reader.touching(id)[::-1]
            found = [
                RowVersion(
                    entry=entry_of(
                        each.record, is_head=(each.record.origin, each.record.sequence) in heads
                    ),
                    changes=tuple(
                        change
                        for change in each.changeset.changes
                        if row_id(change.name, change.key) == id
                    ),
                    row=each.row,
                    is_known=each.is_known,
                )
                for each in versions(
                    Steps(reader),
                    records,
                    id,
                    reader.base_rows([id]).get(id),
                    self._rules.of(table),
                    skipped_in(reader),
                )
            ]
        return found[::-1][:limit]

    @contextmanager
    def _views(self, tables: Iterable[str] | None) -> Iterator[tuple[Reader, Steps, Views]]:
        with self._store.reading() as reader:
            steps = Steps(reader)
            yield reader, steps, Views(reader, steps, self._rules, self._wanted(reader, tables))

    def _wanted(self, reader: Reader, tables: Iterable[str] | None) -> Callable[[str], bool]:
        """Return a predicate for the requested tables."""
        names = self._data.names
        if tables is None:
            return lambda table: table in names
        wanted = frozenset([tables] if isinstance(tables, str) else tables)
        known = reader.tables()
        for name in sorted(wanted):
            if name not in known and name not in names:
                there = ", ".join(known) or "none"
                raise ValueError(f"no table {name!r} is known here; there are {there}")
        return wanted.__contains__


def _vector(reader: Reader, steps: Steps, revision: str) -> dict[str, int]:
    """Return the vector of a revision: its past and itself."""
    if revision.strip() == HEAD:
        return reader.vector()
    record = resolve(reader, revision)
    vector = steps.clock_of((record.origin, record.sequence))
    steps.check(vector, dot_text((record.origin, record.sequence)))
    return vector


def _backwards(reader: Reader, last: int, size: int) -> Iterator[ChangesetRecord]:
    """Yield changesets up to a position, last first; reads ``size`` of them at a time."""
    while page := reader.changesets(upto=last, limit=size, descending=True):
        yield from page
        last = page[-1].position - 1


def _heads(origins: Mapping[str, Any]) -> set[Dot]:
    return {(name, origins[name].sequence) for name in heads_of(origins)}


def _is_of(origin: str, wanted: str | None) -> bool:
    """Return True if an origin is the wanted one, or of the wanted branch."""
    return wanted is None or origin == wanted or origin.partition("~")[0] == wanted


renamed(
    __name__,
    RevisionProblem="RevisionError",
)
