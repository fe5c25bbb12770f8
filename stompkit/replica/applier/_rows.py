"""Working set of rows of a transaction: loaded once, changed in memory, written at the end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from stompkit.replica.data import Data, Wanted
from stompkit.replica.rows import Conflict, RowState, Stamp
from stompkit.replica.rules import Rules
from stompkit.replica.store import RowRecord, Tx, row_id
from stompkit.replica.vectors import covers, merged
from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import Value, row_to_json

__all__ = ["LACKING", "WorkingRows", "digest_of"]

#: Key in the store of the columns that the tables lack: their values are kept.
LACKING: Final = "lacking"

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
#: Maximum number of refused rows that each transaction retries.
_MOST_RETRIED: Final = 100


def digest_of(id: bytes, visible: Mapping[str, Value] | None) -> int:
    """Return a 128-bit digest of a visible row; 0 if it does not exist."""
    if visible is None:
        return 0
    octets = id + _ENCODER.encode(row_to_json(visible))
    return int.from_bytes(hashlib.blake2b(octets, digest_size=16).digest())


@dataclass(slots=True)
class _Row:
    """A row with its state when it was loaded."""

    id: bytes
    table: str
    key: dict[str, Value]
    state: RowState
    page: int | None
    problem: str
    #: Digest of the row when it was loaded.
    digest: int
    conflicts: frozenset[tuple[str, Stamp]]
    is_changed: bool = False
    visible: dict[str, Value] | None = None


class WorkingRows:
    """The rows that one transaction works on."""

    def __init__(self, tx: Tx, rules: Rules) -> None:
        """Start empty."""
        self._tx = tx
        self._rules = rules
        self._rows: dict[bytes, _Row] = {}
        self._pages = tx.page_vectors()
        self._page_numbers = {_form(vector): page for page, vector in self._pages.items()}
        #: New conflicts; complete after :meth:`store`.
        self.conflicts: list[tuple[str, dict[str, Value], Conflict]] = []

    def load(self, changes: Iterable[RowChange]) -> None:
        """Load the rows of the changes in one query."""
        wanted = {row_id(each.name, each.key): each for each in changes}
        wanted |= {
            row_id(each.name, each.old_key): each
            for each in wanted.values()
            if each.old_key is not None
        }
        missing = [id for id in wanted if id not in self._rows]
        for record in self._tx.rows(missing).values():
            self._take(record)

    def _take(self, record: RowRecord) -> _Row:
        rules = self._rules.of(record.table)
        known: frozenset[tuple[str, Stamp]] = frozenset()
        if record.conflicts:
            known = _stamps(record.state.conflicts(rules))
        row = _Row(
            record.id,
            record.table,
            record.key,
            record.state,
            record.page,
            record.problem,
            record.digest,
            known,
        )
        self._rows[record.id] = row
        return row

    def _find(self, change: RowChange) -> _Row:
        id = row_id(change.name, change.key)
        row = self._rows.get(id)
        if row is None:
            row = _Row(id, change.name, change.key, RowState(), None, "", 0, frozenset())
            self._rows[id] = row
        return row

    def visible(self, change: RowChange) -> dict[str, Value] | None:
        """Return the currently visible row of a change."""
        return self._find(change).state.visible(self._rules.of(change.name))

    def apply(self, change: RowChange, stamp: Stamp, clock: Mapping[str, int]) -> None:
        """Apply a change to a row, unless the row came from a snapshot that includes it."""
        row = self._find(change)
        if row.page is not None and covers(
            self._pages.get(row.page, {}), (stamp.origin, stamp.sequence)
        ):
            return
        row.state.apply(change, stamp, clock, self._rules.of(change.name))
        row.is_changed = True

    def join(
        self,
        id: bytes,
        state: RowState,
        own: Mapping[str, int],
        others: Mapping[str, int],
    ) -> None:
        """Merge a loaded row with its state on a node that has the vector ``others``."""
        row = self._rows[id]
        known: Mapping[str, int] = {}
        if row.page is not None:
            # The row came with a snapshot page, so it includes that page's vector.
            known = self._pages.get(row.page, {})
        row.state.join(merged(own, known), state, others)
        row.page = self._page_of(merged(known, others))
        row.is_changed = True

    def _page_of(self, vector: Mapping[str, int]) -> int:
        """Return the number of the page with this vector."""
        form = _form(vector)
        page = self._page_numbers.get(form)
        if page is None:
            page = self._page_numbers[form] = max(self._pages, default=0) + 1
            self._pages[page] = dict(vector)
            self._tx.put_page(page, vector)
        return page

    def join_record(
        self, record: RowRecord, own: Mapping[str, int], others: Mapping[str, int]
    ) -> None:
        """Merge a row that may be new here."""
        if record.id not in self._rows:
            self._rows[record.id] = _Row(
                record.id, record.table, record.key, RowState(), None, "", 0, frozenset()
            )
        self.join(record.id, record.state, own, others)

    def rename(
        self,
        origin: str,
        above: int,
        new: str,
        less: int,
        done: Iterable[tuple[RowChange, Stamp, Mapping[str, int]]],
    ) -> None:
        """Attribute changes of an origin after number ``above`` to ``new``, with reduced numbers.

        ``done`` has those changes, with their stamps and clocks.
        """
        changes: dict[bytes, list[tuple[RowChange, Stamp, Mapping[str, int]]]] = {}
        for each in done:
            changes.setdefault(row_id(each[0].name, each[0].key), []).append(each)
        for row in self._rows.values():
            rules = self._rules.of(row.table)
            row.state.renamed(origin, above, new, changes.get(row.id, []), rules, less=less)
            row.is_changed = True

    def take(self, record: RowRecord) -> None:
        """Add a row that was read already, and write it to the tables again."""
        row = self._rows.get(record.id) or self._take(record)
        row.is_changed = True

    def materialise(self, data: Data) -> dict[bytes, str]:
        """Write the merged rows to the tables; returns the reasons for rows that they refuse."""
        retried = []
        for record in self._tx.with_problems(limit=_MOST_RETRIED):
            if record.id not in self._rows:
                retried.append(self._take(record))
            elif not self._rows[record.id].is_changed:
                retried.append(self._rows[record.id])
        changed = [row for row in self._rows.values() if row.is_changed]
        problems = self._write(data, changed)
        if retried:
            # Retried rows are written separately, so that new refusals do not slow down the others.
            for row in retried:
                row.is_changed = True
            problems |= self._write(data, [*retried, *(r for r in changed if r.problem)])
        note_lacking(self._tx, data)
        return problems

    def _write(self, data: Data, rows: Iterable[_Row]) -> dict[bytes, str]:
        wanted = []
        for row in rows:
            row.problem = ""
            row.visible = row.state.visible(self._rules.of(row.table))
            if row.table in data.names:
                wanted.append(Wanted(row.id, row.table, row.key, row.visible))
        problems = data.write(self._tx.connection, wanted) if wanted else {}
        for id, problem in problems.items():
            self._rows[id].problem = problem
        return problems

    def place(self, id: bytes) -> str:
        """Return the name of a row for messages."""
        row = self._rows[id]
        return f"{row.table} {row.key}"

    def store(self) -> None:
        """Store the state of the changed rows."""
        records = []
        for row in self._rows.values():
            if not row.is_changed:
                continue
            rules = self._rules.of(row.table)
            row.visible = row.state.visible(rules)
            conflicts = row.state.conflicts(rules)
            failed = next((each.problem for each in conflicts if each.problem), "")
            self.conflicts += [
                (row.table, row.key, each)
                for each in conflicts
                if not _stamps([each]) <= row.conflicts
            ]
            records.append(
                RowRecord(
                    id=row.id,
                    table=row.table,
                    key=row.key,
                    state=row.state,
                    is_live=row.visible is not None,
                    conflicts=len(conflicts),
                    digest=digest_of(row.id, row.visible),
                    page=row.page,
                    problem=row.problem or failed,
                )
            )
        if records:
            self._tx.put_rows(records)


def note_lacking(tx: Tx, data: Data) -> None:
    """Store the names of received columns that the tables lack."""
    known: dict[str, list[str]] = tx.meta(LACKING) or {}
    found = {
        table: sorted({*known.get(table, ()), *names}) for table, names in data.unknown.items()
    }
    if any(found[table] != known.get(table) for table in found):
        tx.set_meta(LACKING, {**known, **found})


def _form(vector: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(vector.items()))


def _stamps(conflicts: Iterable[Conflict]) -> frozenset[tuple[str, Stamp]]:
    return frozenset(
        (conflict.column, each.stamp)
        for conflict in conflicts
        for each in (conflict.winner, *conflict.losers)
    )
