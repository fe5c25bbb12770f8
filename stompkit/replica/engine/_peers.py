"""Known nodes, with their vectors and what they know of this node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from stompkit.replica.engine._core import Core
from stompkit.replica.engine._facts import Have
from stompkit.replica.engine._selection import includes
from stompkit.replica.engine._types import Peer
from stompkit.replica.identity import MARK
from stompkit.replica.store import PeerRecord, Reader, Tx
from stompkit.replica.vectors import dominates, least, merged

__all__ = ["Peers"]

_FORGOTTEN: Final = "forgotten"


class Peers:
    """The other nodes of all channels, by origin."""

    def __init__(self, core: Core) -> None:
        """Start empty."""
        self._core = core
        self._peers: dict[str, Peer] = {}
        #: Tables with different rows, by node with the same changesets.
        self.diverged: dict[str, list[str]] = {}
        #: Nodes no longer waited for, with the last message number received from each.
        self.forgotten: dict[str, int] = {}

    def load(self, reader: Reader) -> None:
        """Load the stored nodes."""
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
        """Return all nodes, sorted by origin."""
        return [self._peers[origin] for origin in sorted(self._peers)]

    def get(self, origin: str) -> Peer | None:
        """Return a node; ``None`` if it is unknown."""
        return self._peers.get(origin)

    def forget(self, tx: Tx, origin: str) -> dict[str, int]:
        """Stop waiting for a node until it sends a message.

        Returns the argument for :meth:`forgot`. Raises LookupError if the node is unknown.
        """
        peer = self._peers.get(origin)
        if peer is None:
            raise LookupError(f"no node {origin!r} is known here")
        made = {origin: peer.counter}
        self.store_forgotten(tx, made)
        return made

    def store_forgotten(self, tx: Tx, made: Mapping[str, int]) -> None:
        """Store nodes no longer waited for, with the last message number of each."""
        for origin in made:
            tx.forget_peer(origin)
        tx.set_meta(_FORGOTTEN, merged(self.forgotten, made))

    def rename(self, tx: Tx, former: str, counter: int) -> None:
        """Make all nodes stop waiting for a former origin of this node.

        A copy of the database that still uses it will send higher numbers.
        """
        received = max((each.seen for each in self._peers.values()), default=0)
        made = {former: max(counter, received)}
        self.store_forgotten(tx, made)
        self.forgot(made)

    def forget_former(self) -> None:
        """Stop waiting for unused origins of this node's branch.

        Before a restore from a backup, the node may have used an origin, or message numbers, that
        it does not know. A node that is only away learns of its removal when it returns.
        """
        begins = f"{self._core.node.branch}{MARK}"
        limit = self._core.wall() - 2 * self._core.settings.repeat_max_s
        made = {
            peer.origin: max(peer.counter, peer.reported)
            for peer in self._peers.values()
            if peer.heard_at < limit and peer.origin.startswith(begins)
        }
        if made:
            with self._core.store.transaction() as tx:
                self.store_forgotten(tx, made)
            self.forgot(made)

    def look(self, reader: Reader) -> bool:
        """Apply removals by another process of this node; returns True if there are any."""
        stored: dict[str, int] = reader.meta(_FORGOTTEN) or {}
        made = {name: each for name, each in stored.items() if self.forgotten.get(name, -1) < each}
        self.forgot(made)
        return bool(made)

    def forgot(self, made: Mapping[str, int]) -> None:
        """Remove nodes, after the commit."""
        self.forgotten = merged(self.forgotten, made)
        for origin in made:
            self._peers.pop(origin, None)
            self.diverged.pop(origin, None)

    def note(self, tx: Tx, have: Have, origin: str, ports: set[int]) -> bool:
        """Store an announcement unless it is known or outdated; returns True if it was new.

        ``ports`` are the channels on which it arrived without a relay.
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

    def received(self, have: Have, origin: str, port: int, *, is_direct: bool) -> None:
        """Update the state of a node after its announcement was stored."""
        self.forgot(self._newly_forgotten(have))
        if self._is_forgotten(origin, have.counter):
            # A message in the same batch has reported it.
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
        # Nodes known only from others count: nothing is stable before they have it.
        for name, counter in have.seen.items():
            if name != self._core.origin and not self._is_forgotten(name, counter):
                other = self._peers.setdefault(name, Peer(name))
                other.reported = max(other.reported, counter)
        self._compare(peer, have)

    def _is_forgotten(self, origin: str, counter: int) -> bool:
        """Return True if the message number is not newer than the removal of the node."""
        return counter <= self.forgotten.get(origin, -1)

    def _newly_forgotten(self, have: Have) -> dict[str, int]:
        """Return nodes that another one has removed, and that have sent nothing since."""
        found = {}
        for origin, counter in have.forgotten.items():
            peer = self._peers.get(origin)
            is_known = self.forgotten.get(origin, -1) >= counter
            if not is_known and (peer is None or peer.counter <= counter):
                found[origin] = counter
        found.pop(self._core.origin, None)
        return found

    def _compare(self, peer: Peer, have: Have) -> None:
        """Compare the table digests of a node that has the same changesets."""
        self.diverged.pop(peer.origin, None)
        core = self._core
        if have.vector != core.vector or not includes(have.selection, core.settings.selection):
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
            if core.applier.wants(table) and own.get(table, empty) != theirs.get(table, empty)
        )
        if tables:
            self.diverged[peer.origin] = tables

    def diverged_now(self) -> dict[str, list[str]]:
        """Return the tables with different rows, by node with the same changesets."""
        return {
            origin: tables
            for origin, tables in self.diverged.items()
            if origin in self._peers and self._peers[origin].vector == self._core.vector
        }

    def is_satisfied(self, peer: Peer, announced: int | None) -> bool:
        """Return True if a node has, or knows of, all that this one has.

        ``announced`` is the number of the first announcement of the current vector. A node that has
        more of this node's own changesets than this one still has to report them.
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
        """Return the nodes that may not know this node's vector."""
        return [each for each in self._peers.values() if not self.is_satisfied(each, announced)]

    def is_alone(self, port: int) -> bool:
        """Return True if no node was ever heard on a channel."""
        return not any(port in each.ports for each in self._peers.values())

    def known(self) -> dict[str, int]:
        """Return the union of the vectors of all known nodes."""
        return merged(*(each.vector for each in self._peers.values()), self._core.vector)

    def stable(self, origin_vector: Mapping[str, int]) -> dict[str, int]:
        """Return the vector that all known nodes have reached; ``origin_vector`` is this node's."""
        return least(origin_vector, *(p.vector for p in self._peers.values() if not p.only_sends))

    def seen(self) -> dict[str, int]:
        """Return the last message number received from each node."""
        return {origin: each.counter for origin, each in self._peers.items() if each.counter}

    def reachable(self, ports: Iterable[int]) -> list[Peer]:
        """Return the nodes that are heard directly on one of these channels."""
        wanted = set(ports)
        return [each for each in self._peers.values() if each.ports & wanted]


#: Fields of an announcement that a peer stores separately, or not at all.
_APART: Final = frozenset(("kind", "vector", "counter", "seen", "forgotten", "ask", "trunk"))


def _is_other(known: Peer, have: Have) -> bool:
    """Return True if an announcement with a lower number is still newer.

    That happens after a restore from a backup, or when an original runs beside its copy.
    """
    if have.vector.get(known.origin, 0) > known.vector.get(known.origin, 0):
        return True
    names = {name for name, _ in known.sessions}
    return bool(names) and bool(have.sessions) and have.sessions[-1][0] not in names


def _facts(have: Have) -> dict[str, Any]:
    """Return the other facts of an announcement."""
    made: dict[str, Any] = msgspec.to_builtins(have)
    return {name: each for name, each in made.items() if name not in _APART}
