"""Versions of a row: the changesets that changed it, and the row as their writers saw it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from stompkit.replica.history._replay import Steps
from stompkit.replica.rows import RowState, Stamp
from stompkit.replica.rules import TableRules
from stompkit.replica.store import ChangesetRecord, RowRecord, row_id
from stompkit.replica.vectors import Dot, Vector, covers, dominates, merged
from stompkit.replication.model.events import Changeset, decode
from stompkit.replication.model.values import Value

__all__ = ["Version", "versions"]


@dataclass(frozen=True, slots=True)
class Version:
    """A changeset that has changed the row, with the row as its writer saw it."""

    record: ChangesetRecord
    changeset: Changeset
    row: dict[str, Value] | None
    is_known: bool


@dataclass(slots=True)
class _View:
    """The row as the writer of an origin saw it; updated changeset by changeset."""

    state: RowState
    #: Changesets of other origins that are not included yet.
    waiting: list[tuple[ChangesetRecord, Changeset, dict[str, int]]]


def versions(
    steps: Steps,
    records: Sequence[ChangesetRecord],
    id: bytes,
    base: RowRecord | None,
    rules: TableRules,
    skipped: Collection[Dot],
) -> Iterator[Version]:
    """Yield the versions that ``records`` have made, in the order of application.

    ``records`` are all changesets that have changed the row, with their bodies, in that order;
    ``base`` is the row in the base, ``skipped`` the changesets without an effect here.
    """
    wanted = {record.position: record for record in records}
    last = merged(*({record.origin: record.sequence} for record in records))
    begun = steps.base.vector
    for record in records:
        if covers(begun, (record.origin, record.sequence)):
            assert record.body is not None
            yield Version(record, decode(record.body), None, is_known=False)
    views: dict[str, _View] = {}
    known: list[tuple[ChangesetRecord, Changeset, dict[str, int]]] = []
    for record, clock in steps.upto(last):
        if record.position not in wanted:
            continue
        assert record.body is not None
        changeset = decode(record.body)
        view = views.get(record.origin)
        if view is None:
            state = RowState() if base is None else RowState.decode(base.encoded())
            view = views[record.origin] = _View(state, list(known))
        this = (record, changeset, clock)
        _learn(view, [*view.waiting, this], clock, id, skipped, rules)
        for other in views.values():
            if other is not view:
                other.waiting.append(this)
        known.append(this)
        is_known = dominates(clock, begun)
        row = view.state.visible(rules) if is_known else None
        yield Version(record, changeset, row, is_known)


def _learn(
    view: _View,
    candidates: Sequence[tuple[ChangesetRecord, Changeset, dict[str, int]]],
    clock: Vector,
    id: bytes,
    skipped: Collection[Dot],
    rules: TableRules,
) -> None:
    """Apply to a view what its writer had by then."""
    view.waiting = []
    for each in candidates:
        record, changeset, its_clock = each
        if not covers(clock, (record.origin, record.sequence)):
            view.waiting.append(each)
            continue
        if (record.origin, record.sequence) in skipped:
            continue
        stamp = Stamp(record.hlc, record.origin, record.sequence)
        for change in changeset.changes:
            if row_id(change.name, change.key) == id:
                view.state.apply(change, stamp, its_clock, rules)
