"""Removal of tombstones that no concurrent write can need any more."""

from __future__ import annotations

from typing import Final

from stompkit.replica.history import Base, context_of
from stompkit.replica.store import Reader, Store
from stompkit.replica.vectors import Vector, least, merged, settled

__all__ = ["remove_tombstones", "sweep"]

#: Number of rows that one transaction checks.
_ROWS: Final = 500
#: Number of rows of the base per sweep; the end of the last sweep is stored.
_SWEPT: Final = 10_000
_SWEEP: Final = "compaction.sweep"


def remove_tombstones(store: Store, stable: Vector) -> int:
    """Remove tombstones; returns their number."""
    count = 0
    after: bytes | None = None
    while True:
        with store.transaction() as tx:
            page = tx.tombstones(after, _ROWS)
            if not page:
                return count
            known = _known_to_all(tx, stable)
            gone = [
                record.id
                for record in page
                # What is ahead of the vector must stay distinguishable from changesets still to
                # come.
                if record.page is None and record.state.is_collectable(known)
            ]
            tx.delete_rows(gone)
        count += len(gone)
        after = page[-1].id


def _known_to_all(reader: Reader, stable: Vector) -> dict[str, int]:
    """Return the common past of all changesets that can still arrive.

    That a node has a changeset does not mean that its own changesets were made on top of it: one in
    transit may be older.
    """
    peers = reader.peers()
    origins = reader.origins()
    clocks = {name: origins[name].clock if name in origins else {} for name in peers}
    reached = [(name, peer.vector) for name, peer in peers.items()]
    return least(stable, settled(reader.vector(), clocks, reached))


def sweep(store: Store, stable: Vector) -> None:
    """Remove tombstones from a part of the base."""
    with store.reading() as reader:
        if not reader.base_vector():
            return
        place: str = reader.meta(_SWEEP, "")
    after = bytes.fromhex(place) if place else None
    for _ in range(_SWEPT // _ROWS):
        with store.transaction() as tx:
            page = tx.base_page(after, limit=_ROWS)
            known = _known_to_all_kept(tx, stable)
            gone = [
                record.id
                for record in page
                if not record.is_live and record.state.is_collectable(known)
            ]
            if gone:
                tx.delete_base_rows(gone)
        after = page[-1].id if len(page) == _ROWS else None
        if after is None:
            break
    if (after or b"").hex() != place:
        with store.transaction() as tx:
            tx.set_meta(_SWEEP, (after or b"").hex())


def _known_to_all_kept(reader: Reader, stable: Vector) -> dict[str, int]:
    """Return the common past of all changesets after the base, here or still to arrive."""
    base = Base.load(reader)
    clocks = []
    for origin, last in reader.vector().items():
        begun = base.vector.get(origin, 0)
        if begun < last:
            first = reader.changeset(origin, begun + 1)
            context = {} if first is None or first.body is None else context_of(first)
            clocks.append(merged(base.clocks.get(origin, {}), context))
    return least(_known_to_all(reader, stable), *clocks)
