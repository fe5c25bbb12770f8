"""The identity of a replica, kept in its own database.

A node is identified by its branch. Changesets are numbered by **origin**: the branch and a random
part that is created with the store, so that two nodes with the same branch never use the same
numbers. A database that was copied or restored from a backup would. **Sessions** reveal that: each
process that runs a replica begins one with a random name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from stompkit._common.moved import renamed
from stompkit.replica.identity import branch_of, new_origin
from stompkit.replica.store import Reader, Tx

__all__ = [
    "IdentityError",
    "Lineage",
    "Node",
    "begin_session",
    "identify",
    "known_node",
    "parted",
]

#: Sessions in order, oldest first: name, and number of the last changeset before the session.
Lineage = Sequence[tuple[str, int]]

#: Number of sessions announced to other nodes. A node away for longer is treated as unrelated.
MOST_SESSIONS: Final = 16


class IdentityError(ValueError):
    """A database of another replica, or of other rules; ``str()`` says what to do."""


@dataclass(frozen=True, slots=True)
class Node:
    """The identity of a node."""

    origin: str
    trunk: str

    @property
    def branch(self) -> str:
        """Name of the node, chosen by the administrator."""
        return branch_of(self.origin)


def known_node(reader: Reader) -> Node | None:
    """Return the identity of the replica in this database, if it has one."""
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
    """Return the identity of the replica in this database; creates it the first time.

    Without ``branch_id`` a random one is created. ``terms`` are values that must not change after
    the store was created, by name: the fingerprints of the rules and of the table selection. Raises
    :class:`IdentityError`.
    """
    terms = terms or {}
    found: dict[str, Any] | None = tx.meta("identity")
    if found is None:
        origin = new_origin(branch_id or f"{chance.getrandbits(32):08x}", chance)
        tx.set_meta("identity", {"origin": origin, "trunk": trunk_id, "terms": terms})
        return Node(origin, trunk_id)
    node = Node(found["origin"], found["trunk"])
    if branch_id is not None and branch_id != node.branch:
        raise IdentityError(
            f"this database is the replica {node.branch!r}, and not {branch_id!r}: give each"
            " replica a database of its own, or leave branch_id out"
        )
    if trunk_id != node.trunk:
        raise IdentityError(
            f"this database belongs to the trunk {node.trunk!r}, and not to {trunk_id!r}"
        )
    for name, value in terms.items():
        if found["terms"].get(name, value) != value:
            raise IdentityError(
                f"the {name} of this replica are not those that it began with: what is merged"
                " already would not be as on other nodes. Use them as they were, or begin with an"
                " empty replica that takes all from another node"
            )
    return node


def begin_session(tx: Tx, node: Node, chance: Random) -> str:
    """Begin a session of a process that writes to the replica; returns its name."""
    session = f"{chance.getrandbits(64):016x}"
    tx.add_session(session, tx.vector().get(node.origin, 0))
    return session


def parted(reader: Reader, others: Lineage) -> int | None:
    """Return the last number that two stores of one origin have in common.

    If this store has all sessions of the other one, it is a copy that has begun others since.
    Returns ``None`` if the other store has no sessions, or none have begun since.
    """
    if not others:
        return None
    for name, start in others:
        if not reader.has_session(name):
            return start
    own = reader.sessions()
    last = [name for name, _ in own].index(others[-1][0])
    return own[last + 1][1] if last + 1 < len(own) else None


renamed(
    __name__,
    IdentityProblem="IdentityError",
)
