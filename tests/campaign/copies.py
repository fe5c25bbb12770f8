"""The databases of a run: a source, and replicas that record the changes applied to them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Final

from sqlalchemy import create_engine

from tests.campaign.replicas import Accounts, Applied, Committed, Seen
from tests.campaign.writing import Base, prepare, url_of

__all__ = ["Replica", "Source"]

_PATIENCE_S: Final = 60.0
#: Triggers that add a row for each event, whatever the table had before.
_TRIGGERS: Final = """
CREATE TABLE applied (place INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER NOT NULL);
CREATE TRIGGER inserted AFTER INSERT ON events
    BEGIN INSERT INTO applied (number) VALUES (new.id); END;
CREATE TRIGGER updated AFTER UPDATE ON events
    BEGIN INSERT INTO applied (number) VALUES (new.id); END;
"""


class Source:
    """A database with an outbox."""

    def __init__(self, path: Path) -> None:
        """Create the database."""
        self._path = path
        self.url = url_of(path)
        engine = create_engine(self.url)
        prepare(engine)
        engine.dispose()

    def committed(self) -> list[Committed]:
        """Return all transactions, by their numbers."""
        with closing(_opened(self._path)) as connection:
            return _transactions(connection)

    def accounts(self) -> Accounts:
        """Return the current state of the accounts."""
        with closing(_opened(self._path)) as connection:
            return _accounts(connection)

    def waiting(self) -> int:
        """Return the number of transactions that the relay has not recorded as confirmed."""
        with closing(_opened(self._path)) as connection:
            [[count]] = connection.execute(
                "SELECT count(*) FROM stompkit_outbox WHERE published_at IS NULL"
            )
        return int(count)

    def end_lease(self) -> None:
        """Expire the lease of a relay that was killed, so that the next one starts immediately."""
        with closing(_opened(self._path)) as connection, connection:
            connection.execute("UPDATE stompkit_outbox_state SET lease_expires = 0")


class Replica:
    """A copy that is built from changes."""

    def __init__(self, name: str, path: Path) -> None:
        """Create its tables."""
        self.name = name
        self._path = path
        self.url = url_of(path)
        self.seen: list[Seen] = []
        engine = create_engine(self.url)
        Base.metadata.create_all(engine)
        engine.dispose()
        self.execute(_TRIGGERS)

    def execute(self, script: str) -> None:
        """Run an SQL script in the database."""
        with closing(_opened(self._path)) as connection:
            connection.executescript(script)

    @property
    def count(self) -> int:
        """Number of transactions at the last look."""
        return len(self.seen[-1].numbers) if self.seen else 0

    def look(self) -> None:
        """Record its current state."""
        with closing(_opened(self._path)) as connection:
            # One transaction gives a consistent view.
            connection.execute("BEGIN")
            numbers = connection.execute("SELECT id FROM events ORDER BY id").fetchall()
            accounts = _accounts(connection)
        look = Seen(self.name, tuple(number for (number,) in numbers), accounts)
        if not self.seen or self.seen[-1] != look:
            self.seen.append(look)

    def applied(self) -> Applied:
        """Return the transactions that were applied to it."""
        with closing(_opened(self._path)) as connection:
            connection.execute("BEGIN")
            numbers = connection.execute("SELECT number FROM applied ORDER BY place").fetchall()
            there = _transactions(connection)
        return Applied(self.name, tuple(number for (number,) in numbers), tuple(there))


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)


def _transactions(connection: sqlite3.Connection) -> list[Committed]:
    found = connection.execute("SELECT id, steps, filler FROM events ORDER BY id")
    return [
        Committed(number, steps, sha256(filler.encode()).hexdigest()[:16])
        for number, steps, filler in found
    ]


def _accounts(connection: sqlite3.Connection) -> Accounts:
    found = connection.execute("SELECT id, amount, version FROM accounts")
    return {account: (amount, version) for account, amount, version in found}
