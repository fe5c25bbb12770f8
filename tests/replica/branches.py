"""Nodes that write documents and exchange their changesets when a test requests it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Self

from sqlalchemy import Engine, create_engine, event

from stompkit.replica.applier import Applier, Hooks, Incoming
from stompkit.replica.compaction import Compacted, Retention, compact
from stompkit.replica.data.documents import DocumentData
from stompkit.replica.history import History
from stompkit.replica.nodes import identify
from stompkit.replica.rules import Rules
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.store import PeerRecord, Store
from stompkit.replica.vectors import least, missing
from stompkit.replication.model.events import RowChange

__all__ = ["BEGIN_S", "NOTES", "Branch", "Wall", "note", "removal"]

NOTES = "doc.notes"
#: Start time of all tests: 2027-01-15, in seconds since 1970.
BEGIN_S = 1_800_000_000.0


class Wall:
    """A time of day that tests set; each reading advances it by a second."""

    def __init__(self) -> None:
        """Start at :data:`BEGIN_S`."""
        self.now = BEGIN_S

    def __call__(self) -> float:
        """Advance and return the time."""
        self.now += 1
        return self.now

    @property
    def time(self) -> datetime:
        """Return the time without advancing it."""
        return datetime.fromtimestamp(self.now, UTC)


def note(id: str, table: str = "notes", /, **members: Any) -> RowChange:
    """Return the change that writes a document, new or with other members."""
    return RowChange(table=table, schema="doc", action="write", key={"id": id}, after=members)


def removal(id: str) -> RowChange:
    """Return the change that deletes a document."""
    return RowChange(table="notes", schema="doc", action="delete", key={"id": id})


@cache
def _empty_database() -> bytes:
    """Return an empty database with all tables: copying it is faster than creating it."""
    with TemporaryDirectory() as directory:
        path = Path(directory, "empty.sqlite")
        engine = _engine(path)
        Store(engine).create()
        DocumentData().create(engine)
        engine.dispose()
        return path.read_bytes()


def _engine(path: Path) -> Engine:
    engine = create_engine(f"sqlite:///{path}")
    # The data need not survive the machine.
    event.listen(engine, "connect", _hurry)
    return engine


def _hurry(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")


class Branch:
    """A node with a separate database."""

    def __init__(
        self,
        directory: Path,
        name: str,
        wall: Wall,
        rules: Rules | None = None,
        hooks: Hooks | None = None,
        *,
        save_history: bool = True,
    ) -> None:
        """Create the database."""
        self.name = name
        self.wall = wall
        self.rules = Rules() if rules is None else rules
        path = directory / f"{name}.sqlite"
        path.write_bytes(_empty_database())
        self.engine = _engine(path)
        self.store = Store(self.engine)
        data = DocumentData()
        chance = Random(name)
        with self.store.transaction() as tx:
            self.origin = identify(tx, name, "0A", chance=chance).origin
        self.applier = Applier(
            data,
            self.rules,
            wall=wall,
            hooks=hooks,
            save_history=save_history,
            chance=chance,
        )
        self.history = History(self.store, self.rules, data)

    def __enter__(self) -> Self:
        """Return the node."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the database."""
        self.engine.dispose()

    def write(self, *changes: RowChange, author: str = "", comment: str = "") -> str:
        """Commit a transaction; return the name of its changeset."""
        with self.store.transaction() as tx:
            signed = self.applier.write(tx, changes, author=author, comment=comment)
        assert signed is not None
        return f"{self.origin}:{signed.changeset.sequence}"

    @property
    def vector(self) -> dict[str, int]:
        """The changesets that it has applied."""
        with self.store.reading() as reader:
            return reader.vector()

    def give(self, other: Branch) -> None:
        """Apply to another node all changesets of this one that it lacks."""
        with self.store.reading() as reader:
            records = reader.ranges(
                missing(other.vector, reader.vector()), limit=100_000, max_bytes=2**40
            )
        incoming = [
            Incoming(SignedChangeset(each.body or b"", each.signature), self.origin)
            for each in records
        ]
        with other.store.transaction() as tx:
            other.applier.apply(tx, incoming)

    def hear(self, *others: Branch) -> None:
        """Receive the vectors of other nodes, without changesets."""
        with self.store.transaction() as tx:
            tx.put_peers([PeerRecord(origin=each.origin, vector=each.vector) for each in others])

    def compact(self, retention: str, **settings: Any) -> Compacted:
        """Compact, considering the vectors of the peers."""
        with self.store.reading() as reader:
            stable = least(reader.vector(), *(each.vector for each in reader.peers().values()))
        keep = settings.pop("keep_unseen", True)
        return compact(
            self.store,
            self.rules,
            Retention.parse(retention, keep_unseen=keep),
            stable,
            self.wall.now,
            **settings,
        )

    @property
    def shown(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the visible notes, by id, without their ids."""
        return titles(self.history.at("head"))


def titles(shown: Mapping[str, Mapping[Any, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return notes by id, without their ids."""
    return {
        key: {name: value for name, value in row.items() if name != "id"}
        for (key,), row in shown.get(NOTES, {}).items()
    }
