"""Identity of this node, and detection of other nodes with the same identity.

A store that was copied while in use, or restored from a backup, reuses sequence numbers that other
nodes know with other contents. A node notices when it receives its own message from a session that
it never began. Others notice when a changeset does not follow the one that they know, or when the
node lacks its own last one. They notify the node. It then takes a new origin, with its changesets
since the two stores have parted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from stompkit.replica.engine._core import Core
from stompkit.replica.engine._facts import Have, Parted
from stompkit.replica.engine._peers import Peers
from stompkit.replica.nodes import MOST_SESSIONS, identify, parted
from stompkit.replica.store import Reader, Tx

__all__ = ["Identity"]

_log: Final = logging.getLogger(__name__)

#: Number of last changesets to list for a node; earlier ones are sampled ever more sparsely.
_MOST_TOLD: Final = 1000
#: Maximum number of renewals in a process at the request of others.
_MOST_RENEWALS: Final = 16


class Identity:
    """The identity of this node."""

    def __init__(self, core: Core, peers: Peers) -> None:
        """Start without an identity."""
        self._core = core
        self._peers = peers
        #: Sessions of this node, as it announces them.
        self.lineage: list[tuple[str, int]] = []
        #: Counter that increases when the origin changes.
        self.generation = 0

    def open(self, tx: Tx) -> None:
        """Load the identity of the store, and begin a session."""
        core = self._core
        settings = core.settings
        core.node = identify(
            tx,
            settings.branch_id,
            settings.trunk_id,
            terms={
                "rules": core.applier.rules.fingerprint,
                "selection of tables": settings.selection,
            },
            chance=core.applier.chance,
        )
        self._begin(tx)

    def _begin(self, tx: Tx) -> None:
        self._core.session = self._core.applier.session(tx)
        self.lineage = tx.sessions()[-MOST_SESSIONS:]

    def is_echo(self, have: Have, counter: int) -> bool:
        """Return True if a message is this node's own, since a node receives all messages.

        ``counter`` is the number of its last message. In a session that a copy has inherited, the
        original may have announced more.
        """
        origin = self._core.origin
        return (
            bool(have.sessions)
            and have.sessions[-1][0] in {name for name, _ in self.lineage}
            and have.counter <= counter
            and have.vector.get(origin, 0) <= self._core.vector.get(origin, 0)
        )

    def is_other(self, tx: Tx, have: Have, sender: str, port: int) -> bool:
        """Return True for a message of another node of this trunk; otherwise handles it."""
        core = self._core
        if have.trunk != core.node.trunk:
            core.warnings[f"trunk {sender}"] = (
                f"{sender} is on this channel and belongs to the trunk {have.trunk!r}, not to"
                f" {core.node.trunk!r}: give trunks channels of their own"
            )
            return False
        if sender == core.origin:
            above = parted(tx, have.sessions)
            if above is not None:
                self.renew(tx, above)
            return False
        self._look_for_fork(tx, port, have, sender)
        if have.rules and have.rules != core.applier.rules.fingerprint:
            core.warnings[f"rules {sender}"] = (
                f"{sender} merges by other rules: nodes will show different rows until all have"
                " the same"
            )
        else:
            core.warnings.pop(f"rules {sender}", None)
        return True

    def _look_for_fork(self, tx: Tx, port: int, have: Have, sender: str) -> None:
        """Check that a node has the changesets that are known of it here."""
        known = tx.origins().get(sender)
        received = have.vector.get(sender, 0)
        if known is None or received > known.sequence:
            return
        # A node always has all that it has made, unless its message is outdated; it will check.
        is_same = received == known.sequence and (
            not have.last_id or not known.last_id or have.last_id == known.last_id
        )
        if not is_same:
            self.report_fork(tx, port, sender)

    def report_fork(self, reader: Reader, port: int, origin: str) -> None:
        """Send a node the ids known here under its numbers, so that it can compare.

        What is below the first of them is kept by no node here, and was equal.
        """
        known = reader.origins()[origin]
        last, floor = known.sequence, known.floor
        first = max(floor + 1, last - _MOST_TOLD)
        ids = {number: id[:16] for number, id in reader.ids_of(origin, first, last)}
        step = 1
        while first > floor + 1:
            first = max(floor + 1, first - step)
            found = reader.changeset(origin, first)
            if found is not None:
                ids[first] = found.id[:16]
            step *= 2
        if known.last_id:
            ids[last] = known.last_id[:16]
        if ids:
            self._core.say(port, Parted(origin=origin, ids=sorted(ids.items())), to=origin)

    def received(self, facts: Parted) -> bool:
        """Handle a notice of a fork; returns True if this node has taken a new origin."""
        core = self._core
        if facts.origin != core.origin or not facts.ids:
            return False
        if core.counts["renewed"] >= _MOST_RENEWALS:
            core.warnings["identity"] = (
                "others say again and again that this node is two: it does not listen to that any"
                " more, until it is started again"
            )
            return False
        with self.unless_undone(), core.store.transaction() as tx:
            own = tx.vector().get(core.origin, 0)
            floor = tx.floor().get(core.origin, 0)
            same = min(own, min(number for number, _ in facts.ids) - 1)
            has_others = max(number for number, _ in facts.ids) > own
            for number, id in sorted(facts.ids):
                found = tx.changeset(core.origin, number) if floor < number <= own else None
                if found is not None and found.id.startswith(id):
                    same = number
                elif found is not None:
                    has_others = True
                    break
            if not has_others:
                return False
            self.renew(tx, same)
        return True

    def renew(self, tx: Tx, above: int) -> None:
        """Take a new origin; own changesets after number ``above`` move to it."""
        core = self._core
        old = core.node
        core.node = core.applier.renew(tx, above)
        self._begin(tx)
        self.generation += 1
        self._peers.rename(tx, old.origin, int(tx.meta("counter") or 0))
        core.warnings["identity"] = (
            f"the database of {old.origin} was in use twice, or was put back from a backup: this"
            f" node is {core.node.origin} now. Its changesets above {above} were renamed"
        )
        _log.error(core.warnings["identity"])
        core.counts["renewed"] += 1

    @contextmanager
    def unless_undone(self) -> Iterator[None]:
        """Restore the identity if the transaction fails."""
        core = self._core
        before = core.node, core.session, self.lineage, core.vector
        try:
            yield
        except BaseException:
            core.node, core.session, self.lineage, core.vector = before
            raise
