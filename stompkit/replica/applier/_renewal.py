"""Renewal: a copied store takes a new origin.

A database that was copied while in use, or restored from a backup, reuses sequence numbers that
other nodes know with different contents. Its changesets since then are published again under a new
origin. They keep their times, so that conflict resolution does not change. The node then receives
the changesets that others know under the old numbers. A node that has applied a republished
changeset reverts it, as ``replaces`` in the revision requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, Final

import msgspec

from stompkit.replica.applier._records import record_of
from stompkit.replica.applier._rows import WorkingRows
from stompkit.replica.identity import new_origin
from stompkit.replica.nodes import Node
from stompkit.replica.rows import Stamp
from stompkit.replica.rules import Rules
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.signing import Signer
from stompkit.replica.store import ChangesetRecord, OriginRecord, Tx
from stompkit.replica.vectors import Dot, dot_text
from stompkit.replication.model.events import Changeset, Revision

__all__ = [
    "Renounced",
    "Replaced",
    "Touched",
    "give_up",
    "meant",
    "moved",
    "renew",
    "renounce",
    "renounced",
    "set_moved",
]

_RENOUNCED: Final = "renounced"
_MOVED: Final = "moved"
#: Maximum number of republished changesets to remember.
_MOST_RENOUNCED: Final = 10_000

#: Former origin and sequence of a changeset, and the first 16 digits of its id.
Replaced = tuple[str, int, str]
#: New numbers of republished changesets, by their former numbers and id prefixes.
Renounced = Mapping[str, Mapping[str, Dot]]

#: A function that returns the changed rows of changesets by position.
Touched = Callable[[Iterable[tuple[ChangesetRecord, Changeset]]], dict[int, list[bytes]] | None]


def renew(
    tx: Tx,
    rules: Rules,
    signer: Signer | None,
    node: Node,
    above: int,
    *,
    chance: Random,
    touched: Touched,
) -> Node:
    """Take a new origin; own changesets after number ``above`` become its first ones."""
    made = Node(new_origin(node.branch, chance), node.trunk)
    identity: dict[str, Any] = tx.meta("identity")
    tx.set_meta("identity", {**identity, "origin": made.origin})
    last = tx.origins().get(node.origin)
    if last is None or last.sequence <= above:
        return made
    # All nodes have seen what is no longer kept, so it is no fork.
    above = max(above, last.floor)
    forked = _Forked(tx, last, above + 1, last.sequence)
    forked.move(rules, made.origin, above)
    forked.drop()
    now, last_id = _tell_again(tx, signer, made, forked, touched)
    tx.put_origins(
        [OriginRecord(origin=made.origin, sequence=len(forked.records), clock=now, last_id=last_id)]
    )
    renounce(
        tx,
        [
            ((node.origin, each.sequence, each.id[:16]), (made.origin, each.sequence - above))
            for each in forked.records
        ],
    )
    return made


def renounce(tx: Tx, replaced: Iterable[tuple[Replaced, Dot]]) -> None:
    """Remember changesets that must not be accepted any more, with their new numbers."""
    known = renounced(tx)
    for (origin, sequence, id), successor in replaced:
        # A copy of the author's store may republish another changeset with the same number.
        known.setdefault(dot_text((origin, sequence)), {})[id] = successor
        held = tx.held_of(origin, sequence)
        if held is not None and held.id.startswith(id):
            tx.unhold([(origin, sequence)])
    tx.set_meta(_RENOUNCED, dict(list(known.items())[-_MOST_RENOUNCED:]))


def renounced(tx: Tx) -> dict[str, dict[str, Dot]]:
    """Return the new numbers of such changesets, by their former numbers and id prefixes."""
    found: dict[str, dict[str, Any]] = tx.meta(_RENOUNCED) or {}
    return {
        dot: {id: (origin, sequence) for id, (origin, sequence) in each.items()}
        for dot, each in found.items()
    }


def meant(revision: Revision, gone: Renounced) -> dict[str, int]:
    """Return the context of a changeset, with new numbers for republished changesets."""
    context = dict(revision.context)
    if not gone:
        return context
    for origin, sequence in revision.context.items():
        became = gone.get(dot_text((origin, sequence)), {}).get(revision.seen.get(origin, ""))
        if became is not None:
            _succeed(context, origin, *became)
    return context


def _succeed(clock: dict[str, int], origin: str, new: str, number: int) -> None:
    """Replace an origin's number in a vector by a number of its new origin."""
    before = clock.pop(origin) - number
    if before > 0:
        clock[origin] = before
    clock[new] = max(clock.get(new, 0), number)


def give_up(tx: Tx, rules: Rules, replaced: Replaced, successor: Dot) -> bool:
    """Revert a changeset that its author has republished under another number.

    The old number is then free for the changeset that others know. Returns True if the changeset
    was applied here.
    """
    origin, sequence, id = replaced
    found = tx.changeset(origin, sequence)
    if found is None or not found.id.startswith(id):
        return False
    last = tx.origins()[origin]
    forked = _Forked(tx, last, sequence, last.sequence, is_chain=True)
    less = sequence - successor[1]
    forked.move(rules, successor[0], less)
    forked.drop()
    set_moved(tx, moved(tx) | {(successor[0], each.sequence - less) for each in forked.records})
    return True


def moved(tx: Tx) -> set[Dot]:
    """Return changesets not applied yet whose effects are already here under other numbers."""
    return {(origin, sequence) for origin, sequence in tx.meta(_MOVED) or ()}


