"""Applies changesets to a replica: to its history, the merged rows, and its tables.

All effects of a changeset are in the transaction that counts it as applied. This package does not
use a broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from random import Random, SystemRandom
from typing import Any, Final

from sqlalchemy import inspect

from stompkit._common.moved import renamed
from stompkit.replica.applier._batch import Batch, PoisonChangesetError
from stompkit.replica.applier._records import record_of
from stompkit.replica.applier._renewal import give_up, renew, renounce, renounced
from stompkit.replica.applier._rows import LACKING, WorkingRows, digest_of
from stompkit.replica.applier._terms import (
    Bounds,
    Hooks,
    Incoming,
    Outcome,
    RefuseChangesetError,
    WriteRefusedError,
)
from stompkit.replica.changes import expanded, told
from stompkit.replica.clock import HybridClock
from stompkit.replica.data import Data
from stompkit.replica.nodes import IdentityError, Node, begin_session, known_node
from stompkit.replica.rows import Stamp
from stompkit.replica.rules import Rules
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.signing import Signer, UntrustedError, Verifier
from stompkit.replica.store import (
    ChangesetRecord,
    HeldRecord,
    OriginRecord,
    Tx,
    row_id,
)
from stompkit.replica.vectors import Dot, covers, dot_text
from stompkit.replication.model.events import (
    Changeset,
    EventError,
    Revision,
    RowChange,
    Source,
)

__all__ = [
    "LACKING",
    "Applier",
    "Bounds",
    "Hooks",
    "Incoming",
    "Outcome",
    "RefuseChangesetError",
    "WorkingRows",
    "WriteRefusedError",
    "digest_of",
]

_log: Final = logging.getLogger(__name__)
#: Batch size in rows when a new column of a table is filled.
_FILLED: Final = 500


class Applier:
    """Applies changesets of this node and of others."""

    def __init__(
        self,
        data: Data,
        rules: Rules,
        *,
        wall: Callable[[], float],
        wants: Callable[[str], bool] = lambda table: True,
        hooks: Hooks | None = None,
        signer: Signer | None = None,
        verifier: Verifier | None = None,
        save_history: bool = False,
        bounds: Bounds | None = None,
        max_ahead_s: float = 86_400.0,
        chance: Random | None = None,
    ) -> None:
        """Set up the applier; ``wall`` returns seconds since 1970, ``wants`` selects tables.

        Clocks of other nodes more than ``max_ahead_s`` seconds ahead are ignored. ``chance``
        creates unique names.
        """
        self.data: Final = data
        self.rules: Final = rules
        self.hooks: Final = Hooks() if hooks is None else hooks
        self.wants: Final = wants
        self._wall = wall
        self._signer = signer
        self._verifier = Verifier() if verifier is None else verifier
        self._saves_history = save_history
        self._bounds = Bounds() if bounds is None else bounds
        self._max_ahead_s = max_ahead_s
        self._session = ""
        self.chance: Final = SystemRandom() if chance is None else chance

    def session(self, tx: Tx) -> str:
        """Return the session of this process, which begins with its first write."""
        # A session of a transaction that was rolled back does not exist.
        if not self._session or not tx.has_session(self._session):
            self._session = begin_session(tx, self._node(tx), self.chance)
        return self._session

    def renew(self, tx: Tx, above: int) -> Node:
        """Take a new origin, and move own changesets after number ``above`` to it."""
        node = renew(
            tx,
            self.rules,
            self._signer,
            self._node(tx),
            above,
            chance=self.chance,
            touched=self._touched,
        )
        self._session = begin_session(tx, node, self.chance)
        return node

    # Changes of this node.

    def record(
        self, tx: Tx, changes: Sequence[RowChange], *, author: str = "", comment: str = ""
    ) -> SignedChangeset | None:
        """Record changes that the tables already have; returns ``None`` if nothing differs.

        Raises :class:`~stompkit.replica.nodes.IdentityError` if the database has no identity yet,
        and ValueError for an unsupported change.
        """
        rows = WorkingRows(tx, self.rules)
        signed = self._record(tx, rows, changes, author, comment)
        rows.store()
        return signed

    def write(
        self, tx: Tx, changes: Sequence[RowChange], *, author: str = "", comment: str = ""
    ) -> SignedChangeset | None:
        """Record changes and write them to the tables; raises :class:`WriteRefusedError` too."""
        rows = WorkingRows(tx, self.rules)
        signed = self._record(tx, rows, changes, author, comment)
        known = {record.id for record in tx.with_problems()}
        for id, reason in rows.materialise(self.data).items():
            if id not in known:
                raise WriteRefusedError(f"{rows.place(id)}: {reason}")
        rows.store()
        return signed

    def _record(
        self, tx: Tx, rows: WorkingRows, changes: Sequence[RowChange], author: str, comment: str
    ) -> SignedChangeset | None:
        node = self._node(tx)
        origins = tx.origins()
        last = origins.get(node.origin) or OriginRecord(origin=node.origin)
        tip: dict[str, Any] = tx.meta("tip") or {"heads": [], "hlc": 0}
        hlc = HybridClock(self._wall, tip["hlc"], self._max_ahead_s).next()
        sequence = last.sequence + 1
        clock = {name: each.sequence for name, each in origins.items()}
        context = {
            name: number
            for name, number in clock.items()
            if name != node.origin and last.clock.get(name, 0) < number
        }
        clock[node.origin] = sequence
        stamp = Stamp(hlc, node.origin, sequence)
        done = self._change(rows, changes, stamp, clock)
        if not done:
            return None
        self.session(tx)
        signed = SignedChangeset.make(
            Changeset(
                id="",
                origin=node.origin,
                sequence=sequence,
                timestamp=datetime.fromtimestamp(self._wall(), UTC),
                changes=tuple(done),
                source=Source(kind="replica", server=node.branch),
                parents=tuple(sorted(tip["heads"])),
                revision=Revision(
                    trunk=node.trunk,
                    hlc=hlc,
                    context=context,
                    seen={
                        name: origins[name].last_id[:16]
                        for name in context
                        if origins[name].last_id
                    },
                    previous=last.last_id[:16],
                    author=author,
                    comment=comment,
                ),
            ),
            self._signer,
        )
        changeset = signed.changeset
        record = record_of(signed, changeset, tx.last_position() + 1, "")
        tx.add_changesets([record], touched=self._touched([(record, changeset)]))
        tx.put_origins(
            [
                OriginRecord(
                    origin=node.origin,
                    sequence=sequence,
                    clock=clock,
                    floor=last.floor,
                    last_id=signed.id,
                )
            ]
        )
        tx.set_meta("tip", {"heads": [signed.id], "hlc": hlc})
        return signed

    def _change(
        self,
        rows: WorkingRows,
        changes: Sequence[RowChange],
        stamp: Stamp,
        clock: Mapping[str, int],
    ) -> list[RowChange]:
        """Change the state of rows; returns the effective changes."""
        wanted = [change for change in changes if self.wants(change.name) and change.key]
        rows.load(wanted)
        done = []
        for change in wanted:
            visible = None
            if change.old_key is not None:
                # Columns that no changeset has recorded move to the new key as well.
                visible = rows.visible(_with_key(change, change.old_key))
            for each in expanded(change, visible):
                made = told(each, rows.visible(each))
                if made is not None:
                    rows.apply(made, stamp, clock)
                    done.append(made)
        return done

    def _node(self, tx: Tx) -> Node:
        node = known_node(tx)
        if node is None:
            raise IdentityError("this database is no replica yet: call Replica.create() first")
        return node

    # Changes of other nodes.

    def apply(self, tx: Tx, incoming: Sequence[Incoming]) -> Outcome:
        """Apply the changesets that are ready, in causal order, and hold the rest.

        A changeset that cannot be applied is quarantined, and its successors are held. An
        unreadable or untrusted one is refused and discarded.
        """
        outcome = Outcome()
        fresh = self._admitted(tx, incoming, outcome)
        for dot, each in list(fresh.items()):
            revision = each.signed.changeset.revision
            assert revision is not None
            if revision.replaces:
                renounce(tx, [(replaced, dot) for replaced in revision.replaces])
                for replaced in revision.replaces:
                    give_up(tx, self.rules, replaced, dot)
                    fresh = {
                        other: one
                        for other, one in fresh.items()
                        if other != replaced[:2] or not one.signed.id.startswith(replaced[2])
                    }
        poison: dict[Dot, str] = {}
        while True:
            batch = self._batch(tx, fresh, poison)
            try:
                batch.run()
                break
            except PoisonChangesetError as problem:
                poison[problem.dot] = str(problem)
                held = tx.held_of(*problem.dot)
                if held is not None:
                    fresh[problem.dot] = _incoming(held)
        self._store(batch, outcome)
        return outcome

    def _batch(
        self,
        tx: Tx,
        fresh: Mapping[Dot, Incoming],
        poison: Mapping[Dot, str],
        skipped: frozenset[Dot] = frozenset(),
    ) -> Batch:
        return Batch(
            tx,
            fresh,
            rules=self.rules,
            wants=self.wants,
            hooks=self.hooks,
            poison=poison,
            skipped=skipped,
        )

    def _store(self, batch: Batch, outcome: Outcome) -> None:
        batch.store(
            outcome,
            data=self.data,
            bounds=self._bounds,
            seen=self.seen,
            touched=self._touched,
        )

    def _admitted(
        self, tx: Tx, incoming: Sequence[Incoming], outcome: Outcome
    ) -> dict[Dot, Incoming]:
        """Return the new, well-formed changesets of trusted nodes."""
        if not incoming:
            return {}
        node = self._node(tx)
        vector = tx.vector()
        gone = renounced(tx)
        fresh: dict[Dot, Incoming] = {}
        for each in incoming:
            try:
                dot = each.signed.dot
                if covers(vector, dot):
                    outcome.duplicates += 1
                    self._look_for_fork(tx, dot, each, outcome)
                    continue
                each.signed.verify(self._verifier)
                _check(each.signed.changeset, node)
                if gone and each.signed.id[:16] in gone.get(dot_text(dot), ()):
                    # Its author has published it again under another number.
                    outcome.duplicates += 1
                    continue
            except (EventError, UntrustedError) as problem:
                outcome.refused.append((each.signed.id, str(problem)))
                continue
            if dot in fresh:
                outcome.duplicates += 1
            else:
                fresh[dot] = each
        return fresh

    def _look_for_fork(self, tx: Tx, dot: Dot, each: Incoming, outcome: Outcome) -> None:
        known = tx.changeset(*dot)
        if known is not None and known.id != each.signed.id:
            outcome.forks.append(dot)
            _log.error(
                "there are two changesets %s: %s here, and %s from %s",
                dot_text(dot),
                known.id,
                each.signed.id,
                each.via,
            )

    def skip(self, tx: Tx, dot: Dot) -> Outcome:
        """Count a quarantined changeset as applied, without any effect here.

        Raises LookupError if it is not in quarantine, or is held for its predecessors.
        """
        held = tx.held_of(*dot)
        if held is None:
            raise LookupError(f"{dot_text(dot)} is not held here")
        batch = self._batch(tx, {dot: _incoming(held)}, {}, frozenset((dot,)))
        batch.run()
        if not any((record.origin, record.sequence) == dot for record, _ in batch.applied):
            raise LookupError(f"{dot_text(dot)} waits for changesets before it: skip those first")
        outcome = Outcome()
        tx.set_meta("skipped", [*(tx.meta("skipped") or []), [*dot, held.problem]])
        self._store(batch, outcome)
        return outcome

    def fill(self, tx: Tx) -> int:
        """Fill columns that the tables have gained; returns the number of rows written."""
        lacking: dict[str, list[str]] = tx.meta(LACKING) or {}
        if not lacking:
            return 0
        self.data.forget()
        there = self.data.tables(tx.connection)
        count = 0
        left: dict[str, list[str]] = {}
        for name, columns in lacking.items():
            schema, _, table = name.rpartition(".")
            found: set[str] = set()
            if name in there:
                described = inspect(tx.connection).get_columns(table, schema or None)
                found = {each["name"].casefold() for each in described}
            arrived = [each for each in columns if each.casefold() in found]
            missing = [each for each in columns if each not in arrived]
            if missing:
                left[name] = missing
            if arrived:
                count += self._fill(tx, name, arrived)
        tx.set_meta(LACKING, left)
        return count

    def _fill(self, tx: Tx, table: str, columns: Sequence[str]) -> int:
        """Write the rows of a table that have a value in one of these columns."""
        rules = self.rules.of(table)
        count = 0
        after: bytes | None = None
        while records := tx.rows_of(table, after, _FILLED):
            after = records[-1].id
            rows = WorkingRows(tx, self.rules)
            for record in records:
                visible = record.state.visible(rules) or {}
                if any(visible.get(each) is not None for each in columns):
                    rows.take(record)
                    count += 1
            rows.materialise(self.data)
            rows.store()
        return count

    def retry(self, tx: Tx) -> Outcome:
        """Retry the changesets in quarantine and the rows that the tables refused.

        Columns that the tables have gained are filled.
        """
        self.fill(tx)
        freed = []
        for held in tx.held():
            if held.is_quarantined:
                freed.append(
                    HeldRecord(
                        origin=held.origin,
                        sequence=held.sequence,
                        id=held.id,
                        body=held.body,
                        signature=held.signature,
                        received_at=held.received_at,
                        via=held.via,
                        problem="",
                        is_quarantined=False,
                    )
                )
        tx.hold(freed)
        outcome = self.apply(tx, [])
        self.heal(tx)
        return outcome

    def seen(self, own: int, *others: int) -> int:
        """Return the hybrid clock ``own`` after it has seen the others."""
        clock = HybridClock(self._wall, own, self._max_ahead_s)
        for each in others:
            clock.see(each)
        return clock.last

    def heal(self, tx: Tx) -> int:
        """Retry the rows that the tables refused; returns the number still refused."""
        rows = WorkingRows(tx, self.rules)
        problems = rows.materialise(self.data)
        rows.store()
        return len(problems)

    def _touched(
        self, pairs: Iterable[tuple[ChangesetRecord, Changeset]]
    ) -> dict[int, list[bytes]] | None:
        """Return the ids of the changed rows by position, for queries of history by row."""
        if not self._saves_history:
            return None
        return {
            record.position: list({row_id(each.name, each.key): 0 for each in changeset.changes})
            for record, changeset in pairs
        }


def _check(changeset: Changeset, node: Node) -> None:
    """Raise EventError for a changeset of another trunk."""
    revision = changeset.revision
    if revision is None or revision.trunk != node.trunk:
        raise EventError(
            f"this changeset belongs to the trunk {revision and revision.trunk[:64]!r}, and this"
            f" node to {node.trunk!r}"
        )


def _incoming(held: HeldRecord) -> Incoming:
    return Incoming(SignedChangeset(held.body, held.signature), held.via)


def _with_key(change: RowChange, key: dict[str, Any]) -> RowChange:
    return RowChange(table=change.table, schema=change.schema, action="delete", key=key)


renamed(
    __name__,
    Refuse="RefuseChangesetError",
    WriteRefused="WriteRefusedError",
)
