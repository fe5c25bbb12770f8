"""Replay of changesets in causal order, from the start of history.

The start is the **base**: rows merged from exactly the changesets of a vector. The store has the
later changesets. The base is empty before the first compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from stompkit.replica.history._entries import RevisionError
from stompkit.replica.rows import RowState, Stamp
from stompkit.replica.rules import Rules
from stompkit.replica.store import ChangesetRecord, Reader, Tx, row_id
from stompkit.replica.vectors import Dot, Vector, covers, dot_text
from stompkit.replication.model.events import Changeset, RowChange, decode
from stompkit.replication.model.values import Value

__all__ = ["Base", "Row", "Rows", "Steps", "clock_of_next", "context_of", "skipped_in", "whole"]

#: Batch limits for reading the store: changesets, bytes of their bodies, and rows.
_STEP: Final = 500
_STEP_OCTETS: Final = 8 * 1024 * 1024
_ROWS: Final = 1000
#: Key of the base's metadata in the store, beside its vector and its rows.
_META: Final = "history.base"


@dataclass(frozen=True, slots=True)
class Base:
    """The start of history."""

    vector: dict[str, int] = field(default_factory=dict)
    #: Full vector of the last changeset in the base, by origin.
    clocks: dict[str, dict[str, int]] = field(default_factory=dict)
    #: Greatest hybrid timestamp of a changeset in the base.
    hlc: int = 0

    @classmethod
    def load(cls, reader: Reader) -> Base:
        """Load the base."""
        found = reader.meta(_META) or {"clocks": {}, "hlc": 0}
        return cls(reader.base_vector(), found["clocks"], found["hlc"])

    def save(self, tx: Tx) -> None:
        """Store the base."""
        tx.set_base_vector(self.vector)
        tx.set_meta(_META, {"clocks": self.clocks, "hlc": self.hlc})


# Changesets.


class _Revision(msgspec.Struct):
    context: dict[str, int] = {}


class _Body(msgspec.Struct):
    """The parts of a body that its clock needs."""

    revision: _Revision


_DECODER: Final = msgspec.json.Decoder(_Body)


def context_of(record: ChangesetRecord) -> dict[str, int]:
    """Return the numbers of other origins that were new to the writer since its last changeset."""
    assert record.body is not None
    return _DECODER.decode(record.body).revision.context


def clock_of_next(clocks: dict[str, dict[str, int]], record: ChangesetRecord) -> dict[str, int]:
    """Return and note the full vector of a changeset, from that of its origin's previous one."""
    clock = dict(clocks.get(record.origin, ()))
    for origin, sequence in context_of(record).items():
        if clock.get(origin, 0) < sequence:
            clock[origin] = sequence
    clock[record.origin] = record.sequence
    clocks[record.origin] = clock
    return clock


class Steps:
    """Changesets after the base with their full vectors, in causal order."""

    def __init__(self, reader: Reader) -> None:
        """Load the base."""
        self._reader = reader
        self.base: Final = Base.load(reader)

    def upto(self, vector: Vector) -> Iterator[tuple[ChangesetRecord, dict[str, int]]]:
        """Yield those in a vector; raises :class:`RevisionError` if some are not kept."""
        clocks = dict(self.base.clocks)
        following = {origin: self.base.vector.get(origin, 0) + 1 for origin in vector}
        while ranges := {
            origin: (following[origin], last)
            for origin, last in vector.items()
            if following[origin] <= last
        }:
            records = self._reader.ranges(ranges, limit=_STEP, max_bytes=_STEP_OCTETS)
            if not records:
                raise _gap(next((name, first) for name, (first, _) in ranges.items()))
            for record in records:
                number = following[record.origin]
                if record.sequence != number or record.body is None:
                    raise _gap((record.origin, number))
                following[record.origin] = number + 1
                yield record, clock_of_next(clocks, record)

    def clock_of(self, dot: Dot) -> dict[str, int]:
        """Return the full vector of a changeset: its past and itself.

        Raises :class:`RevisionError` if it is in the base or not kept.
        """
        origin, sequence = dot
        if covers(self.base.vector, dot):
            raise _compacted(dot)
        return [clock for _, clock in self.upto({origin: sequence})][-1]

    def check(self, vector: Vector, name: str) -> None:
        """Raise :class:`RevisionError` if the base exceeds a vector."""
        for origin, sequence in self.base.vector.items():
            if vector.get(origin, 0) < sequence:
                raise RevisionError(
                    f"{name} was made without {dot_text((origin, sequence))}, which is compacted by"
                    f" now together with what came before it: what was seen at {name} cannot be"
                    f" told any more. What it has changed can: get({name!r})"
                )


