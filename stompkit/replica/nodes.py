"""Who a replica is: its identity, kept in its own database.

A node is told by its branch. Changesets are numbered by **origin**: the branch and a random part
that is made with the store, so that two nodes which were given one branch never number alike. A
database that is copied, or put back from a backup, would: that is told by its **sessions**, of
which each process that runs a replica begins one with a random name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from stompkit.replica.identity import branch_of, new_origin
from stompkit.replica.store import Reader, Tx

__all__ = [
    "IdentityProblem",
    "Lineage",
    "Node",
    "begin_session",
    "identify",
    "known_node",
    "parted",
]

#: A session's name and the number of the last changeset before it; the oldest first.
Lineage = Sequence[tuple[str, int]]

#: How many sessions are told to others: who was away for longer is taken for another altogether.
MOST_SESSIONS: Final = 16


class IdentityProblem(ValueError):
    """A database that is another replica's, or one of other rules; ``str()`` says what to do."""


@dataclass(frozen=True, slots=True)
class Node:
    """An identity."""

    origin: str
    trunk: str

    @property
    def branch(self) -> str:
        """The name that people have given it."""
        return branch_of(self.origin)


def known_node(reader: Reader) -> Node | None:
    """The replica that a database is, if it is one."""
    found = reader.meta("identity")
    return None if found is None else Node(found["origin"], found["trunk"])


def identify(
    tx: Tx,
    branch_id: str | None,
    trunk_id: str,
    *,
    terms: dict[str, str] | None = None,
    chance: Random,
) -> Node:
    """The replica that a database is; the first time it becomes one.

    Without ``branch_id`` a random one is made. ``terms`` are what must stay as it was when the
    store began, by name: the fingerprints of rules and of the selection of tables. Raises
    :class:`IdentityProblem`.
    """
    terms = terms or {}
    found: dict[str, Any] | None = tx.meta("identity")
    if found is None:
        origin = new_origin(branch_id or f"{chance.getrandbits(32):08x}", chance)
        tx.set_meta("identity", {"origin": origin, "trunk": trunk_id, "terms": terms})
        return Node(origin, trunk_id)
    node = Node(found["origin"], found["trunk"])
    if branch_id is not None and branch_id != node.branch:
        raise IdentityProblem(
            f"this database is the replica {node.branch!r}, and not {branch_id!r}: give each"
            " replica a database of its own, or leave branch_id out"
        )
    if trunk_id != node.trunk:
        raise IdentityProblem(
            f"this database belongs to the trunk {node.trunk!r}, and not to {trunk_id!r}"
        )
    for name, value in terms.items():
        if found["terms"].get(name, value) != value:
            raise IdentityProblem(
                f"the {name} of this replica are not those that it began with: what is merged"
                " already would not be as on other nodes. Use them as they were, or begin with an"
                " empty replica that takes all from another node"
            )
    return node


def begin_session(tx: Tx, node: Node, chance: Random) -> str:
    """Have a process write to the replica; gives the name of its session."""
    session = f"{chance.getrandbits(64):016x}"
    tx.add_session(session, tx.vector().get(node.origin, 0))
    return session


def parted(reader: Reader, others: Lineage) -> int | None:
    """Where two stores with one origin have parted: the last number that they have in common.

    Where this one has all sessions of the other, it is a copy, which has begun others since.
    ``None`` where the other has begun none, nor this one.
    """
    if not others:
        return None
    for name, start in others:
        if not reader.has_session(name):
            return start
    own = reader.sessions()
    last = [name for name, _ in own].index(others[-1][0])
    return own[last + 1][1] if last + 1 < len(own) else None
