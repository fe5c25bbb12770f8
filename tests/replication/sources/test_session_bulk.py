"""Statements outside the unit of work are published, or refused before they run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, delete, insert, literal, select, text, update
from sqlalchemy.orm import Session, sessionmaker

from stompkit.replication.sources.session import UnseenChangeError, sqlalchemy_pub
from tests.replication.sources.conftest import empty, make_engine, only
from tests.replication.sources.models import (
    BOOK_TAGS,
    Author,
    Base,
    Book,
    Cat,
    Generated,
    Tag,
    TextKey,
)
from tests.replication.sources.received import Received, contents, replay
from tests.servers import SqlServer, mysql

__all__ = ["mysql"]


@pytest.fixture
def pub(sessions: sessionmaker[Session]) -> Iterator[sqlalchemy_pub]:
    """A publisher of all tables."""
    pub = sqlalchemy_pub(sessions)
    with sessions.begin() as session:
        session.add_all([Tag(id=number, word=f"word {number}") for number in (1, 2, 3)])
        session.add(Cat(id=1, name="Tom", lives=9))
    yield pub
    pub.close()


@pytest.fixture
def rows(received: Received, pub: sqlalchemy_pub) -> dict[str, Any]:
    """Return the rows that have been published before the test."""
    rows: dict[str, Any] = {}
    replay(received.changes, rows)
    received.changesets.clear()
    return rows


TAGS = Base.metadata.tables["tags"]
STATEMENTS: dict[str, Any] = {
    "update": update(Tag).where(Tag.id > 1).values(word="new"),
    "update by an expression": update(Tag).values(word=Tag.word + "!"),
    "update of a class in a shared table": update(Cat).values(lives=8),
    "update of Core": update(TAGS).where(Tag.id == 1).values(word="new"),
    "delete": delete(Tag).where(Tag.word.like("%2")),
    "delete of everything": delete(Tag),
    "delete of Core": delete(TAGS).where(TAGS.c.id == 3),
    "insert": insert(Tag).values(word="new"),
    "insert of an expression": insert(Tag).values(word=literal("new") + "er"),
    "insert with defaults": insert(Generated).values(),
    "update with a subquery": update(Tag)
    .where(Tag.id.in_(select(Tag.id).where(Tag.word == "word 2").scalar_subquery()))
    .values(word="new"),
}


@pytest.mark.parametrize(
    "name",
    [
        # MySQL does not allow a subquery on the changed table.
        pytest.param(name, marks=pytest.mark.mariadb_only) if "subquery" in name else name
        for name in STATEMENTS
    ],
)
def test_a_statement_is_told_as_what_it_does(
    engine: Engine,
    sessions: sessionmaker[Session],
    received: Received,
    rows: dict[str, Any],
    name: str,
) -> None:
    with sessions.begin() as session:
        session.execute(STATEMENTS[name], execution_options={"synchronize_session": False})
        assert received.changesets == []
    assert received.changes
    replay(received.changes, rows)
    assert {k: v for k, v in rows.items() if v} == contents(engine)


@pytest.mark.mariadb_only
@pytest.mark.parametrize("model", [Tag, TAGS])
def test_rows_that_are_inserted_together_are_told_with_their_keys(
    engine: Engine,
    sessions: sessionmaker[Session],
    received: Received,
    rows: dict[str, Any],
    model: Any,
) -> None:
    with sessions.begin() as session:
        session.execute(insert(model), [{"word": "a"}, {"word": "b"}, {"word": "c"}])
    assert [change.action for change in received.changes] == ["write"] * 3
    replay(received.changes, rows)
    assert rows == contents(engine)


def test_rows_inserted_together_are_refused_where_no_keys_are_returned(
    mysql: SqlServer, received: Received
) -> None:
    """MySQL has no RETURNING; the unit of work queries each key."""
    engine = make_engine(mysql.url(mysql.new_database()))
    empty(engine)
    sessions = sessionmaker(engine)
    pub = sqlalchemy_pub(sessions)
    with sessions.begin() as session:
        with pytest.raises(UnseenChangeError, match="add objects to the session, or give the keys"):
            session.execute(insert(Tag), [{"word": "a"}, {"word": "b"}])
        session.execute(insert(Tag), [{"id": 7, "word": "c"}, {"id": 8, "word": "d"}])
        session.add_all([Tag(word="e"), Tag(word="f")])
    pub.close()
    rows: dict[str, Any] = {}
    replay(received.changes, rows)
    assert len(received.changes) == 4
    assert rows["tags"] == contents(engine)["tags"]
    engine.dispose()


@pytest.mark.mariadb_only
def test_rows_that_are_inserted_and_returned_are_told(
    engine: Engine, sessions: sessionmaker[Session], received: Received, rows: dict[str, Any]
) -> None:
    with sessions.begin() as session:
        tags = session.scalars(insert(Tag).returning(Tag), [{"word": "a"}, {"word": "b"}]).all()
        assert [tag.word for tag in tags] == ["a", "b"]
        with pytest.raises(UnseenChangeError, match="return the key"):
            session.execute(insert(Tag).returning(Tag.word), [{"word": "a"}, {"word": "b"}])
    replay(received.changes, rows)
    assert rows == contents(engine)


def test_rows_that_are_updated_by_their_keys_are_told(
    engine: Engine, sessions: sessionmaker[Session], received: Received, rows: dict[str, Any]
) -> None:
    with sessions.begin() as session:
        changed = [{"id": 1, "word": "x"}, {"id": 2, "word": "word 2"}, {"id": 3, "word": "z"}]
        session.execute(update(Tag), changed)
    assert sorted(change.key["id"] for change in received.changes) == [1, 3]
    replay(received.changes, rows)
    assert rows == contents(engine)


@pytest.mark.mariadb_only
def test_the_old_bulk_methods_are_told(
    engine: Engine, sessions: sessionmaker[Session], received: Received, rows: dict[str, Any]
) -> None:
    with sessions.begin() as session:
        session.bulk_insert_mappings(Tag.__mapper__, [{"word": "a"}, {"word": "b"}])
        session.bulk_update_mappings(Tag.__mapper__, [{"id": 1, "word": "c"}])
        session.bulk_save_objects([Tag(word="d"), Tag(word="e")])
    assert len(received.changes) == 5
    replay(received.changes, rows)
    assert rows == contents(engine)


def test_a_statement_that_changes_nothing_publishes_nothing(
    sessions: sessionmaker[Session], received: Received, rows: dict[str, Any]
) -> None:
    with sessions.begin() as session:
        session.execute(update(Tag).where(Tag.id == 1).values(word="word 1"))
        session.execute(delete(Tag).where(Tag.id == 99))
    assert received.changesets == []


UNSEEN: dict[str, Any] = {
    "several rows in values": insert(Tag).values([{"word": "a"}, {"word": "b"}]),
    "from a SELECT": insert(Tag).from_select(["word"], select(Author.name)),
    "SQL that inserts": text("INSERT INTO tags (id, word) VALUES (77, 'x')"),
    "SQL that updates": text("/* a comment */ update tags set word = 'x'"),
    "SQL that deletes": text("delete from tags where word = 'insert'"),
    "a table without a key": update(Base.metadata.tables["keyless"]).values(value=1),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_what_can_not_be_followed_is_refused_before_it_runs(
    engine: Engine,
    sessions: sessionmaker[Session],
    received: Received,
    rows: dict[str, Any],
    name: str,
) -> None:
    with sessions.begin() as session:
        with pytest.raises(UnseenChangeError):
            session.execute(UNSEEN[name])
        # The transaction can continue.
        session.add(TextKey(key="a"))
    assert received.take() == ["write text_keys a"]
    replay([], rows)
    assert rows["tags"] == contents(engine)["tags"]


def test_a_statement_past_sqlalchemy_is_refused(
    sessions: sessionmaker[Session], pub: sqlalchemy_pub
) -> None:
    with sessions() as session:
        connection = session.connection()
        assert connection.exec_driver_sql("SELECT count(*) FROM tags").scalar() == 3
        with pytest.raises(UnseenChangeError):
            connection.exec_driver_sql("DELETE FROM tags")


# Other databases lack such statements.
@only("postgresql")
def test_a_change_inside_of_a_select_is_refused(
    sessions: sessionmaker[Session], pub: sqlalchemy_pub
) -> None:
    gone = delete(Tag).returning(Tag.id).cte()
    with sessions() as session, pytest.raises(UnseenChangeError):
        session.execute(select(gone))


def test_a_change_of_keys_by_a_statement_can_not_be_committed(
    sessions: sessionmaker[Session], received: Received, rows: dict[str, Any]
) -> None:
    with sessions() as session:
        with pytest.raises(UnseenChangeError):
            session.execute(update(Tag).where(Tag.id == 1).values(id=50))
        with pytest.raises(UnseenChangeError):
            session.commit()
        session.rollback()
        assert session.get(Tag, 50) is None
        session.add(TextKey(key="a"))
        session.commit()
    assert received.take() == ["write text_keys a"]


@pytest.mark.parametrize("bulk", ["refuse", "ignore"])
def test_statements_can_be_refused_or_ignored(
    engine: Engine, sessions: sessionmaker[Session], received: Received, bulk: Any
) -> None:
    pub = sqlalchemy_pub(sessions, bulk=bulk)
    with sessions() as session:
        session.add(Tag(id=1, word="x"))
        session.commit()
        for statement in (update(Tag).values(word="y"), text("update tags set word = 'y'")):
            if bulk == "refuse":
                with pytest.raises(UnseenChangeError):
                    session.execute(statement)
            else:
                session.execute(statement)
        session.commit()
    pub.close()
    assert received.take() == ["write tags 1"]
    assert contents(engine)["tags"][1,]["word"] == ("x" if bulk == "refuse" else "y")


def test_one_statement_can_be_let_pass(
    engine: Engine, sessions: sessionmaker[Session], received: Received, rows: dict[str, Any]
) -> None:
    with sessions.begin() as session:
        options = {"stompkit_bulk": "ignore"}
        session.execute(text("delete from tags where id = 1"), execution_options=options)
        session.execute(delete(Tag).where(Tag.id == 2), execution_options=options)
    assert received.changesets == []
    assert list(contents(engine)["tags"]) == [(3,)]


def test_statements_about_other_tables_are_let_pass(
    sessions: sessionmaker[Session], received: Received, pub: sqlalchemy_pub
) -> None:
    pub.close()
    received.changesets.clear()
    only = sqlalchemy_pub(sessions, ["books"])
    with sessions.begin() as session:
        session.execute(text("delete from tags where id = 1"))
        session.execute(delete(Tag))
        with pytest.raises(UnseenChangeError):
            session.execute(text("delete from books"))
    only.close()
    assert received.changesets == []


def test_rows_of_an_association_that_are_deleted_by_a_statement_are_told(
    engine: Engine, sessions: sessionmaker[Session], received: Received, rows: dict[str, Any]
) -> None:
    with sessions.begin() as session:
        tags = session.scalars(select(Tag)).all()
        session.add_all([Book(id=7, title="one", tags=tags), Book(id=8, title="two", tags=tags)])
    replay(received.changes, rows)
    received.changesets.clear()
    with sessions.begin() as session:
        session.execute(delete(BOOK_TAGS).where(BOOK_TAGS.c.book_id == 7, BOOK_TAGS.c.tag_id > 1))
    replay(received.changes, rows)
    assert rows == contents(engine)
    assert sorted(received.take()) == ["delete book_tags 7,2", "delete book_tags 7,3"]
    with sessions.begin() as session:
        session.execute(delete(BOOK_TAGS))
    assert {change.action for change in received.changes} == {"delete"}
    replay(received.changes, rows)
    assert rows.pop("book_tags") == {}
    assert rows == contents(engine)


@only("sqlite")
def test_what_bulk_is_has_to_be_known(sessions: sessionmaker[Session]) -> None:
    wrong: Any = "guess"
    with pytest.raises(ValueError, match="expand"):
        sqlalchemy_pub(sessions, bulk=wrong)
