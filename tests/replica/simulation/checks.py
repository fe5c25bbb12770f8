"""The invariants of nodes that have exchanged everything."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from stompkit.replica.signed import SignedChangeset
from stompkit.replica.store import Reader
from stompkit.replication.model.events import Changeset
from stompkit.replication.model.values import to_json
from tests.replica.simulation.node import Node
from tests.replica.simulation.oracle import Expected, Place, expected_of
from tests.replica.simulation.tables import COLLECTIONS, KINDS, RULES

__all__ = ["check", "comment_of", "documents_of", "losers_of"]

_MANY: Final = 1_000_000


class _Seen:
    """The contents of a node and of its store."""

    def __init__(self, node: Node) -> None:
        """Read all of it."""
        self.name: Final = node.name
        assert node.engine is not None, f"{node.name} is not up"
        self.status: Final = node.engine.status()
        with node.database.store.reading() as reader:
            self.vector: Final = dict(reader.vector())
            self.digests: Final = reader.digests()
            self.documents: Final = documents_of(node, reader)
            self.states: Final = _states_of(reader)
            self.losers: Final = losers_of(reader)
            self.held: Final = reader.held_numbers()
        self.changesets: Final = node.database.bodies()


def documents_of(node: Node, reader: Reader) -> dict[Place, dict[str, Any]]:
    """Return all documents of a node."""
    found = {}
    for collection in COLLECTIONS:
        for key, values in node.database.data.read(reader.connection, f"doc.{collection}"):
            found[f"doc.{collection}", str(key["id"])] = values
    return found


def _states_of(reader: Reader) -> dict[bytes, bytes]:
    return {each.id: each.encoded() for each in reader.row_page(limit=_MANY)}


def losers_of(reader: Reader) -> dict[Place, dict[str, list[Any]]]:
    """Return the losing versions of conflicts, by place and column."""
    found: dict[Place, dict[str, list[Any]]] = {}
    for record in reader.with_conflicts(limit=_MANY):
        columns = {
            conflict.column: _distinct(loser.value for loser in conflict.losers)
            for conflict in record.state.conflicts(RULES.of(record.table))
            if conflict.column
        }
        if columns:
            found[record.table, str(record.key["id"])] = columns
    return found


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Return the distinct values, whoever has written them."""
    return list({repr(to_json(value)): value for value in values}.values())


def check(nodes: Sequence[Node], lost: Collection[SignedChangeset] = ()) -> int:
    """Raise AssertionError if an invariant is broken; return the number of columns with losers.

    ``lost`` are changesets that no node has any more, since they were only in a database that was
    replaced by an older one. Later ones may have been received, and wait for them.
    """
    seen = [_Seen(node) for node in nodes if node.settings.direction != "send"]
    for each in seen:
        assert not each.status.quarantined, f"{each.name}: {each.status.quarantined}"
        assert not each.status.problems, f"{each.name}: {each.status.problems}"
        _same("vectors", seen[0].vector, each.vector, seen[0].name, each.name)
        _same("documents", seen[0].documents, each.documents, seen[0].name, each.name)
        _same("digests", seen[0].digests, each.digests, seen[0].name, each.name)
        _same("row states", seen[0].states, each.states, seen[0].name, each.name)
        assert not each.status.diverged, f"{each.name}: {each.status.diverged}"
        waiting = _waiting(each, lost)
        assert not waiting, f"{each.name} still holds back {waiting}"
    known = _known(seen, nodes)
    _check_that_nothing_is_lost(nodes, known, lost)
    expected = expected_of(known, KINDS)
    return sum(_check_meaning(each, expected) for each in seen[:1])


def _same(
    what: str, one: Mapping[Any, Any], other: Mapping[Any, Any], first: str, second: str
) -> None:
    """Raise AssertionError if they differ, and show the differences."""
    differing = sorted(
        (name for name in {**one, **other} if one.get(name) != other.get(name)), key=repr
    )
    assert not differing, f"{what} differ: " + "; ".join(
        f"{name}: {first} has {one.get(name)!r}, {second} has {other.get(name)!r}"
        for name in differing
    )


def _waiting(seen: _Seen, lost: Collection[SignedChangeset]) -> dict[str, list[int]]:
    """Return the changesets that are held back, and do not wait for a lost one."""
    gone = {each.dot for each in lost}
    return {
        origin: numbers
        for origin, numbers in seen.held.items()
        if (origin, seen.vector.get(origin, 0) + 1) not in gone
    }


def _known(seen: Sequence[_Seen], nodes: Sequence[Node]) -> list[Changeset]:
    """Return all changesets up to the vector, from any node that still has them."""
    bodies = {id: body for each in seen for id, body in each.changesets.items() if body is not None}
    for node in nodes:
        bodies |= {signed.id: signed.body for signed in node.committed}
    vector = seen[0].vector
    found: dict[tuple[str, int], Changeset] = {}
    ids = {id for each in seen for id in each.changesets}
    for id, body in bodies.items():
        changeset = SignedChangeset(body).changeset
        dot = changeset.origin, changeset.sequence
        if changeset.sequence <= vector.get(changeset.origin, 0):
            # After a renumbering there may be another changeset under the same number.
            if dot not in found or id in ids:
                found[dot] = changeset
    missing = [
        (origin, number)
        for origin, last in vector.items()
        for number in range(1, last + 1)
        if (origin, number) not in found
    ]
    assert not missing, f"nobody has {missing}"
    return list(found.values())


def _check_that_nothing_is_lost(
    nodes: Sequence[Node], known: Sequence[Changeset], lost: Collection[SignedChangeset]
) -> None:
    comments = [each.revision.comment for each in known if each.revision is not None]
    twice = sorted({each for each in comments if comments.count(each) > 1})
    assert not twice, f"there more than once: {twice}"
    committed = {comment_of(signed) for node in nodes for signed in node.committed}
    missing = committed - set(comments) - {comment_of(each) for each in lost}
    assert not missing, f"committed and not there any more: {sorted(missing)}"


def comment_of(signed: SignedChangeset) -> str:
    """Return the identification of a changeset in a scenario, which a renumbering keeps."""
    revision = signed.changeset.revision
    assert revision is not None
    return revision.comment


def _check_meaning(seen: _Seen, expected: Mapping[Place, Expected]) -> int:
    visible = {place: each.visible for place, each in expected.items() if each.visible is not None}
    _same("documents", seen.documents, visible, seen.name, "the oracle")
    losers = {place: each.losers for place, each in expected.items() if each.losers}
    _same("losers", _sorted(seen.losers), _sorted(losers), seen.name, "the oracle")
    return sum(map(len, losers.values()))


def _sorted(losers: Mapping[Place, Mapping[str, list[Any]]]) -> dict[Place, Any]:
    return {
        place: {column: sorted(values, key=repr) for column, values in columns.items()}
        for place, columns in losers.items()
    }
