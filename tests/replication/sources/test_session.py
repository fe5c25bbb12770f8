"""The changes of a transaction become one changeset when it is committed."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, event, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from stompkit.replication.model.events import RowChange
from stompkit.replication.sources.session import sqlalchemy_pub
from tests.replication.sources.conftest import only
from tests.replication.sources.models import (
    Author,
    Tag,
)
from tests.replication.sources.received import Received, with_authors

pytestmark = pytest.mark.usefixtures("pub")


def test_an_empty_commit_publishes_nothing(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions() as session:
        session.commit()
        session.execute(select(Author)).all()
        session.commit()
    assert received.changesets == []


@pytest.mark.parametrize("expire", [True, False])
def test_a_row_that_was_added_is_published_with_its_key_and_values(
    engine: Engine, received: Received, *, expire: bool
) -> None:
    with Session(engine, expire_on_commit=expire) as session:
        pub = sqlalchemy_pub(session)
        author = Author(name="Ann", rank=3)
        session.add(author)
        session.commit()
        pub.close()
    (change,) = received.changes
    assert change == RowChange(
        table="authors",
        action="write",
        key={"id": author.id} if not expire else change.key,
        after={**change.key, "author_name": "Ann", "rank": 3},
    )
    assert isinstance(change.key["id"], int)


def test_a_flush_publishes_nothing_before_the_commit(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions() as session:
        session.add(Author(id=5, name="Ann"))
        session.flush()
        assert received.changesets == []
        session.commit()
    assert received.take() == ["write authors 5"]


def test_changes_of_several_flushes_are_one_changeset_in_their_order(
    sessions: sessionmaker[Session], received: Received
) -> None:
    one, two = with_authors(sessions, received, "one", "two")
    with sessions() as session:
        session.get_one(Author, one).name = "changed"
        session.flush()
        session.add(Author(id=100, name="three"))
        session.flush()
        session.delete(session.get_one(Author, two))
        session.commit()
    assert len(received.changesets) == 1
    assert received.take() == [
        f"update authors {one}",
        "write authors 100",
        f"delete authors {two}",
    ]


def test_changesets_are_numbered_without_gaps_by_one_origin(
    sessions: sessionmaker[Session], received: Received, pub: sqlalchemy_pub
) -> None:
    for number in range(1, 4):
        with sessions.begin() as session:
            session.add(Tag(id=number, word="x"))
        with sessions() as session:
            session.add(Tag(id=100, word="x"))
            session.flush()
            session.rollback()
    assert [each.sequence for each in received.changesets] == [1, 2, 3]
    assert {each.origin for each in received.changesets} == {pub.origin}
    assert {each.source.kind for each in received.changesets} == {"sqlalchemy"}


def test_a_session_that_is_removed_is_watched_when_it_is_made_again(
    engine: Engine, received: Received
) -> None:
    scoped = scoped_session(sessionmaker(engine))
    pub = sqlalchemy_pub(scoped)
    scoped.add(Tag(id=1, word="x"))
    scoped.commit()
    scoped.remove()
    scoped.add(Tag(id=2, word="x"))
    scoped.commit()
    scoped.remove()
    pub.close()
    assert received.take() == ["write tags 1", "write tags 2"]


# Rollbacks and savepoints.


def test_what_was_rolled_back_is_not_published_by_the_next_commit(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions() as session:
        session.add(Tag(id=300, word="x"))
        session.flush()
        session.rollback()
        session.add(Tag(id=301, word="x"))
        session.commit()
    assert received.take() == ["write tags 301"]


def test_what_was_rolled_back_unflushed_is_not_published(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions() as session:
        session.add(Tag(id=300, word="x"))
        session.rollback()
        session.commit()
    assert received.changesets == []


def test_the_commit_after_an_update_that_was_rolled_back_does_not_fail(
    sessions: sessionmaker[Session], received: Received
) -> None:
    (one,) = with_authors(sessions, received, "one")
    with sessions() as session:
        author = session.get_one(Author, one)
        author.name = "two"
        session.flush()
        session.rollback()
        session.expunge(author)
        session.commit()
        session.add(Tag(id=1, word="x"))
        session.commit()
    assert received.take() == ["write tags 1"]


def test_a_session_that_is_closed_without_a_commit_publishes_nothing(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions() as session:
        session.add(Tag(id=300, word="x"))
        session.flush()
    session.add(Tag(id=301, word="x"))
    session.commit()
    session.close()
    assert received.take() == ["write tags 301"]


def test_a_savepoint_that_is_released_waits_for_the_outermost_commit(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions() as session:
        with session.begin_nested():
            session.add(Tag(id=1, word="x"))
        assert received.changesets == []
        session.rollback()
        with session.begin_nested():
            session.add(Tag(id=2, word="x"))
        session.commit()
    assert received.take() == ["write tags 2"]


def test_the_rollback_of_a_savepoint_drops_its_own_changes_only(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions() as session:
        session.add(Tag(id=1, word="x"))
        outer = session.begin_nested()
        session.add(Tag(id=2, word="x"))
        inner = session.begin_nested()
        session.add(Tag(id=3, word="x"))
        session.flush()
        inner.rollback()
        session.add(Tag(id=4, word="x"))
        outer.commit()
        dropped = session.begin_nested()
        with session.begin_nested():
            session.add(Tag(id=5, word="x"))
        dropped.rollback()
        session.commit()
    assert received.take() == ["write tags 1", "write tags 2", "write tags 4"]


def test_a_flush_that_fails_in_a_savepoint_leaves_the_rest(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions() as session:
        session.add(Tag(id=1, word="x"))
        session.flush()
        with pytest.raises(IntegrityError), session.begin_nested():
            session.execute(insert(Tag), [{"id": 2, "word": "x"}])
            session.execute(insert(Tag), [{"id": 1, "word": "x"}])
        session.add(Tag(id=3, word="x"))
        session.commit()
    assert received.take() == ["write tags 1", "write tags 3"]


def test_a_session_goes_on_after_an_error(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with_authors(sessions, received)
    with sessions() as session:
        session.add(Tag(id=1, word="x"))
        session.commit()
        session.expunge_all()
        session.add_all([Tag(id=1, word="x"), Tag(id=2, word="x")])
        with pytest.raises(IntegrityError):
            session.commit()
        session.rollback()
        session.add(Tag(id=3, word="x"))
        session.commit()
    assert received.take() == ["write tags 1", "write tags 3"]


def test_a_commit_that_somebody_refuses_publishes_nothing(
    sessions: sessionmaker[Session], received: Received
) -> None:
    refused = RuntimeError("no")

    def refuse(session: Session) -> None:
        raise refused

    event.listen(sessions, "before_commit", refuse)
    with sessions() as session:
        session.add(Tag(id=1, word="x"))
        session.flush()
        with pytest.raises(RuntimeError):
            session.commit()
        event.remove(sessions, "before_commit", refuse)
        session.rollback()
        session.commit()
    assert received.changesets == []


def test_a_session_inside_of_another_transaction_publishes_with_that(
    engine: Engine, sessions: sessionmaker[Session], received: Received
) -> None:
    for is_kept in (False, True):
        with engine.connect() as connection:
            outer = connection.begin()
            with sessions(bind=connection, join_transaction_mode="create_savepoint") as session:
                session.add(Tag(id=1, word="x"))
                session.commit()
            assert received.changesets == []
            if is_kept:
                outer.commit()
            else:
                outer.rollback()
    assert received.take() == ["write tags 1"]


# SQLite has no prepared transactions, and PostgreSQL disables them by default.
@only("mariadb")
def test_a_transaction_of_two_phases_is_published_when_it_is_committed(
    engine: Engine, received: Received
) -> None:
    with Session(engine, twophase=True) as session:
        pub = sqlalchemy_pub(session)
        session.add(Tag(id=1, word="x"))
        session.flush()
        session.prepare()
        assert received.changesets == []
        session.commit()
        session.add(Tag(id=2, word="x"))
        session.flush()
        session.prepare()
        session.rollback()
        pub.close()
    assert received.take() == ["write tags 1"]
