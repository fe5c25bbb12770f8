"""For any program with sessions, a replay of the published changes equals the database."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from sqlalchemy import Engine, delete, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, SessionTransaction, sessionmaker
from sqlalchemy.orm.exc import ObjectDeletedError
from sqlalchemy.pool import StaticPool

from stompkit.replication.model.events import Changeset
from stompkit.replication.sources.outbox import Outbox
from stompkit.replication.sources.relay import OutboxRelay
from stompkit.replication.sources.session import sqlalchemy_pub
from tests.effort import drawn
from tests.replication.sources.conftest import make_engine
from tests.replication.sources.models import Author, Base, Book, Manager, Tag, TextKey
from tests.replication.sources.received import Received, contents, replay

KEYS = st.integers(0, 4)
WORDS = st.sampled_from(["", "a", "b", "c"])


class Program(RuleBasedStateMachine):
    """Works with one session, and checks the published changes after each commit."""

    def __init__(self) -> None:
        """Start with an empty database in memory."""
        super().__init__()
        self.engine: Engine = make_engine("sqlite://", poolclass=StaticPool)
        Base.metadata.create_all(self.engine)
        factory = sessionmaker(self.engine)
        self.rows: dict[str, Any] = {}
        self.received = Received()
        self.received.__enter__()
        self.watch(factory)
        self.session = factory()
        self.savepoints: deque[SessionTransaction] = deque()
        self.kept: list[object] = []

    def watch(self, factory: sessionmaker[Session]) -> None:
        """Publish the committed changes."""
        self.pub = sqlalchemy_pub(factory)

    def published(self) -> list[Changeset]:
        """Return the changesets since the last call."""
        found = list(self.received.changesets)
        self.received.changesets.clear()
        return found

    def teardown(self) -> None:
        """Compare, and close everything."""
        self.session.close()
        self.check()
        self.pub.close()
        self.received.__exit__(None, None, None)
        self.engine.dispose()

    def check(self) -> None:
        """Compare the rows of the database with the published ones."""
        for changeset in self.published():
            assert changeset.changes
            replay(changeset.changes, self.rows)
        assert {name: rows for name, rows in self.rows.items() if rows} == contents(self.engine)

    def attempt(self) -> None:
        """Flush, or roll back after an error."""
        try:
            self.session.flush()
        except IntegrityError:
            self.session.rollback()
            self.savepoints.clear()
        # The known objects must not depend on the garbage collector.
        self.kept = list(self.session.identity_map.values())

    @initialize(expire=st.booleans())
    def begin(self, expire: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
        """Expire objects at commits, or keep their values."""
        self.session.expire_on_commit = expire

    @rule(model=st.sampled_from([Author, Tag, TextKey, Manager]), key=KEYS, word=WORDS)
    def put(self, model: type[Any], key: int, word: str) -> None:
        """Insert or update a row."""
        if model is Author:
            row: object = Author(id=key, name=word)
        elif model is Tag:
            row = Tag(id=key, word=word)
        elif model is Manager:
            row = Manager(id=key, name=word, staff=len(word))
        else:
            row = TextKey(key=word, value=key)
        try:
            self.session.merge(row)
        except ObjectDeletedError:
            # The rollback of a savepoint has removed the row, which the session does not know.
            self.session.rollback()
            self.savepoints.clear()
        self.attempt()

    @rule(key=KEYS, title=WORDS, author=st.none() | KEYS, tags=st.sets(KEYS))
    def put_book(self, key: int, title: str, author: int | None, tags: set[int]) -> None:
        """Insert or update a row that refers to others."""
        with self.session.no_autoflush:
            book = self.session.get(Book, key)
            found = [self.session.get(Tag, each) for each in tags]
            if book is None:
                book = Book(id=key)
                self.session.add(book)
            book.title, book.author_id = title, author
            book.tags = [tag for tag in found if tag is not None]
        self.attempt()

    @rule(key=KEYS, word=WORDS)
    def change_unflushed(self, key: int, word: str) -> None:
        """Change an object without flushing."""
        tag = self.session.get(Tag, key)
        if tag is not None:
            tag.word = word

    @rule(model=st.sampled_from([Author, Book, Tag, Manager]), key=KEYS)
    def drop(self, model: type[Any], key: int) -> None:
        """Delete an object."""
        row = self.session.get(model, key)
        if row is not None:
            self.session.delete(row)
            self.attempt()

    @rule(old=WORDS, new=WORDS)
    def change_key(self, old: str, new: str) -> None:
        """Change the key of a row."""
        row = self.session.get(TextKey, old)
        if row is not None and (old == new or self.session.get(TextKey, new) is None):
            row.key = new
            self.attempt()

    @rule(least=KEYS, word=WORDS)
    def change_many(self, least: int, word: str) -> None:
        """Change rows by a statement."""
        self.session.execute(update(Tag).where(Tag.id >= least).values(word=word))

    @rule(word=WORDS)
    def drop_many(self, word: str) -> None:
        """Delete rows by a statement."""
        self.session.execute(delete(TextKey).where(TextKey.key > word))

    @rule()
    def savepoint(self) -> None:
        """Begin a savepoint."""
        self.attempt()
        self.savepoints.append(self.session.begin_nested())

    @precondition(lambda self: self.savepoints)
    @rule(is_kept=st.booleans())
    def leave_savepoint(self, is_kept: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
        """Release a savepoint, or roll it back."""
        self.attempt()
        if self.savepoints:
            savepoint = self.savepoints.pop()
            if is_kept:
                savepoint.commit()
            else:
                savepoint.rollback()

    @rule()
    def commit(self) -> None:
        """Commit, and compare."""
        self.attempt()
        self.session.commit()
        self.savepoints.clear()
        self.check()

    @rule(is_closed=st.booleans())
    def roll_back(self, is_closed: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
        """Roll everything back, and compare."""
        if is_closed:
            self.session.close()
        else:
            self.session.rollback()
            while self.session.in_nested_transaction():
                self.session.rollback()
        self.savepoints.clear()
        self.check()


class ProgramWithOutbox(Program):
    """The same with an outbox and its relay."""

    def watch(self, factory: sessionmaker[Session]) -> None:
        """Store the committed changes."""
        self.outbox = Outbox(factory)
        self.outbox.create(self.engine)
        self.pub = self.outbox  # type: ignore[assignment]
        self.relay = OutboxRelay(self.engine, self.publish, batch=2, max_unconfirmed=3)
        self.relayed: list[Changeset] = []

    def publish(self, changeset: Changeset) -> Future[Any]:
        """Confirm at once."""
        self.relayed.append(changeset)
        future: Future[Any] = Future()
        future.set_result(None)
        return future

    def published(self) -> list[Changeset]:
        """Return the changesets that the relay finds."""
        self.relay.run_once()
        found = list(self.relayed)
        self.relayed.clear()
        assert self.relay.status().backlog == 0
        return found

    def teardown(self) -> None:
        """Compare, and close everything."""
        super().teardown()
        assert self.received.changesets == []


_SETTINGS = settings(
    max_examples=drawn(25),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("program", [Program, ProgramWithOutbox])
def test_what_is_published_is_what_the_database_holds(program: type[Program]) -> None:
    case = program.TestCase
    case.settings = _SETTINGS
    case().runTest()
