"""Replicas that run on the broker of the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session, sessionmaker

from stompkit.replica import Replica
from stompkit.replica.vectors import merged
from stompkit.testing import RunningBroker
from stompkit.testing.launching.polling import wait_until
from tests.replica.notes import TABLES, Base, Note, make_engine
from tests.replication.brokers import Address, broker_url

__all__ = ["LONG_S", "Node", "Nodes", "everywhere", "offline", "until"]

#: Timeout in seconds for fast operations on any machine.
LONG_S = 60.0
#: Short delays, as the tests need not wait for late messages.
_QUICK: dict[str, Any] = {
    "announce_delay_s": 0.05,
    "request_delay_s": 0.05,
    "repeat_s": 0.3,
    "poll_s": 0.2,
}
_Given = TypeVar("_Given")


def until(condition: Callable[[], _Given]) -> _Given:
    """Wait for a condition; return its value."""
    given = wait_until(condition, LONG_S)
    assert given, "it did not happen in time"
    return given


def everywhere(*nodes: Node) -> None:
    """Wait until each node has everything that any of them has now."""
    vectors = [node.replica.vector for node in nodes]
    for node in nodes:
        node.replica.wait_until(merged(*vectors), LONG_S)


def offline(a: Node, b: Node, *edits: Callable[[], object]) -> None:
    """Run edits, in that order, while both nodes are offline."""
    for node in (a, b):
        node.replica.stop()
    for edit in edits:
        edit()
    for node in (a, b):
        node.start()


class Node:
    """A database with notes, and the replica in it."""

    def __init__(self, path: Path, **settings: Any) -> None:
        """Create the tables; nothing runs yet."""
        self.path = path
        self.url = url = f"sqlite:///{path}"
        self._settings = settings
        self.engine: Engine = make_engine(url, has_savepoints=False)
        Base.metadata.create_all(self.engine)
        self.sessions: sessionmaker[Session] = sessionmaker(self.engine)
        self.replica = self.another()
        self.replica.create()

    def another(self, **settings: Any) -> Replica:
        """Return another replica on the same database, which captures the same sessions."""
        tables = [Base.metadata.tables[name] for name in TABLES]
        made = {"session_factory": self.sessions, **self._settings, **settings}
        return Replica(self.engine, tables, **made)

    def start(self) -> Node:
        """Run it."""
        self.replica.start()
        return self

    def restart(self, **settings: Any) -> Node:
        """Restart it, as a process does."""
        self.replica.close()
        self.replica = self.another(**settings)
        return self.start()

    def close(self) -> None:
        """End it."""
        try:
            self.replica.close()
        finally:
            self.engine.dispose()

    def add(self, key: str, title: str = "t", body: str | None = None) -> None:
        """Commit a new note."""
        with self.sessions.begin() as session:
            session.add(Note(id=key, title=title, body=body))

    def change(self, key: str, **values: Any) -> None:
        """Commit new values of a note."""
        with self.sessions.begin() as session:
            note = session.get_one(Note, key)
            for name, value in values.items():
                setattr(note, name, value)

    def delete(self, key: str) -> None:
        """Commit the deletion of a note."""
        with self.sessions.begin() as session:
            session.delete(session.get_one(Note, key))

    @property
    def titles(self) -> dict[str, str | None]:
        """Return the titles of the notes, by their keys."""
        with self.sessions() as session:
            return {note.id: note.title for note in session.scalars(select(Note).order_by(Note.id))}

    @property
    def rows(self) -> Sequence[tuple[Any, ...]]:
        """Return the notes with all columns."""
        with self.sessions() as session:
            found = session.scalars(select(Note).order_by(Note.id))
            return [(each.id, each.title, each.body, each.stars) for each in found]

    def has(self, other: Node) -> None:
        """Wait until it has everything that another one has."""
        self.replica.wait_until(other.replica.vector, LONG_S)


class Nodes:
    """Creates nodes on one channel, and ends them."""

    def __init__(self, broker: RunningBroker, directory: Path) -> None:
        """Start without nodes."""
        self.broker = broker
        self.channel = broker.topic("notes")
        self._directory = directory
        self.made: list[Node] = []

    def url(self, *addresses: Address) -> str:
        """Return the URL of the broker, or of a proxy in front of it, without a channel."""
        return broker_url(self.broker, "", *addresses)

    def __call__(self, branch: str, *addresses: Address, **settings: Any) -> Node:
        """Return a node that is not started."""
        has = self.broker.capabilities.__contains__
        made: dict[str, Any] = {
            "branch_id": branch,
            "trunk_id": "AA",
            "replication_hosts": self.url(*addresses),
            "replication_channel": self.channel,
            "send_stomp_ack": has("ack") and has("client-individual"),
            "receipts": has("receipt"),
            **_QUICK,
            **settings,
        }
        node = Node(self._directory / f"{branch}{len(self.made)}.sqlite", **made)
        self.made.append(node)
        return node

    def close(self) -> None:
        """End all, and raise the error of the first of them."""
        failures = []
        for node in self.made:
            try:
                node.close()
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
