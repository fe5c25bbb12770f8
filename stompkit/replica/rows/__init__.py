"""Merge state of a row: the surviving parts of all changes by all replicas.

The state depends on the set of applied changesets, not on their order, as long as each comes after
its causal predecessors. A write survives until another one that knew of it writes the same: a
column, members of a set, or the existence of the row. All concurrent writes survive, and rules
determine which one is visible.

A deleted row keeps its columns: a concurrent change can restore it completely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final

import msgspec

from stompkit.replica.rows import _counters, _members
from stompkit.replica.rows._conflicts import (
    Conflict,
    column_conflicts,
    columns,
    row_conflict,
)
from stompkit.replica.rows._contributions import Contribution, Effect
from stompkit.replica.rules import Candidate, Stamp, TableRules
from stompkit.replica.vectors import Dot, Vector, covers
from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import Value

__all__ = ["Candidate", "Conflict", "RowState", "Stamp"]

#: Version byte of the encoded form.
_FORM: Final = b"1"

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_DECODER: Final = msgspec.json.Decoder(tuple[list[Contribution], dict[str, list[_counters.Share]]])
_dot = attrgetter("dot")
_place = attrgetter("generations", "origin")


class RowState:
    """The merge state of a row.

    The state of a row that was never written is the initial one.
    """

    __slots__ = ("_contributions", "_counters")

    def __init__(self) -> None:
        """Start empty."""
        self._contributions: list[Contribution] = []
        self._counters: dict[str, list[_counters.Share]] = {}

    def __repr__(self) -> str:
        return f"<RowState {self.encode().decode()}>"

    def apply(self, change: RowChange, stamp: Stamp, clock: Vector, rules: TableRules) -> None:
        """Apply a change of a changeset, after all changesets in its ``clock``.

        Several changes of one changeset come in order, with the same stamp. Raises ``ValueError``
        for a change that no replica can apply, such as text in a counter; the row is then
        unchanged.
        """
        effect = Effect(change, rules)
        origin, sequence = stamp.origin, stamp.sequence
        if clock.get(origin, 0) < sequence:
            clock = {**clock, origin: sequence}
        get = clock.get
        kept: list[Contribution] = []
        own: Contribution | None = None
        for each in self._contributions:
            if each.sequence <= get(each.origin, 0):
                is_own = each.sequence == sequence and each.origin == origin
                if is_own:
                    each.keep_befores(effect)
                if not each.supersede(effect):
                    continue
                if is_own:
                    own = each
            kept.append(each)
        if own is None:
            own = Contribution(origin, sequence, stamp.hlc, None, False, False, {}, {}, {})
            kept.append(own)
        self._contributions = kept
        if effect.is_write and self._counters:
            self._reduce(lambda dot: not covers(clock, dot))
        if effect.amounts:
            self._count(effect, origin, clock)
        own.absorb(effect)

    def _reduce(self, is_left: Callable[[Dot], bool]) -> None:
        reduced = {
            name: _counters.reduced(shares, is_left) for name, shares in self._counters.items()
        }
        self._counters = {name: shares for name, shares in reduced.items() if shares}

    def _count(self, effect: Effect, origin: str, clock: Vector) -> None:
        known = self._generations()
        generations = tuple(sorted(dot for dot in known if covers(clock, dot)))
        if known and not generations:
            # Others have since recreated the row without knowledge of this change.
            return
        for name, amount in effect.amounts.items():
            self._add(name, _counters.Share(generations, origin, amount, 1))

    def _add(self, name: str, share: _counters.Share) -> None:
        shares = _counters.add(self._counters.pop(name, ()), share)
        if shares:
            self._counters[name] = shares

    def _generations(self) -> set[Dot]:
        return {each.dot for each in self._contributions if each.is_insert}

    def join(self, own: Vector, other: RowState, others: Vector) -> None:
        """Merge the state with that of the same row at another replica.

        ``own`` is exactly the vector applied to this state, and ``others`` that of the other one.
        Both are causally complete. What one has applied and does not contain any more was
        superseded there.
        """
        mine = {each.dot: each for each in self._contributions}
        kept: list[Contribution] = []
        for each in other._contributions:
            same = mine.pop(each.dot, None)
            if same is not None:
                if same.intersect(each):
                    kept.append(same)
            elif not covers(own, each.dot):
                kept.append(each.copy())
        kept += [each for each in mine.values() if not covers(others, each.dot)]
        self._contributions = kept
        if self._counters or other._counters:
            self._join_counters(own, other, others)

    def _join_counters(self, own: Vector, other: RowState, others: Vector) -> None:
        generations = self._generations()
        joined = {}
        for name in self._counters.keys() | other._counters.keys():
            mine, theirs = self._counters.get(name, []), other._counters.get(name, [])
            if generations:
                mine = _counters.reduced(mine, generations.__contains__)
                theirs = _counters.reduced(theirs, generations.__contains__)
            shares = _counters.joined(mine, own, theirs, others)
            if shares:
                joined[name] = shares
        self._counters = joined

    def visible(self, rules: TableRules) -> dict[str, Value] | None:
        """Return the columns beside the key; ``None`` if the row does not exist."""
        if not self._is_there(rules):
            return None
        living = self._living()
        row = columns(living, rules)
        if self._counters:
            dots = {each.dot for each in living}
            for name, shares in self._counters.items():
                counted = [
                    each
                    for each in shares
                    if not each.generations or not dots.isdisjoint(each.generations)
                ]
                if counted:
                    row[name] = _counters.shown(row.get(name), counted, name)
        for name in {name for each in living for name in each.sets}:
            row[name] = _members.shown(
                (each.stamp, each.sets[name]) for each in living if name in each.sets
            )
        return row

    def _living(self) -> list[Contribution]:
        """Return the contributions, without those to a deleted row that was replaced."""
        living = [each for each in self._contributions if not each.is_deleted]
        is_another = len(living) < len(self._contributions) and any(
            each.is_insert for each in living
        )
        return living if is_another else self._contributions

    def _is_there(self, rules: TableRules) -> bool:
        said = {each.is_alive for each in self._contributions}
        if True in said and False in said:
            return row_conflict(self._contributions, rules).winner.value is not None
        return True in said

    def conflicts(self, rules: TableRules) -> list[Conflict]:
        """Return the conflicts decided by rules: first for the row, then for sorted columns.

        Columns of a row that does not exist are omitted.
        """
        if len(self._contributions) < 2:
            return []
        said = {each.is_alive for each in self._contributions}
        found = []
        if True in said and False in said:
            found.append(row_conflict(self._contributions, rules))
        if not self._is_there(rules):
            return found
        return found + column_conflicts(self._living(), rules)

    def stamps(self, column: str) -> list[Stamp]:
        """Return the sorted stamps of surviving writes of a column; empty name: of the row.

        For a counter, these are the inserts that it counts from.
        """
        return sorted(
            each.stamp
            for each in self._contributions
            if (
                column in each.values or column in each.sets
                if column
                else each.is_alive is not None
            )
        )

    def is_collectable(self, stable: Vector) -> bool:
        """Return True if the row is deleted and all writers know of it.

        ``stable`` is the common past of all changesets that can still arrive, as returned by
        :func:`~stompkit.replica.vectors.settled`. Superseded writes are in the past of their
        successors, so they need no check. A changed row that a rule hides is kept until the
        conflict is resolved.
        """
        return all(
            each.is_alive is not True and covers(stable, each.dot) for each in self._contributions
        )

    def renamed(
        self,
        origin: str,
        above: int,
        new: str,
        changes: Iterable[tuple[RowChange, Stamp, Vector]] = (),
        rules: TableRules | None = None,
        *,
        less: int | None = None,
    ) -> None:
        """Attribute changesets of an origin with numbers above ``above`` to another origin.

        Their numbers are reduced by ``less``, by default by ``above``, so that they begin with 1.
        If the table has counters, ``changes`` and ``rules`` are required. ``changes`` are the row's
        changes in these changesets, in order, with their former stamps and clocks: the sum of an
        origin does not show its parts.
        """
        moved = RowState()
        moved._contributions = [
            each.insert()
            for each in self._contributions
            if each.is_insert and (each.origin != origin or each.sequence <= above)
        ]
        for change, stamp, clock in changes:
            moved.apply(change, stamp, clock, rules or TableRules())
        generations = self._generations()
        if generations:
            moved._reduce(generations.__contains__)
        for name, shares in moved._counters.items():
            for share in shares:
                place, amount, count = share.generations, share.amount, share.count
                self._add(name, _counters.Share(place, origin, -amount, -count))
                self._add(name, _counters.Share(place, new, amount, count))

        by = above if less is None else less

        def rename(dot: Dot) -> Dot:
            return (new, dot[1] - by) if dot[0] == origin and dot[1] > above else dot

        for each in self._contributions:
            each.origin, each.sequence = rename(each.dot)
        self._counters = {
            name: _counters.renamed(shares, rename) for name, shares in self._counters.items()
        }

    def encode(self) -> bytes:
        """Return the state as text; states with equal changesets have equal bytes."""
        self._contributions.sort(key=_dot)
        for shares in self._counters.values():
            shares.sort(key=_place)
        return _FORM + _ENCODER.encode((self._contributions, self._counters))

    @classmethod
    def decode(cls, octets: bytes) -> RowState:
        """Decode the result of :meth:`encode`; raises ``ValueError`` for other bytes."""
        if not octets.startswith(_FORM):
            raise ValueError(f"this is no state of a row in form {_FORM.decode()}")
        state = cls()
        try:
            state._contributions, state._counters = _DECODER.decode(memoryview(octets)[1:])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"this is no state of a row: {error}") from None
        return state
