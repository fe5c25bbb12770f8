"""The actions of an application at a node, one transaction at a time."""

from __future__ import annotations

from typing import Any

from stompkit.replica.engine import Engine, Status
from stompkit.replica.store import Tx
from stompkit.replication.model.events import RowChange
from tests.replica.simulation.checks import documents_of, losers_of
from tests.replica.simulation.node import Node
from tests.replica.simulation.oracle import Place

__all__ = ["delete", "documents", "engine_of", "look", "losers", "put", "status_of"]


def put(node: Node, collection: str, id: str, **values: Any) -> bool:
    """Set members of a document, created if missing; return True if it was committed."""

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
    """Delete a document; return True if that was committed."""

    def make(tx: Tx) -> list[RowChange]:
        known = look(node, tx, collection, id)
        return [
            RowChange(schema="doc", table=collection, action="delete", key={"id": id}, before=known)
        ]

    return node.write(make, f"delete {collection} {id}")


def look(node: Node, tx: Tx, collection: str, id: str) -> dict[str, Any] | None:
    """Return a document, as seen by a transaction."""
    return node.database.data.read_one(tx.connection, f"doc.{collection}", {"id": id})


def documents(node: Node) -> dict[Place, dict[str, Any]]:
    """Return all documents of a node."""
    with node.database.store.reading() as reader:
        return documents_of(node, reader)


def losers(node: Node) -> dict[Place, dict[str, list[Any]]]:
    """Return the losing versions of conflicts, by place and member."""
    with node.database.store.reading() as reader:
        return losers_of(reader)


def engine_of(node: Node) -> Engine:
    """Return the engine of a node that runs."""
    assert node.engine is not None, f"{node.name} is not up"
    return node.engine


def status_of(node: Node) -> Status:
    """Return the status of a node that runs."""
    return engine_of(node).status()
