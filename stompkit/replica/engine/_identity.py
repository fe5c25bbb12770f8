"""Which node this is, and whether another one says that it is the same.

A store that was copied while it is in use, or put back from a backup, numbers changesets that
others know by other contents. A node notices when it hears itself in a session that it has never
begun; others notice when a changeset does not follow on the one that they know, or the node does
not have its own last one, and tell it. It then becomes another origin, with what it has made since
the two have parted.
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

#: How many of the last changesets a node is told: before them only some, ever farther apart.
_MOST_TOLD: Final = 1000
#: How often a process becomes another origin because others say so.
_MOST_RENEWALS: Final = 16


class Identity:
    """See the module."""

    def __init__(self, core: Core, peers: Peers) -> None:
        """Be nobody yet."""
        self._core = core
        self._peers = peers
        #: This node's sessions, as it tells them.
        self.lineage: list[tuple[str, int]] = []
        #: Counts up when the node is called otherwise.
        self.generation = 0

    def open(self, tx: Tx) -> None:
        """Be the node that the store is, in a session."""
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
        """Whether that is what this node has said itself, since it hears all that is said.

        ``counter`` is the number of its last message. In a session that a copy has inherited the
        original may say more.
        """
        origin = self._core.origin
        return (
            bool(have.sessions)
            and have.sessions[-1][0] in {name for name, _ in self.lineage}
            and have.counter <= counter
            and have.vector.get(origin, 0) <= self._core.vector.get(origin, 0)
        )

    def is_other(self, tx: Tx, have: Have, sender: str, port: int) -> bool:
        """Whether a message is of another node of this trunk; do what follows where it is not."""
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
        """See whether a node has what is known here of it."""
        known = tx.origins().get(sender)
        told = have.vector.get(sender, 0)
        if known is None or told > known.sequence:
            return
        # It always has all that it has made, unless what it said is only late: it will see.
        is_same = told == known.sequence and (
            not have.last_id or not known.last_id or have.last_id == known.last_id
        )
        if not is_same:
            self.tell(tx, port, sender)

    def tell(self, reader: Reader, port: int, origin: str) -> None:
        """Tell a node what is known here under its numbers; it sees whether that is so.

        What is below the first of them is kept by nobody here, and was the same.
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

    def told(self, facts: Parted) -> bool:
        """Somebody has changesets with this node's numbers; gives whether it is another now."""
        core = self._core
        if facts.origin != core.origin or not facts.ids:
            return False
        if core.counts["renewed"] >= _MOST_RENEWALS:
            core.warnings["identity"] = (
                "others say again and again that this node is two: it does not listen to that any"
                " more, until it is started anew"
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
        """Be another origin from now on; own changesets above that number become the new one's."""
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
        """What a transaction changes here is as it was when the transaction has failed."""
        core = self._core
        before = core.node, core.session, self.lineage, core.vector
        try:
            yield
        except BaseException:
            core.node, core.session, self.lineage, core.vector = before
            raise
