"""What is known of other nodes, and whether they know what this one has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from stompkit.replica.engine._core import Core
from stompkit.replica.engine._facts import Have
from stompkit.replica.engine._terms import Peer
from stompkit.replica.identity import MARK
from stompkit.replica.store import PeerRecord, Reader, Tx
from stompkit.replica.vectors import dominates, least, merged

__all__ = ["Peers"]

_FORGOTTEN: Final = "forgotten"


class Peers:
    """The other nodes of all channels, by origin."""

    def __init__(self, core: Core) -> None:
        """Know nobody."""
        self._core = core
        self._peers: dict[str, Peer] = {}
        #: Nodes with the same changesets and other rows: the tables.
        self.diverged: dict[str, list[str]] = {}
        #: Nodes that are not waited for, with the last numbers that were heard of them.
        self.forgotten: dict[str, int] = {}

    def load(self, reader: Reader) -> None:
        """Begin with what was known before."""
        self.forgotten = dict(reader.meta(_FORGOTTEN) or {})
        for origin, record in reader.peers().items():
            if origin != self._core.origin and not self._is_forgotten(origin, record.counter):
                self._peers[origin] = Peer(
                    origin,
                    dict(record.vector),
                    record.counter,
                    record.heard_at,
                    facts=dict(record.facts),
                )

    def all(self) -> list[Peer]:
        """All, by name."""
        return [self._peers[origin] for origin in sorted(self._peers)]

    def get(self, origin: str) -> Peer | None:
        """One of them."""
        return self._peers.get(origin)

    def forget(self, tx: Tx, origin: str) -> dict[str, int]:
        """Do not count on a node any more, until it says something.

        Gives what is for :meth:`forgot`. Raises LookupError where none of that name is known.
        """
        peer = self._peers.get(origin)
        if peer is None:
            raise LookupError(f"no node {origin!r} is known here")
        made = {origin: peer.counter}
        self.store_forgotten(tx, made)
        return made

    def store_forgotten(self, tx: Tx, made: Mapping[str, int]) -> None:
        """Keep who is not waited for, with the last numbers that were heard of them."""
        for origin in made:
            tx.forget_peer(origin)
        tx.set_meta(_FORGOTTEN, merged(self.forgotten, made))

    def rename(self, tx: Tx, former: str, counter: int) -> None:
        """Have nobody wait for a name that this node had, with that last number of its own.

        Whoever else has it, since the database was copied, will say more.
        """
        heard = max((each.seen for each in self._peers.values()), default=0)
        made = {former: max(counter, heard)}
        self.store_forgotten(tx, made)
        self.forgot(made)

    def bury(self) -> None:
        """Have nobody wait for other names of this node's branch, where nobody speaks by them.

        Before its database was put back from a backup, it may have had a name, or have said more by
        one, than it knows. One that is only away is told by all when it comes back.
        """
        begins = f"{self._core.node.branch}{MARK}"
        limit = self._core.wall() - 2 * self._core.settings.repeat_max_s
        made = {
            peer.origin: max(peer.counter, peer.told)
            for peer in self._peers.values()
            if peer.heard_at < limit and peer.origin.startswith(begins)
        }
        if made:
            with self._core.store.transaction() as tx:
                self.store_forgotten(tx, made)
            self.forgot(made)

    def look(self, reader: Reader) -> bool:
        """Know whom another process of this node has forgotten; gives whether there is any."""
        stored: dict[str, int] = reader.meta(_FORGOTTEN) or {}
        made = {name: each for name, each in stored.items() if self.forgotten.get(name, -1) < each}
        self.forgot(made)
        return bool(made)

    def forgot(self, made: Mapping[str, int]) -> None:
        """That is committed."""
        self.forgotten = merged(self.forgotten, made)
        for origin in made:
            self._peers.pop(origin, None)
            self.diverged.pop(origin, None)

    def note(self, tx: Tx, have: Have, origin: str, ports: set[int]) -> bool:
        """Store what a node says, unless that is known or older; gives whether it was new.

        It was heard without a relay on ``ports``.
        """
        known = self._peers.get(origin)
        if self._is_forgotten(origin, have.counter):
            return False
        if known is not None and have.counter <= known.counter and not _is_other(known, have):
            return False
        facts = _facts(have)
        news = self._newly_forgotten(have)
        if news:
            self.store_forgotten(tx, news)
        tx.put_peers(
            [
                PeerRecord(
                    origin=origin,
                    vector=dict(have.vector),
                    counter=have.counter,
                    heard_at=self._core.wall(),
                    ports=sorted(ports | known.ports if known is not None else ports),
                    body=b"",
                    facts=facts,
                )
            ]
        )
        return True

    def heard(self, have: Have, origin: str, port: int, *, is_direct: bool) -> None:
        """Know what a node says, when that is stored."""
        self.forgot(self._newly_forgotten(have))
        if self._is_forgotten(origin, have.counter):
            # Somebody has said so in a message that came together with this one.
            return
        peer = self._peers.setdefault(origin, Peer(origin))
        peer.facts = _facts(have)
        if peer.vector != have.vector:
            peer.useless_until_s = 0.0
            peer.is_gone = False
        peer.vector = dict(have.vector)
        peer.counter = have.counter
        peer.heard_at = self._core.wall()
        peer.seen = max(peer.seen, have.seen.get(self._core.origin, 0))
        if is_direct:
            peer.ports.add(port)
        # Nodes that are heard of, and not yet heard, count: nothing is stable before they have it.
        for name, counter in have.seen.items():
            if name != self._core.origin and not self._is_forgotten(name, counter):
                other = self._peers.setdefault(name, Peer(name))
                other.told = max(other.told, counter)
        self._compare(peer, have)

    def _is_forgotten(self, origin: str, counter: int) -> bool:
        """Whether that number is none after those of a node that is not waited for."""
        return counter <= self.forgotten.get(origin, -1)

    def _newly_forgotten(self, have: Have) -> dict[str, int]:
        """Nodes that another one does not wait for any more, and that have said nothing since."""
        found = {}
        for origin, counter in have.forgotten.items():
            peer = self._peers.get(origin)
            is_known = self.forgotten.get(origin, -1) >= counter
            if not is_known and (peer is None or peer.counter <= counter):
                found[origin] = counter
        found.pop(self._core.origin, None)
        return found

    def _compare(self, peer: Peer, have: Have) -> None:
        """Look whether a node with the same changesets has the same rows."""
        self.diverged.pop(peer.origin, None)
        core = self._core
        if have.vector != core.vector or have.selection != core.settings.selection:
            return
        with core.store.reading() as reader:
            if reader.vector() != have.vector:
                return
            own = {
                table: (f"{digest:032x}", rows)
                for table, (digest, rows) in reader.digests().items()
            }
        theirs = {table: tuple(each) for table, each in have.digests.items()}
        empty = ("0" * 32, 0)
        tables = sorted(
            table
            for table in own.keys() | theirs.keys()
            if own.get(table, empty) != theirs.get(table, empty)
        )
        if tables:
            self.diverged[peer.origin] = tables

    def diverged_now(self) -> dict[str, list[str]]:
        """By node: the tables of which it has other rows, with the changesets of this node."""
        return {
            origin: tables
            for origin, tables in self.diverged.items()
            if origin in self._peers and self._peers[origin].vector == self._core.vector
        }

    def is_satisfied(self, peer: Peer, announced: int | None) -> bool:
        """Whether a node has, or knows of, all that this one has.

        ``announced`` is the number of the first message that told what this node has now. One that
        has more of this node's own changesets than there are here has still to say which.
        """
        own = self._core.vector
        origin = self._core.origin
        if peer.vector.get(origin, 0) > own.get(origin, 0):
            return False
        return (
            peer.only_sends
            or dominates(peer.vector, own)
            or (announced is not None and peer.seen >= announced)
        )

    def unsatisfied(self, announced: int | None) -> list[Peer]:
        """Nodes that may not know what this one has."""
        return [each for each in self._peers.values() if not self.is_satisfied(each, announced)]

    def is_alone(self, port: int) -> bool:
        """Whether nobody was ever heard on a port."""
        return not any(port in each.ports for each in self._peers.values())

    def known(self) -> dict[str, int]:
        """All that anybody has who can be asked."""
        return merged(*(each.vector for each in self._peers.values()), self._core.vector)

    def stable(self, origin_vector: Mapping[str, int]) -> dict[str, int]:
        """What every node is known to have, this one having ``origin_vector``."""
        return least(origin_vector, *(p.vector for p in self._peers.values() if not p.only_sends))

    def seen(self) -> dict[str, int]:
        """The last numbers that were heard of others."""
        return {origin: each.counter for origin, each in self._peers.items() if each.counter}

    def reachable(self, ports: Iterable[int]) -> list[Peer]:
        """Nodes that are heard directly on one of these ports."""
        wanted = set(ports)
        return [each for each in self._peers.values() if each.ports & wanted]


#: What a peer has fields of its own for, or is only said.
_APART: Final = frozenset(("kind", "vector", "counter", "seen", "forgotten", "ask", "trunk"))


def _is_other(known: Peer, have: Have) -> bool:
    """Whether what has a lower number is no older for that.

    So it is where a database was put back from a backup, or another one goes on beside a copy.
    """
    if have.vector.get(known.origin, 0) > known.vector.get(known.origin, 0):
        return True
    names = {name for name, _ in known.sessions}
    return bool(names) and bool(have.sessions) and have.sessions[-1][0] not in names


def _facts(have: Have) -> dict[str, Any]:
    """What else a node has said."""
    made: dict[str, Any] = msgspec.to_builtins(have)
    return {name: each for name, each in made.items() if name not in _APART}
