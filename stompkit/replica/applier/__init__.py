"""Applies changesets to a replica: to its history, the merged rows, and its tables.

All effects of a changeset are in the transaction that counts it as applied. This package does not
use a broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from stompkit._common.moved import renamed
from stompkit.replica.applier._batch import Batch, PoisonChangesetError
from stompkit.replica.applier._filling import fill
from stompkit.replica.applier._recording import Recorder
from stompkit.replica.applier._renewal import give_up, renounce, renounced
from stompkit.replica.applier._rows import LACKING, WorkingRows, digest_of
from stompkit.replica.applier._types import (
    Bounds,
    Hooks,
    Incoming,
    Outcome,
    RefuseChangesetError,
    WriteRefusedError,
)
from stompkit.replica.data import Data
from stompkit.replica.nodes import Node
from stompkit.replica.rules import Rules
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.signing import Signer, UntrustedError, Verifier
from stompkit.replica.store import (
    HeldRecord,
    Tx,
)
from stompkit.replica.vectors import Dot, covers, dot_text
from stompkit.replication.model.events import (
    Changeset,
    EventError,
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


class Applier(Recorder):
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
        super().__init__(
            data,
            rules,
            wall=wall,
            wants=wants,
            signer=signer,
            save_history=save_history,
            max_ahead_s=max_ahead_s,
            chance=chance,
        )
        self.hooks: Final = Hooks() if hooks is None else hooks
        self._verifier = Verifier() if verifier is None else verifier
        self._bounds = Bounds() if bounds is None else bounds

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
                    known = tx.changeset(*dot)
                    if known is not None:
                        _compare(dot, known.id, each, outcome)
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
                # A database and its copy can be heard together.
                outcome.duplicates += 1
                _compare(dot, fresh[dot].signed.id, each, outcome)
            else:
                fresh[dot] = each
        return fresh

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
        return fill(tx, self.data, self.rules)

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

    def heal(self, tx: Tx) -> int:
        """Retry the rows that the tables refused; returns the number still refused."""
        rows = WorkingRows(tx, self.rules)
        problems = rows.materialise(self.data)
        rows.store()
        return len(problems)


def _compare(dot: Dot, id: str, each: Incoming, outcome: Outcome) -> None:
    """Report a fork if a changeset is not the known one with the same number."""
    if each.signed.id != id:
        outcome.forks.append(dot)
        _log.error(
            "there are two changesets %s: %s here, and %s from %s",
            dot_text(dot),
            id,
            each.signed.id,
            each.via,
        )


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


renamed(
    __name__,
    Refuse="RefuseChangesetError",
    WriteRefused="WriteRefusedError",
)
