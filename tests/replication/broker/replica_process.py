"""A node in a child process: an application that writes, and the replica in its database.

It reads requests as lines of JSON, and answers each with one line. Its worker records committed
items in a file, which survives a kill of the process.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import String, event, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from sqlalchemy.orm.exc import StaleDataError

from stompkit.replica import (
    RefuseChangesetError,
    Replica,
    Rules,
    StoreBusyError,
    TableRules,
    counter,
)
from stompkit.replication.model.events import Changeset
from tests.replica.notes import make_engine

__all__ = ["Order"]

#: Timeout in seconds for fast operations on any machine.
_LONG_S: Final = 60.0
#: Items that all nodes may write at any time.
_SHARED: Final = [f"shared {number}" for number in range(20)]
#: Errors of a transaction that conflicts with another one: it is repeated.
_IN_THE_WAY: Final = (DBAPIError, StaleDataError, StoreBusyError)
_Given = TypeVar("_Given")


class _Base(DeclarativeBase):
    """The application's tables."""


class Item(_Base):
    """A row that the nodes write."""

    __tablename__ = "items"

    id: Mapped[str] = mapped_column(String(50), primary_key=True)
    title: Mapped[str | None] = mapped_column(String(200))
    body: Mapped[str | None] = mapped_column(String(200))


class Tally(_Base):
    """The number of new items of all workers, updated in the transaction that adds an item."""

    __tablename__ = "tallies"

    id: Mapped[str] = mapped_column(String(50), primary_key=True)
    count: Mapped[int]


RULES: Final = Rules(tables={"tallies": TableRules(columns={"count": counter()})})


class Order(msgspec.Struct, kw_only=True):
    """The parameters of the process."""

    database: str
    """Its URL."""
    journal: str
    """File where the worker records the items that it has committed."""
    settings: dict[str, Any]
    """Settings of the replica."""
    refused: list[str] = []
    """Titles of changes that are rejected when they come from other nodes."""


