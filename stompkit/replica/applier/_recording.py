"""Records the changes of this node: as changesets of its origin, and in the merged rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from random import Random, SystemRandom
from typing import Any, Final

from stompkit.replica.applier._records import record_of
from stompkit.replica.applier._renewal import renew
from stompkit.replica.applier._rows import WorkingRows
from stompkit.replica.applier._types import WriteRefusedError
from stompkit.replica.changes import expanded, reduced
from stompkit.replica.clock import HybridClock
from stompkit.replica.data import Data
from stompkit.replica.nodes import IdentityError, Node, begin_session, known_node
from stompkit.replica.rows import Stamp
from stompkit.replica.rules import Rules
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.signing import Signer
from stompkit.replica.store import ChangesetRecord, OriginRecord, Tx, row_id
from stompkit.replication.model.events import Changeset, Revision, RowChange, Source

__all__ = ["Recorder"]


class Recorder:
    """Records changes of this node; each transaction becomes one changeset."""

    def __init__(
        self,
        data: Data,
        rules: Rules,
        *,
        wall: Callable[[], float],
        wants: Callable[[str], bool],
        signer: Signer | None,
        save_history: bool,
        max_ahead_s: float,
        chance: Random | None,
    ) -> None:
        """Set up the recorder; see :class:`~stompkit.replica.applier.Applier`."""
        self.data: Final = data
        self.rules: Final = rules
        self.wants: Final = wants
        self._wall = wall
        self._signer = signer
        self._saves_history = save_history
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
                made = reduced(each, rows.visible(each))
                if made is not None:
                    rows.apply(made, stamp, clock)
                    done.append(made)
        return done

    def _node(self, tx: Tx) -> Node:
        node = known_node(tx)
        if node is None:
            raise IdentityError("this database is no replica yet: call Replica.create() first")
        return node

    def seen(self, own: int, *others: int) -> int:
        """Return the hybrid clock ``own`` after it has seen the others."""
        clock = HybridClock(self._wall, own, self._max_ahead_s)
        for each in others:
            clock.see(each)
        return clock.last

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


def _with_key(change: RowChange, key: dict[str, Any]) -> RowChange:
    return RowChange(table=change.table, schema=change.schema, action="delete", key=key)