def whole(record: ChangesetRecord) -> Changeset:
    """Return the changeset with its id; raises :class:`RevisionError` without a kept body."""
    if record.body is None:
        raise RevisionError(
            f"what {dot_text((record.origin, record.sequence))} has changed is not kept any more"
        )
    return msgspec.structs.replace(decode(record.body), id=record.id)


def _compacted(dot: Dot) -> RevisionError:
    return RevisionError(
        f"{dot_text(dot)} is compacted: history begins after it. log() has what can be asked for;"
        " a longer retention keeps more in the future"
    )


def _gap(dot: Dot) -> RevisionError:
    return RevisionError(
        f"history is not whole: {dot_text(dot)} is not kept here. It starts over with the next"
        " compaction"
    )


def skipped_in(reader: Reader) -> frozenset[Dot]:
    """Return the changesets that were skipped on request, and so have no effect here."""
    return frozenset((origin, sequence) for origin, sequence, _ in reader.meta("skipped") or [])


# Rows.


@dataclass(slots=True)
class Row:
    """A row during replay."""

    table: str
    key: dict[str, Value]
    state: RowState


class Rows:
    """Rows during replay: all of some tables, or some by id."""

    def __init__(
        self,
        rules: Rules,
        *,
        ids: Collection[bytes] | None = None,
        wants: Callable[[str], bool] = lambda table: True,
    ) -> None:
        """Start empty."""
        self._rules = rules
        self._ids = ids
        self._wants = wants
        self._skipped: frozenset[Dot] = frozenset()
        self.found: Final[dict[bytes, Row]] = {}

    @classmethod
    def of(cls, reader: Reader, rules: Rules, records: Iterable[ChangesetRecord]) -> Rows:
        """Return the rows of the base that changesets have changed."""
        bodies = [record.body for record in records if record.body is not None]
        changes = [change for body in bodies for change in decode(body).changes]
        rows = cls(rules, ids={row_id(change.name, change.key) for change in changes})
        rows.begin(reader)
        return rows

    def begin(self, reader: Reader) -> None:
        """Load the rows of the base."""
        self._skipped = skipped_in(reader)
        if self._ids is not None:
            for id, record in reader.base_rows(self._ids).items():
                self.found[id] = Row(record.table, record.key, record.state)
            return
        after = None
        while page := reader.base_page(after, limit=_ROWS):
            for record in page:
                if self._wants(record.table):
                    self.found[record.id] = Row(record.table, record.key, record.state)
            after = page[-1].id

    def apply(self, record: ChangesetRecord, clock: Vector) -> None:
        """Apply a changeset to the rows, after all changesets in its ``clock``."""
        assert record.body is not None
        stamp = Stamp(record.hlc, record.origin, record.sequence)
        if (record.origin, record.sequence) in self._skipped:
            return
        for change in decode(record.body).changes:
            if self._wants(change.name):
                self._change(change, stamp, clock)

    def _change(self, change: RowChange, stamp: Stamp, clock: Vector) -> None:
        id = row_id(change.name, change.key)
        if self._ids is not None and id not in self._ids:
            return
        row = self.found.get(id)
        if row is None:
            row = self.found[id] = Row(change.name, change.key, RowState())
        try:
            row.state.apply(change, stamp, clock, self._rules.of(change.name))
        except ValueError:
            # Changes of a table that is not replicated here were never validated; nodes that have
            # the table hold such a changeset.
            return

    def all(self) -> Iterator[tuple[str, dict[str, Value], dict[str, Value] | None]]:
        """Yield table, key and other columns of each row."""
        for id, row in self.found.items():
            yield row.table, row.key, self.visible(id)

    def visible(self, id: bytes) -> dict[str, Value] | None:
        """Return a row's columns beside its key; ``None`` if it does not exist."""
        row = self.found.get(id)
        return None if row is None else row.state.visible(self._rules.of(row.table))