class _Node:
    """The application; each public method can be requested by name."""

    def __init__(self, order: Order) -> None:
        """Create missing tables, and run the replica."""
        self._engine = make_engine(order.database)
        if self._engine.dialect.name == "sqlite":
            event.listen(self._engine, "connect", _wait_a_little)
        _Base.metadata.create_all(self._engine)
        self._sessions: sessionmaker[Session] = sessionmaker(self._engine)
        self._refused = order.refused
        self._replica = Replica(
            self._engine,
            _Base.metadata,
            session_factory=self._sessions,
            settings=order.settings,
            rules=RULES,
            validate=self._validate,
        )
        self._open: Session | None = None
        self._worker: threading.Thread | None = None
        self._failure: Exception | None = None
        self._is_resting = threading.Event()
        self._branch = str(order.settings["branch_id"])
        self._journal = os.open(order.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        # After a kill, some committed items may be missing in the file.
        self._incarnation = os.urandom(4).hex()
        self._numbers = count()
        self._replica.create()
        self._commit(_begin_tally)
        self._replica.start()

    def close(self) -> None:
        self.rest()
        self._replica.close()
        self._engine.dispose()

    def _validate(self, changeset: Changeset) -> None:
        for change in changeset.changes:
            if (change.after or {}).get("title") in self._refused:
                raise RefuseChangesetError("nobody wants that")

    def _commit(self, change: Callable[[Session], _Given]) -> _Given:
        """Commit a transaction; repeat it after a conflict with another one."""
        until = time.monotonic() + _LONG_S
        while True:
            try:
                with self._sessions.begin() as session:
                    return change(session)
            except _IN_THE_WAY:
                if time.monotonic() > until:
                    raise

    # Requests.

    def write(self, rows: Mapping[str, Mapping[str, str] | None]) -> None:
        def change(session: Session) -> None:
            for key, values in rows.items():
                _write(session, key, values)

        self._commit(change)

    def begin(self, key: str, values: Mapping[str, str]) -> None:
        """Write an item, and leave the transaction open."""
        self._open = self._sessions()
        _write(self._open, key, values)
        self._open.flush()

    def commit(self) -> None:
        """Commit the open transaction."""
        assert self._open is not None
        self._open.commit()
        self._open.close()

    def work(self, seed: int, most: int) -> None:
        self._is_resting.clear()
        self._worker = threading.Thread(
            target=self._work_on, args=(Random(seed), most), daemon=True
        )
        self._worker.start()

    def rest(self) -> None:
        """Stop the worker, and raise its error, if any."""
        self._is_resting.set()
        if self._worker is not None:
            self._worker.join()
        if self._failure is not None:
            raise self._failure

    def _work_on(self, chance: Random, most: int) -> None:
        try:
            self._work(chance, most)
        except Exception as error:
            self._failure = error

    def _work(self, chance: Random, most: int) -> None:
        for _ in range(most):
            key = f"{self._branch} {self._incarnation} {next(self._numbers)}"
            deeds = {
                each: chance.choice(("title", "body", "title", "body", ""))
                for each in chance.sample(_SHARED, chance.randrange(3))
            }
            is_counted = chance.random() < 0.25
            self._commit(partial(_work_once, key=key, deeds=deeds, is_counted=is_counted))
            os.write(self._journal, f"{key}\n".encode())
            # A busy application would leave its replica no time to write.
            if self._is_resting.wait(chance.random() / 20):
                return

    def offline(self) -> None:
        self._replica.stop()

    def online(self) -> None:
        self._replica.start()

    def vector(self) -> dict[str, int]:
        return self._replica.vector

    def wait(self, vector: Mapping[str, int]) -> None:
        self._replica.wait_until(vector, _LONG_S)

    def status(self) -> Any:
        return msgspec.to_builtins(self._replica.status())

    def check(self) -> list[str]:
        return [str(each) for each in self._replica.check()]

    def conflicts(self) -> dict[str, list[str]]:
        """Return the columns in conflict, by the keys of items."""
        return {
            str(each.key["id"]): sorted(one.column for one in each.conflicts)
            for each in self._replica.conflicts()
        }

    def resolve(self, key: str, values: Mapping[str, str]) -> None:
        self._replica.resolve("items", {"id": key}, values)

    def compact(self) -> int:
        return self._replica.compact().changesets

    def skip(self, dot: str) -> None:
        self._replica.skip(dot)

    def retry(self, refused: list[str]) -> None:
        self._refused = refused
        self._replica.retry()

    def items(self) -> dict[str, list[str | None]]:
        with self._sessions() as session:
            found = session.scalars(select(Item).order_by(Item.id))
            return {each.id: [each.title, each.body] for each in found}

    def tally(self) -> int | None:
        with self._sessions() as session:
            return session.scalar(select(Tally.count))


def _wait_a_little(connection: Any, _: object) -> None:
    # The replica must report a locked database, and not only wait for it.
    connection.execute("PRAGMA busy_timeout = 500")


def _write(session: Session, key: str, values: Mapping[str, str] | None) -> None:
    # Lock the row, if possible: the written values are based on the values read here.
    item = session.get(Item, key, with_for_update=True)
    if values is None:
        if item is not None:
            session.delete(item)
    elif item is None:
        session.add(Item(id=key, **values))
    else:
        for name, value in values.items():
            setattr(item, name, value)


def _begin_tally(session: Session) -> None:
    # Two concurrent transactions may both create the row: then one of them conflicts.
    if session.get(Tally, "all") is None:
        session.add(Tally(id="all", count=0))


def _work_once(session: Session, *, key: str, deeds: Mapping[str, str], is_counted: bool) -> None:
    """Write a new item, perhaps a higher tally, and changes of items that other nodes write."""
    session.add(Item(id=key, title="counted" if is_counted else "new"))
    for shared, column in sorted(deeds.items()):
        _write(session, shared, {column: f"{column} of {key}"} if column else None)
    if is_counted:
        session.get_one(Tally, "all", with_for_update=True).count += 1


def _main() -> None:
    lines = sys.stdin.buffer
    node = _Node(msgspec.json.decode(lines.readline(), type=Order))
    for line in lines:
        told = msgspec.json.decode(line)
        try:
            answer = {"given": getattr(node, told["do"])(**told["how"])}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()
    node.close()


if __name__ == "__main__":
    _main()
