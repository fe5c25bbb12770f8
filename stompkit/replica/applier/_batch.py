"""Applies a batch of other nodes' changesets in causal order."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from stompkit._common.text import text_of
from stompkit.replica.applier._records import record_of
from stompkit.replica.applier._renewal import meant, moved, renounced, set_moved
from stompkit.replica.applier._rows import WorkingRows
from stompkit.replica.applier._types import Bounds, Hooks, Incoming, Outcome, RefuseChangesetError
from stompkit.replica.data import Data
from stompkit.replica.rows import Stamp
from stompkit.replica.rules import RuleError, Rules
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.store import ChangesetRecord, HeldRecord, OriginRecord, Tx
from stompkit.replica.vectors import Dot, dominates, dot_text
from stompkit.replication.model.events import Changeset
from stompkit.replication.model.values import InvalidValueError

__all__ = ["Batch", "PoisonChangesetError"]


class PoisonChangesetError(Exception):
    """A changeset of the batch cannot be applied; nothing was written yet."""

    def __init__(self, dot: Dot, reason: str) -> None:
        """Name the changeset and the reason."""
        super().__init__(reason)
        self.dot = dot


class Batch:
    """Applies ready changesets in memory; :meth:`store` then writes the results."""

    def __init__(
        self,
        tx: Tx,
        fresh: Mapping[Dot, Incoming],
        *,
        rules: Rules,
        wants: Callable[[str], bool],
        hooks: Hooks,
        poison: Mapping[Dot, str],
        skipped: Collection[Dot] = (),
    ) -> None:
        """Take new changesets; those in ``poison`` are not applied."""
        self._tx = tx
        self._waiting = dict(fresh)
        self._wants = wants
        self._hooks = hooks
        self._poison = poison
        self._skipped = skipped
        self._origins = dict(tx.origins())
        self._vector = {name: each.sequence for name, each in self._origins.items()}
        self._position = tx.last_position()
        self._is_holding = tx.held_size()[0] > 0
        self._tip: dict[str, Any] = tx.meta("tip") or {"heads": [], "hlc": 0}
        self.rows = WorkingRows(tx, rules)
        self.applied: list[tuple[ChangesetRecord, Changeset]] = []
        self._changed: set[str] = set()
        #: Changesets whose predecessor differs from the one here.
        self.forks: list[Dot] = []
        self._gone = renounced(tx)
        self._moved = moved(tx)
        #: Prefixes of the ids of changesets that were looked up.
        self._ids: dict[Dot, str] = {}

    def run(self) -> None:
        """Apply all ready changesets; raises :class:`PoisonChangesetError`."""
        self._look_at_held(self._waiting)
        while True:
            # Hybrid clocks nearly always sort a changeset after its predecessors.
            order = sorted(self._waiting.items(), key=lambda item: _revision(item[1]).hlc)
            self.rows.load(
                change
                for _, each in order
                for change in each.signed.changeset.changes
                if self._wants(change.name)
            )
            before = len(self.applied)
            for dot, each in order:
                if dot not in self._poison and self._is_ready(each.signed.changeset):
                    self._apply(dot, each)
                    del self._waiting[dot]
            if len(self.applied) == before and not self._add_held():
                break
        for dot in self.forks:
            # It can never be applied. If no node has its predecessor, its number now belongs to
            # another changeset. Otherwise, it arrives again under another number.
            self._waiting.pop(dot, None)

    def _look_at_held(self, fresh: dict[Dot, Incoming]) -> None:
        """Leave changesets in quarantine that were received again."""
        if not self._is_holding:
            return
        for dot in list(fresh):
            held = self._tx.held_of(*dot)
            if held is not None and held.is_quarantined and dot not in self._skipped:
                del fresh[dot]

    def _add_held(self) -> bool:
        """Take the held changesets that can be next of their origins; returns True if any."""
        if not self._is_holding:
            return False
        is_found = False
        for held in self._tx.held_next(self._vector):
            dot = held.origin, held.sequence
            if dot in self._waiting or dot in self._poison:
                continue
            signed = SignedChangeset(held.body, held.signature)
            if self._is_ready(signed.changeset):
                self._waiting[dot] = Incoming(signed, held.via)
                is_found = True
        return is_found

    def _is_ready(self, changeset: Changeset) -> bool:
        revision = changeset.revision
        assert revision is not None
        if changeset.sequence != self._vector.get(changeset.origin, 0) + 1:
            return False
        last = self._origins.get(changeset.origin)
        if last is not None and last.last_id[:16] not in ("", revision.previous):
            # The changeset's predecessor differs from the one here.
            self.forks.append((changeset.origin, changeset.sequence))
            return False
        return dominates(self._vector, meant(revision, self._gone)) and all(
            self._id_of(dot) in (revision.seen.get(dot[0]), "")
            for dot in revision.context.items()
            if dot[0] in revision.seen and not self._has_become(dot, revision.seen[dot[0]])
        )

    def _has_become(self, dot: Dot, id: str) -> bool:
        return bool(self._gone) and id in self._gone.get(dot_text(dot), ())

    def _id_of(self, dot: Dot) -> str:
        """Return the prefix of the id that a changeset has here; empty if unknown."""
        if dot not in self._ids:
            last = self._origins.get(dot[0])
            if last is not None and last.sequence == dot[1]:
                self._ids[dot] = last.last_id[:16]
            else:
                found = self._tx.ids_of(dot[0], dot[1], dot[1])
                self._ids[dot] = found[0][1][:16] if found else ""
        return self._ids[dot]

    def _apply(self, dot: Dot, each: Incoming) -> None:
        changeset = each.signed.changeset
        origin, sequence = dot
        last = self._origins.get(origin)
        revision = _revision(each)
        clock = dict(last.clock) if last is not None else {}
        for name, number in meant(revision, self._gone).items():
            if clock.get(name, 0) < number:
                clock[name] = number
        clock[origin] = sequence
        # A changeset received under another number must not be applied again: others may follow it.
        if dot not in self._skipped and dot not in self._moved:
            try:
                if self._hooks.validate is not None:
                    self._hooks.validate(changeset)
                stamp = Stamp(revision.hlc, origin, sequence)
                for change in changeset.changes:
                    if self._wants(change.name):
                        self.rows.apply(change, stamp, clock)
            except (RefuseChangesetError, RuleError, InvalidValueError) as problem:
                raise PoisonChangesetError(dot, text_of(problem)) from problem
            except Exception as problem:
                raise PoisonChangesetError(dot, f"{type(problem).__name__}: {problem}") from problem
        self._position += 1
        record = record_of(each.signed, changeset, self._position, each.via)
        self.applied.append((record, changeset))
        self._vector[origin] = sequence
        self._ids[dot] = each.signed.id[:16]
        self._origins[origin] = OriginRecord(
            origin=origin,
            sequence=sequence,
            clock=clock,
            floor=0 if last is None else last.floor,
            last_id=each.signed.id,
        )
        self._changed.add(origin)
        parents = set(changeset.parents)
        self._tip["heads"] = sorted(
            [head for head in self._tip["heads"] if head not in parents] + [each.signed.id]
        )

    def store(
        self,
        outcome: Outcome,
        *,
        data: Data,
        bounds: Bounds,
        seen: Callable[..., int],
        touched: Callable[[list[tuple[ChangesetRecord, Changeset]]], Any],
    ) -> None:
        """Write the applied changesets, and those that are held."""
        tx = self._tx
        outcome.forks += self.forks
        if self._is_holding and self.forks:
            tx.unhold(self.forks)
        if self.applied:
            self.rows.materialise(data)
            self.rows.store()
            outcome.conflicts = self.rows.conflicts
            records = [record for record, _ in self.applied]
            tx.add_changesets(records, touched=touched(self.applied))
            tx.put_origins([self._origins[name] for name in self._changed])
            hlc = seen(self._tip["hlc"], *(record.hlc for record in records))
            tx.set_meta("tip", {"heads": self._tip["heads"], "hlc": hlc})
            if not self._moved.isdisjoint(self._ids):
                set_moved(tx, self._moved - {(each.origin, each.sequence) for each in records})
            if self._is_holding:
                tx.unhold([(record.origin, record.sequence) for record in records])
            outcome.records = records
            outcome.applied = [changeset for _, changeset in self.applied]
        self._hold(outcome, bounds)

    def _hold(self, outcome: Outcome, bounds: Bounds) -> None:
        """Hold changesets that are not ready, within bounds; those closest to ready come first."""
        if not self._waiting:
            return
        count, size = self._tx.held_size()
        held = []
        now = time.time()
        for dot in sorted(self._waiting, key=lambda dot: dot[1]):
            each = self._waiting[dot]
            problem = self._poison.get(dot, "")
            octets = len(each.signed.body)
            if not problem and (count >= bounds.hold_max or size + octets > bounds.hold_max_bytes):
                outcome.dropped += 1
                continue
            count += 1
            size += octets
            held.append(
                HeldRecord(
                    origin=dot[0],
                    sequence=dot[1],
                    id=each.signed.id,
                    body=each.signed.body,
                    signature=each.signed.signature,
                    received_at=now,
                    via=each.via,
                    problem=problem,
                    is_quarantined=bool(problem),
                )
            )
            if problem:
                outcome.quarantined.append((dot, problem))
        outcome.held = len(held)
        self._tx.hold(held)


def _revision(each: Incoming) -> Any:
    revision = each.signed.changeset.revision
    assert revision is not None
    return revision
