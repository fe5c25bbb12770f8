"""An application with notes, and nodes that replicate them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from sqlalchemy import URL, Connection, Engine, ForeignKey, String, create_engine, event, make_url
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from stompkit.replica.applier import Applier, Incoming
from stompkit.replica.capture import Capture
from stompkit.replica.data.sql import SqlData
from stompkit.replica.nodes import identify
from stompkit.replica.rules import Rules
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.store import Store
from stompkit.replication.model.events import Changeset, RowChange, decode

__all__ = ["Base", "Label", "Log", "Note", "Site", "make_engine", "sqlite_url", "written"]

TABLES = ("notes", "labels")


class Base(DeclarativeBase):
    """All tables."""


class Note(Base):
    """A replicated row."""

    __tablename__ = "notes"

    id: Mapped[str] = mapped_column(String(50), primary_key=True)
    title: Mapped[str | None] = mapped_column(String(200))
    body: Mapped[str | None] = mapped_column(String(2000))
    stars: Mapped[int] = mapped_column(default=0)


class Label(Base):
    """A row that belongs to a note."""

    __tablename__ = "labels"

    note_id: Mapped[str] = mapped_column(ForeignKey("notes.id"), primary_key=True)
    word: Mapped[str] = mapped_column(String(50), primary_key=True)


class Log(Base):
    """A row that is not replicated."""

    __tablename__ = "log"

    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(String(200))


def sqlite_url(directory: Path, name: str = "database") -> str:
    """Return the URL of a database in a separate file."""
    return f"sqlite:///{directory / f'{name}.sqlite'}"


def make_engine(url: str | URL, *, has_savepoints: bool = True) -> Engine:
    """Return an engine; SQLite enforces foreign keys and does not sync the disk.

    For savepoints SQLite's driver needs an explicit BEGIN. Without them a transaction begins at its
    first write, so that no other one can have written before that.
    """
    is_sqlite = make_url(url).get_backend_name() == "sqlite"
    engine = create_engine(url, connect_args={"timeout": 60} if is_sqlite else {})
    if is_sqlite:

        @event.listens_for(engine, "connect")
        def connected(connection: Any, _: object) -> None:
            if has_savepoints:
                connection.isolation_level = None
            cursor = connection.cursor()
            cursor.execute("PRAGMA foreign_keys = ON")
            cursor.execute("PRAGMA synchronous = OFF")
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.close()

    if is_sqlite and has_savepoints:

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN")

    return engine


def written(key: str, table: str = "notes", **values: Any) -> RowChange:
    """Return the change of a new row."""
    return RowChange(table=table, action="write", key={"id": key}, after=values)


class Site:
    """A database with the application's tables and a replica's, and captured sessions."""

    def __init__(self, engine: Engine, branch: str = "A", **settings: Any) -> None:
        """Create the tables; ``settings`` are further ones of Capture."""
        self.engine = engine
        self.store = Store(engine, lock_wait_s=0.2)
        self.sessions: sessionmaker[Session] = sessionmaker(engine)
        self.commits = 0
        Base.metadata.create_all(engine)
        self.store.create()
        with self.store.transaction() as tx:
            self.origin = identify(tx, branch, "0A", chance=Random()).origin
        tables = [Base.metadata.tables[name] for name in TABLES]
        self.data = SqlData(engine, tables)
        self.applier = Applier(self.data, Rules(), wall=time.time, save_history=True)
        self.capture = self.watch(self.sessions, **settings)

    def watch(self, factory: Any, **settings: Any) -> Capture:
        """Capture sessions."""
        return Capture(
            factory,
            self.store,
            self.applier,
            TABLES,
            engine=self.engine,
            on_commit=self._count,
            **settings,
        )

    def _count(self) -> None:
        self.commits += 1

    def close(self) -> None:
        """Stop capturing, and close the database."""
        self.capture.close()
        self.engine.dispose()

    @property
    def changesets(self) -> list[Changeset]:
        """Return all changesets that were recorded or applied."""
        with self.store.reading() as reader:
            return [decode(each.body or b"") for each in reader.changesets()]

    @property
    def last(self) -> SignedChangeset:
        """Return the last of them, as it is sent."""
        with self.store.reading() as reader:
            (record,) = reader.changesets(limit=1, descending=True)
        return SignedChangeset(record.body or b"", record.signature)

    def write(self, *changes: RowChange) -> SignedChangeset:
        """Change rows, as another process of this site does."""
        with self.store.transaction() as tx:
            made = self.applier.write(tx, changes)
        assert made is not None
        return made

    def apply(self, *signed: SignedChangeset) -> None:
        """Apply changesets of others."""
        with self.store.transaction() as tx:
            outcome = self.applier.apply(tx, [Incoming(each, "") for each in signed])
        assert len(outcome.applied) == len(signed)

    def state(self, key: str) -> Mapping[str, Any] | None:
        """Return a note as in the replica's state."""
        with self.store.reading() as reader:
            for record in reader.rows_of("notes"):
                if record.key == {"id": key}:
                    return record.state.visible(self.applier.rules.of("notes"))
        return None

    def rows(self) -> Sequence[tuple[Any, ...]]:
        """Return the notes in the application's table."""
        with Session(self.engine) as session:
            found = session.query(Note).order_by(Note.id)
            return [(each.id, each.title, each.body, each.stars) for each in found]