def set_moved(tx: Tx, dots: Iterable[Dot]) -> None:
    """Store these changesets."""
    tx.set_meta(_MOVED, sorted(dots))


class _Forked:
    """Changesets of an origin, from a number on, that move to another origin."""

    def __init__(
        self, tx: Tx, origin: OriginRecord, first: int, last: int, *, is_chain: bool = False
    ) -> None:
        """Load them; with ``is_chain`` only those that follow on each other."""
        self._tx = tx
        self._origin = origin
        self._first = first
        found = tx.ranges({origin.origin: (first, last)}, limit=last, max_bytes=2**62)
        self.records: list[ChangesetRecord] = []
        self.changesets: list[Changeset] = []
        for record in found:
            changeset = SignedChangeset(record.body or b"").changeset
            assert changeset.revision is not None
            if is_chain and self.records:
                if changeset.revision.previous != self.records[-1].id[:16]:
                    break
            self.records.append(record)
            self.changesets.append(changeset)
        #: Vector that the origin had before the first of them.
        self.clock = _clock_at(tx, origin, first - 1, found)

    def move(self, rules: Rules, new: str, above: int) -> None:
        """Attribute their changes of rows to ``new``, with numbers reduced by ``above``."""
        rows = WorkingRows(self._tx, rules)
        rows.load(change for each in self.changesets for change in each.changes)
        clock = dict(self.clock)
        done = []
        for each in self.changesets:
            assert each.revision is not None
            clock = {**clock, **each.revision.context, each.origin: each.sequence}
            stamp = Stamp(each.revision.hlc, each.origin, each.sequence)
            done += [(change, stamp, clock) for change in each.changes]
        rows.rename(self._origin.origin, self._first - 1, new, above, done)
        rows.store()
        self._rename_in_clocks(new, above)

    def _rename_in_clocks(self, new: str, above: int) -> None:
        """Replace the old numbers by the new ones in the clocks of other origins."""
        origin = self._origin.origin
        last = self._first - 1 + len(self.records)
        changed = []
        for each in self._tx.origins().values():
            known = each.clock.get(origin, 0)
            if each.origin != origin and self._first <= known <= last:
                _succeed(each.clock, origin, new, known - above)
                changed.append(each)
        self._tx.put_origins(changed)

    def drop(self) -> None:
        """Remove them, so that the origin ends before them."""
        origin = self._origin
        before = self._first - 1
        self._tx.remove_changesets(origin.origin, before)
        tip: dict[str, Any] = self._tx.meta("tip")
        gone = {each.id for each in self.records}
        heads = [each for each in tip["heads"] if each not in gone]
        self._tx.set_meta("tip", {**tip, "heads": heads})
        if not before:
            self._tx.drop_origin(origin.origin)
            return
        known = self._tx.ids_of(origin.origin, before, before)
        self._tx.put_origins(
            [
                OriginRecord(
                    origin=origin.origin,
                    sequence=before,
                    clock=self.clock,
                    floor=origin.floor,
                    last_id=known[0][1] if known else "",
                )
            ]
        )


def _clock_at(
    tx: Tx, last: OriginRecord, above: int, forked: Iterable[ChangesetRecord]
) -> dict[str, int]:
    """Return the clock of the last changeset before the fork, derived from earlier ones."""
    clock = {**last.clock, last.origin: above}
    unknown: set[str] = set()
    for each in forked:
        unknown |= _context(each).keys()
    sequence = above
    found: dict[str, int] = {}
    while unknown and sequence > last.floor:
        record = tx.changeset(last.origin, sequence)
        if record is not None and record.body is not None:
            context = _context(record)
            found |= {name: context[name] for name in unknown & context.keys()}
            unknown -= context.keys()
        sequence -= 1
    if last.floor == 0:
        # All earlier changesets were checked: it had not seen the other origins by then.
        for name in unknown:
            clock.pop(name, None)
    return {**clock, **found}


def _context(record: ChangesetRecord) -> dict[str, int]:
    revision = SignedChangeset(record.body or b"").changeset.revision
    assert revision is not None
    return dict(revision.context)


def _tell_again(
    tx: Tx, signer: Signer | None, node: Node, forked: _Forked, touched: Touched
) -> tuple[dict[str, int], str]:
    """Write the forked changesets under a new origin; returns its clock and last id."""
    now = {name: number for name, number in forked.clock.items() if number}
    ids: dict[str, str] = {}
    records = []
    last_id = ""
    position = tx.last_position()
    for sequence, (old, changeset) in enumerate(
        zip(forked.records, forked.changesets, strict=True), 1
    ):
        revision = changeset.revision
        assert revision is not None
        context = dict(revision.context)
        if sequence == 1:
            context = {**now, **context}
        replaces = (*revision.replaces, (old.origin, old.sequence, old.id[:16]))
        signed = SignedChangeset.make(
            msgspec.structs.replace(
                changeset,
                id="",
                origin=node.origin,
                sequence=sequence,
                parents=tuple(sorted(ids.get(each, each) for each in changeset.parents)),
                revision=msgspec.structs.replace(
                    revision, context=context, previous=last_id[:16], replaces=replaces
                ),
            ),
            signer,
        )
        now |= context
        now[node.origin] = sequence
        ids[old.id] = last_id = signed.id
        position += 1
        records.append(record_of(signed, signed.changeset, position, ""))
    tx.add_changesets(records, touched=touched(zip(records, forked.changesets, strict=True)))
    tip = tx.meta("tip")
    tx.set_meta("tip", {**tip, "heads": sorted({*tip["heads"], last_id})})
    return now, last_id
