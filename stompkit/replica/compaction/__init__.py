"""Compaction: old changesets are merged into the base rows where history begins.

Changesets are removed from the oldest on, and none before its predecessors. A changeset can be
removed if it is beyond the :class:`Retention` and every known node has it. Without ``keep_unseen``,
it is removed even if a node lacks it; that node then has to take a snapshot. A tombstone is removed
as soon as no node can have written the row without knowing of the deletion.

The work is done in many short transactions. It can be interrupted at any time, and continues at the
next call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from stompkit.replica.compaction._retention import AHEAD_S, Retention
from stompkit.replica.compaction._tombstones import remove_tombstones, sweep
from stompkit.replica.history import Base, Rows, clock_of_next, context_of
from stompkit.replica.rules import Rules
from stompkit.replica.store import ChangesetRecord, RowRecord, Store, Tx
from stompkit.replica.vectors import Vector, covers, dominates, least, merged

__all__ = ["Compacted", "Retention", "compact", "rebase"]

#: Limits of one transaction: changesets, their bytes, and rows.
_CHANGESETS: Final = 300
_OCTETS: Final = 4 * 1024 * 1024
_ROWS: Final = 500


class Compacted(NamedTuple):
    """Counts of removed data: changesets, bytes of their bodies, and tombstones."""

    changesets: int = 0
    octets: int = 0
    tombstones: int = 0


def compact(
    store: Store,
    rules: Rules,
    retention: Retention,
    stable: Vector,
    now: float,
    *,
    save_history: bool = True,
) -> Compacted:
    """Remove changesets beyond ``retention``, and tombstones.

    ``stable`` is the vector that all known receiving nodes have reached, this one included; ``now``
    is in seconds since 1970. With ``save_history``, removed changesets are merged into the base
    rows, where history begins. If there is no base yet, it starts with the current rows. Raises
    :class:`~stompkit.replica.store.ReplicaStoreError`; completed transactions stay committed.
    """
    if save_history:
        with store.transaction() as tx:
            is_whole = _is_whole(tx)
    else:
        _drop_base(store)
        is_whole = True
    changesets = octets = 0
    if is_whole and not retention.is_for_ever:
        changesets, octets = _drop(store, rules, retention, stable, now, save_history=save_history)
    tombstones = remove_tombstones(store, stable)
    if save_history:
        sweep(store, stable)
    return Compacted(changesets, octets, tombstones)


# The base of history.


def rebase(tx: Tx) -> None:
    """Start history now, with the current rows.

    It takes time in proportion to the rows. Raises ValueError while a snapshot of another node is
    being merged, because the rows then have different vectors.
    """
    if tx.page_vectors():
        raise ValueError("history cannot begin before all that the snapshot was ahead of has come")
    after = None
    while page := tx.base_page(after, limit=_ROWS):
        tx.delete_base_rows([record.id for record in page])
        after = page[-1].id
    after = None
    while page := tx.row_page(after, limit=_ROWS):
        tx.put_base_rows(page)
        after = page[-1].id
    origins = tx.origins()
    hlc = (tx.meta("tip") or {"hlc": 0})["hlc"]
    Base(tx.vector(), {name: each.clock for name, each in origins.items()}, hlc).save(tx)


def _is_whole(tx: Tx) -> bool:
    """Return True if the base leads up to the first changesets; replaces it if possible.

    It does not after a snapshot of another node, or after a time without saved history.
    """
    base = Base.load(tx)
    if dominates(base.vector, tx.floor()) and dominates(tx.vector(), base.vector):
        return True
    if tx.page_vectors():
        return False
    rebase(tx)
    return True


def _drop_base(store: Store) -> None:
    """Remove the base of history."""
    with store.transaction() as tx:
        if tx.base_vector():
            Base().save(tx)
    while True:
        with store.transaction() as tx:
            page = tx.base_page(limit=_ROWS)
            if not page:
                return
            tx.delete_base_rows([record.id for record in page])


# Changesets.


def _drop(
    store: Store,
    rules: Rules,
    retention: Retention,
    stable: Vector,
    now: float,
    *,
    save_history: bool,
) -> tuple[int, int]:
    """Remove changesets; returns their number and their bytes."""
    changesets = octets = 0
    # Origins whose next changeset has to stay, and with it all later ones.
    blocked: set[str] = set()
    while True:
        with store.transaction() as tx:
            upto = least(tx.vector(), stable) if retention.keep_unseen else tx.vector()
            floor = tx.floor()
            ranges = {
                origin: (floor.get(origin, 0) + 1, last)
                for origin, last in upto.items()
                if origin not in blocked and floor.get(origin, 0) < last
            }
            if not ranges:
                return changesets, octets
            records = tx.ranges(ranges, limit=_CHANGESETS, max_bytes=_OCTETS)
            if not records:
                return changesets, octets
            gone = _foldable(tx, records, retention, floor, now, blocked)
            if not gone:
                continue
            if save_history:
                _fold(tx, rules, gone, now)
            tx.drop_changesets({record.origin: record.sequence for record in gone})
        changesets += len(gone)
        octets += sum(record.size for record in gone)


def _foldable(
    tx: Tx,
    records: Iterable[ChangesetRecord],
    retention: Retention,
    floor: dict[str, int],
    now: float,
    blocked: set[str],
) -> list[ChangesetRecord]:
    """Return the changesets that can go together; adds origins that must stop to ``blocked``."""
    last = tx.last_position()
    gone = []
    for record in records:
        origin = record.origin
        if origin in blocked:
            continue
        if (
            record.sequence == floor.get(origin, 0) + 1
            and retention.is_beyond(record, last, now)
            and dominates(floor, context_of(record))
        ):
            floor[origin] = record.sequence
            gone.append(record)
        else:
            blocked.add(origin)
    return gone


def _fold(tx: Tx, rules: Rules, records: Iterable[ChangesetRecord], now: float) -> None:
    """Apply changesets to the rows of the base, unless it includes them already."""
    base = Base.load(tx)
    latest = int((now + AHEAD_S) * 1_000_000)
    fresh = [each for each in records if not covers(base.vector, (each.origin, each.sequence))]
    if not fresh:
        return
    rows = Rows.of(tx, rules, fresh)
    clocks, hlc = dict(base.clocks), base.hlc
    for record in fresh:
        rows.apply(record, clock_of_next(clocks, record))
        if record.hlc <= latest:
            hlc = max(hlc, record.hlc)
    tx.put_base_rows(
        [
            RowRecord(
                id=id,
                table=row.table,
                key=row.key,
                state=row.state,
                is_live=rows.visible(id) is not None,
            )
            for id, row in rows.found.items()
        ]
    )
    vector = merged(base.vector, {record.origin: record.sequence for record in fresh})
    Base(vector, clocks, hlc).save(tx)
