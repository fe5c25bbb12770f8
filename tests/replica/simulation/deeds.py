"""What an application does at a node, one transaction at a time."""

from __future__ import annotations

from typing import Any

from stompkit.replica.engine import Engine, Status
from stompkit.replica.store import Tx
from stompkit.replication.events import RowChange
from tests.replica.simulation.checks import documents_of, losers_of
from tests.replica.simulation.node import Node
from tests.replica.simulation.oracle import Place

__all__ = ["delete", "documents", "engine_of", "look", "losers", "put", "status_of"]


def put(node: Node, collection: str, id: str, **values: Any) -> bool:
    """Set members of a document, which is made if there is none; gives whether it was committed."""

    def make(tx: Tx) -> list[RowChange]:
        known = look(node, tx, collection, id)
        before = None if known is None else {name: known.get(name) for name in values}
        return [
            RowChange(
                schema="doc",
                table=collection,
                action="write" if known is None else "update",
                key={"id": id},
                before=before,
                after=values,
            )
        ]

    return node.write(make, f"put {collection} {id}")


def delete(node: Node, collection: str, id: str) -> bool:
    """Delete a document; gives whether that was committed."""

    def make(tx: Tx) -> list[RowChange]:
        known = look(node, tx, collection, id)
        return [
            RowChange(schema="doc", table=collection, action="delete", key={"id": id}, before=known)
        ]

    return node.write(make, f"delete {collection} {id}")


def look(node: Node, tx: Tx, collection: str, id: str) -> dict[str, Any] | None:
    """A document, as it is in a transaction."""
    return node.database.data.read_one(tx.connection, f"doc.{collection}", {"id": id})


def documents(node: Node) -> dict[Place, dict[str, Any]]:
    """All documents of a node."""
    with node.database.store.reading() as reader:
        return documents_of(node, reader)


def losers(node: Node) -> dict[Place, dict[str, list[Any]]]:
    """What was not chosen of versions that were made at the same time, by place and member."""
    with node.database.store.reading() as reader:
        return losers_of(reader)


def engine_of(node: Node) -> Engine:
    """The engine of a node that is up."""
    assert node.engine is not None, f"{node.name} is not up"
    return node.engine


def status_of(node: Node) -> Status:
    """What a node that is up says of itself."""
    return engine_of(node).status()
