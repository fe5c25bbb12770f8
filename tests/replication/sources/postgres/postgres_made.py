"""A PostgreSQL database with a slot, and publishers of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import count
from threading import Thread
from typing import Any, Final

import psycopg

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.offsets import MemoryOffsets, Offsets
from stompkit.replication.sources.postgres import PostgresPublisher
from stompkit.replication.sources.publication import Publication
from stompkit.testing.launching.polling import wait_until
from tests.servers import SqlServer

__all__ = ["DEADLINE_S", "Database", "Running", "Taken", "made_publication"]

#: Timeout of any wait, in seconds.
DEADLINE_S: Final = 60.0

_NUMBERS: Final = count(1)


class Database:
    """A database, with a name for a slot and a publication."""

    def __init__(self, server: SqlServer, name: str) -> None:
        """Set the names; no other test uses the database meanwhile."""
        self.server = server
        self.name = name
        #: The user of the publisher, perhaps with a password.
        self.user = "postgres"
        self.slot = f"slot_{next(_NUMBERS)}"
        self.offsets: Offsets = MemoryOffsets()

    @property
    def url(self) -> str:
        """The URL for a publisher."""
        return self.server.url(self.name).replace("postgres@", f"{self.user}@")

    def connect(self, **options: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """Return a connection of a user."""
        url = self.server.url(self.name).replace("+psycopg", "")
        return psycopg.Connection.connect(url, autocommit=True, **options)

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Execute statements, each in its own transaction; return the rows of the last one."""
        rows: list[tuple[Any, ...]] = []
        with self.connect() as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def transaction(self, *statements: str) -> None:
        """Execute statements in one transaction."""
        with self.connect() as connection, connection.transaction():
            for statement in statements:
                connection.execute(statement.encode())

    def slot_lsn(self) -> str | None:
        """Return the confirmed position of the slot, if it exists."""
        rows = self.execute(
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots "
            f"WHERE slot_name = '{self.slot}'"
        )
        return str(rows[0][0]) if rows else None

    def is_active(self) -> bool:
        """Return True if a client reads the slot."""
        rows = self.execute(
            f"SELECT active FROM pg_replication_slots WHERE slot_name = '{self.slot}'"
        )
        return bool(rows and rows[0][0])

    def is_streaming(self) -> bool:
        """Return True if a client receives the stream of the slot, which excludes its creation."""
        rows = self.execute(
            "SELECT pid FROM pg_replication_slots JOIN pg_stat_replication ON pid = active_pid "
            f"WHERE slot_name = '{self.slot}' AND state IN ('catchup', 'streaming')"
        )
        return bool(rows)

    def publication(self, tables: Tables | None = None, **options: Any) -> Publication:
        """Return a publication that stores its checkpoint in this object."""
        return made_publication(self.offsets, tables, **options)

    def publisher(self, publication: Publication, **options: Any) -> PostgresPublisher:
        """Return a publisher of this database."""
        given = {"slot": self.slot, "publication_name": self.slot, "heartbeat_s": 0.2, **options}
        return PostgresPublisher(self.url, publication, **given)

    def begin(self, tables: Tables | None = None) -> None:
        """Create publication and slot: all later commits are published."""
        assert self.read(tables) == []

    def read(
        self, tables: Tables | None = None, *, snapshot: str = "never", **options: Any
    ) -> list[Changeset]:
        """Publish and return the changesets since the last call."""
        publication = self.publication(tables)
        with Taken(publication) as taken:
            self.publisher(publication, snapshot=snapshot, blocking=False, **options).run()
        return taken.changesets

    def changes(self, tables: Tables | None = None, **options: Any) -> list[RowChange]:
        """Publish and return the changes since the last call."""
        return [change for each in self.read(tables, **options) for change in each.changes]

    def drop_slot(self) -> None:
        """Drop the slot, if it exists, once no client reads it."""
        assert wait_until(lambda: not self.is_active(), DEADLINE_S)
        self.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            f"WHERE slot_name = '{self.slot}'"
        )

    def clear(self) -> None:
        """Remove the slot, the publication and all tables."""
        self.drop_slot()
        self.execute(f"ALTER DATABASE {self.name} RESET ALL")
        for (name,) in self.execute("SELECT pubname FROM pg_publication"):
            self.execute(f'DROP PUBLICATION "{name}"')
        schemas = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_|^information_schema$'"
        for (name,) in self.execute(schemas):
            self.execute(f'DROP SCHEMA "{name}" CASCADE')
        self.execute("CREATE SCHEMA public", "GRANT USAGE ON SCHEMA public TO public")


def made_publication(offsets: Offsets, tables: Tables | None = None, **options: Any) -> Publication:
    """Return a publication whose checkpoints are stored immediately."""
    given = {"kind": "postgresql", "server": "here", "checkpoint_s": 0.0, **options}
    return Publication(offsets, tables=tables, **given)


class Taken:
    """Collects the changesets of a publication while it is entered."""

    def __init__(
        self,
        publication: Publication,
        confirm: Callable[[Changeset], Future[None] | None] = lambda changeset: None,
    ) -> None:
        """Set ``confirm``, which returns the future of a changeset, or ``None``."""
        self.changesets: list[Changeset] = []
        self._origin = publication.origin
        self._confirm = confirm

    def __enter__(self) -> Taken:
        """Connect."""
        CHANGESET.connect(self._take)
        return self

    def __exit__(self, *exception: object) -> None:
        """Disconnect."""
        CHANGESET.disconnect(self._take)

    def __iter__(self) -> Iterator[Changeset]:
        """Iterate over the collected changesets."""
        return iter(list(self.changesets))

    @property
    def changes(self) -> list[RowChange]:
        """The collected changes."""
        return [change for each in self for change in each.changes]

    @property
    def sequences(self) -> Sequence[int]:
        """The numbers of the collected changesets."""
        return [each.sequence for each in self]

    def _take(self, changeset: Changeset) -> Future[None] | None:
        if changeset.origin != self._origin:
            return None
        self.changesets.append(changeset)
        return self._confirm(changeset)


class Running:
    """A publisher that runs in a thread while it is entered."""

    def __init__(
        self,
        database: Database,
        tables: Tables | None = None,
        *,
        confirm: Callable[[Changeset], Future[None] | None] = lambda changeset: None,
        most: int = 1000,
        snapshot: str = "never",
        **options: Any,
    ) -> None:
        """Resume at the database's checkpoint."""
        self.database = database
        self.publication = database.publication(tables, max_unconfirmed=most)
        self.publisher = database.publisher(self.publication, snapshot=snapshot, **options)
        self.taken = Taken(self.publication, confirm)
        self.error: BaseException | None = None
        self._thread = Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.publisher.run()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Running:
        """Run; return when the slot is read, or when the publisher has ended."""
        self.taken.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop, and raise the error of the publisher."""
        self.publisher.stop()
        self.join()
        self.taken.__exit__()
        if self.error is not None:
            raise self.error

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition."""
        is_so = wait_until(lambda: self.error is not None or condition(), DEADLINE_S)
        if self.error is not None:
            raise self.error
        assert is_so

    def until_changes(self, number: int) -> list[RowChange]:
        """Wait until this many changes were published."""
        self.until(lambda: len(self.taken.changes) >= number)
        return self.taken.changes

    def until_streaming(self) -> None:
        """Wait until the slot is read."""
        self.until(self.database.is_streaming)
