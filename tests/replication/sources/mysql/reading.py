"""A database of a server, and the output of its publisher."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from threading import Thread
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor
from sqlalchemy import make_url

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.mysql import MysqlPublisher
from stompkit.replication.sources.offsets import MemoryOffsets, Offsets
from stompkit.replication.sources.publication import Publication
from stompkit.testing.launching.polling import wait_until
from tests.servers import MariaDb

__all__ = ["DEADLINE_S", "Database", "Reading", "numbers", "received"]

#: Timeout of a test in seconds.
DEADLINE_S = 60.0


@contextmanager
def received() -> Iterator[list[Changeset]]:
    """Collect all changesets that are sent in the block."""
    found: list[Changeset] = []

    def receive(changeset: Changeset) -> None:
        found.append(changeset)

    with CHANGESET.connected_to(receive):
        yield found


def numbers(count: int) -> str:
    """Return a table for FROM whose column ``seq`` has the numbers from 1 on, in order."""
    array = f"CONCAT('[', REPEAT('0,', {count - 1}), '0]')"
    return f"JSON_TABLE({array}, '$[*]' COLUMNS (seq FOR ORDINALITY)) AS numbers"


class Database:
    """A separate database."""

    def __init__(self, server: MariaDb) -> None:
        """Create it."""
        self.server = server
        self.name = server.new_database()
        self.url = server.url(self.name)
        self._connection = self.connect()

    @property
    def is_mysql(self) -> bool:
        """True if the server is MySQL itself."""
        return self.server.dialect == "mysql"

    @property
    def gtid_start(self) -> str:
        """Prefix of the GTIDs of this server's transactions."""
        return f"{self.ask('SELECT @@server_uuid')[0][0]}:" if self.is_mysql else "0-1-"

    def reset(self) -> None:
        """Reset the log."""
        self.run("RESET BINARY LOGS AND GTIDS" if self.is_mysql else "RESET MASTER")

    def rotate(self) -> None:
        """Begin a new file of the log, whose end only later statements move."""
        self.run("FLUSH BINARY LOGS")
        if not self.is_mysql:
            assert wait_until(self._is_checkpointed, DEADLINE_S)

    def _is_checkpointed(self) -> bool:
        """Return True if MariaDB has written, in the background, that older files are complete."""
        file, _ = self.end()
        events = self.ask(f"SHOW BINLOG EVENTS IN '{file}'")
        return any(kind == "Binlog_checkpoint" and file in info for _, _, kind, *_, info in events)

    def purge(self) -> None:
        """Purge all files of the log but the last."""
        last = self.end()[0]

        def purged() -> bool:
            self.run(f"PURGE BINARY LOGS TO '{last}'")
            return len(self.ask("SHOW BINARY LOGS")) == 1

        # The server keeps files while it knows of a reader that has disconnected.
        assert wait_until(purged, DEADLINE_S)

    def add_user(self, user: str, password: str = "", *, grants: str) -> None:
        """Create a user who may connect from this machine, replacing one of that name."""
        self.run(
            f"DROP USER IF EXISTS '{user}'@'localhost'",
            f"CREATE USER '{user}'@'localhost' IDENTIFIED BY '{password}'",
            f"GRANT {grants} ON *.* TO '{user}'@'localhost'",
        )

    def connect(self, user: str = "root", password: str = "") -> Connection[Cursor]:
        """Return a separate connection."""
        return pymysql.connect(
            user=user,
            password=password,
            unix_socket=str(self.server.socket),
            database=self.name,
            charset="utf8mb4",
            ssl_disabled=True,
            autocommit=True,
        )

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def run(self, *statements: str) -> None:
        """Run statements, each in its own transaction unless they say otherwise."""
        with self._connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement with many rows."""
        with self._connection.cursor() as cursor:
            cursor.executemany(statement, rows)

    def ask(self, query: str) -> Any:
        """Return the rows of a query."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()

    def end(self) -> tuple[str, int]:
        """Return the end of the log."""
        try:
            row = self.ask("SHOW MASTER STATUS")[0]
        except pymysql.ProgrammingError:
            # Newer versions of MySQL renamed the statement.
            row = self.ask("SHOW BINARY LOG STATUS")[0]
        return str(row[0]), int(row[1])

    def login(self, user: str, password: str = "") -> str:
        """Return the DSN for another user."""
        url = make_url(self.url).set(username=user, password=password)
        return url.render_as_string(hide_password=False)


class Reading:
    """Reads the changes of a database since this object was created."""

    def __init__(
        self, database: Database, *, offsets: Offsets | None = None, **options: Any
    ) -> None:
        """Record the end of the log."""
        self.database = database
        self.offsets = offsets or MemoryOffsets()
        self.tables = options.pop("tables", Tables(include=[f"{database.name}.*"]))
        self.url: str = options.pop("url", database.url)
        self.options = {"start": database.end(), "heartbeat_s": 0.2, **options}

    def publisher(self, **options: Any) -> MysqlPublisher:
        """Return a new publisher that resumes after the last one."""
        publication = Publication(
            self.offsets, kind="mysql", server="test", tables=self.tables, checkpoint_s=0.0
        )
        return MysqlPublisher(self.url, publication=publication, **{**self.options, **options})

    def changesets(self, **options: Any) -> list[Changeset]:
        """Return the changesets since the last call, up to the end of the log."""
        with received() as found:
            self.publisher(**options).run()
        return found

    def changes(self, **options: Any) -> list[RowChange]:
        """Return the changes of all changesets."""
        return [change for each in self.changesets(**options) for change in each.changes]

    @contextmanager
    def running(self, **options: Any) -> Iterator[Running]:
        """Return a running publisher that waits for more, in a thread."""
        with received() as found:
            running = Running(self.publisher(**{"blocking": True, **options}), found)
            try:
                yield running
            finally:
                running.stop()


class Running:
    """A publisher in a thread."""

    def __init__(self, publisher: MysqlPublisher, found: list[Changeset]) -> None:
        """Start it."""
        self.publisher = publisher
        self.found = found
        self.problem: Exception | None = None
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """True if it has not ended."""
        return self._thread.is_alive()

    @property
    def changes(self) -> list[RowChange]:
        """The changes that it has published so far."""
        return [change for each in list(self.found) for change in each.changes]

    def wait_for_changes(self, count: int) -> list[RowChange]:
        """Wait until this many changes have arrived."""
        assert wait_until(lambda: len(self.changes) >= count or not self.is_running, DEADLINE_S)
        assert self.problem is None or len(self.changes) >= count, self.problem
        assert len(self.changes) >= count, self.changes
        return self.changes

    def wait_for_end(self) -> Exception | None:
        """Wait until it has ended; return the error that it raised, if any."""
        self._thread.join(DEADLINE_S)
        assert not self.is_running
        return self.problem

    def stop(self) -> None:
        """Stop it, and wait for its end."""
        self.publisher.stop()
        self._thread.join(DEADLINE_S)
        assert not self.is_running

    def _run(self) -> None:
        try:
            self.publisher.run()
        except Exception as problem:
            self.problem = problem
