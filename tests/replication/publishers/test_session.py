"""What a transaction has changed becomes one changeset, once it is committed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, event, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from stompkit.replication.events import Changeset, RowChange
from stompkit.replication.publishers.session import SESSION_ID, sqlalchemy_pub
from stompkit.replication.signals import CHANGESET, signal
from tests.replication.publishers.models import (
    BOOK_TAGS,
    Animal,
    Author,
    Book,
    Cat,
    Employee,
    Heard,
    Keyless,
    Manager,
    Node,
    Pair,
    Tag,
    TextKey,
    contents,
    replay,
)


@pytest.fixture
def pub(sessions: sessionmaker[Session]) -> Iterator[sqlalchemy_pub]:
    """A publisher of all tables."""
    pub = sqlalchemy_pub(sessions)
    yield pub
    pub.close()


pytestmark = pytest.mark.usefixtures("pub")


def _with_authors(sessions: sessionmaker[Session], heard: Heard, *names: str) -> list[int]:
    """Authors that are there already."""
    with sessions.begin() as session:
        authors = [Author(name=name) for name in names]
        session.add_all(authors)
        session.flush()
        ids = [author.id for author in authors]
    heard.changesets.clear()
    return ids


# When.


def test_an_empty_commit_publishes_nothing(sessions: sessionmaker[Session], heard: Heard) -> None:
    with sessions() as session:
        session.commit()
        session.execute(select(Author)).all()
        session.commit()
    assert heard.changesets == []


@pytest.mark.parametrize("expire", [True, False])
def test_a_row_that_was_added_is_published_with_its_key_and_values(
    engine: Engine, heard: Heard, *, expire: bool
) -> None:
    with Session(engine, expire_on_commit=expire) as session:
        pub = sqlalchemy_pub(session)
        author = Author(name="Ann", rank=3)
        session.add(author)
        session.commit()
        pub.close()
    (change,) = heard.changes
    assert change == RowChange(
        table="authors",
        action="write",
        key={"id": author.id} if not expire else change.key,
        after={**change.key, "author_name": "Ann", "rank": 3},
    )
    assert isinstance(change.key["id"], int)


def test_a_flush_publishes_nothing_before_the_commit(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    with sessions() as session:
        session.add(Author(id=5, name="Ann"))
        session.flush()
        assert heard.changesets == []
        session.commit()
    assert heard.take() == ["write authors 5"]


def test_changes_of_several_flushes_are_one_changeset_in_their_order(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    one, two = _with_authors(sessions, heard, "one", "two")
    with sessions() as session:
        session.get_one(Author, one).name = "changed"
        session.flush()
        session.add(Author(id=100, name="three"))
        session.flush()
        session.delete(session.get_one(Author, two))
        session.commit()
    assert len(heard.changesets) == 1
    assert heard.take() == [
        f"update authors {one}",
        "write authors 100",
        f"delete authors {two}",
    ]


def test_changesets_are_numbered_without_gaps_by_one_origin(
    sessions: sessionmaker[Session], heard: Heard, pub: sqlalchemy_pub
) -> None:
    for number in range(1, 4):
        with sessions.begin() as session:
            session.add(Tag(id=number, word="x"))
        with sessions() as session:
            session.add(Tag(id=100, word="x"))
            session.flush()
            session.rollback()
    assert [each.sequence for each in heard.changesets] == [1, 2, 3]
    assert {each.origin for each in heard.changesets} == {pub.origin}
    assert {each.source.kind for each in heard.changesets} == {"sqlalchemy"}


def test_a_session_that_is_removed_is_watched_when_it_is_made_again(
    engine: Engine, heard: Heard
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
    assert heard.take() == ["write tags 1", "write tags 2"]


# Rollbacks and savepoints.


def test_what_was_rolled_back_is_not_published_by_the_next_commit(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    with sessions() as session:
        session.add(Tag(id=300, word="x"))
        session.flush()
        session.rollback()
        session.add(Tag(id=301, word="x"))
        session.commit()
    assert heard.take() == ["write tags 301"]


def test_what_was_rolled_back_unflushed_is_not_published(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    with sessions() as session:
        session.add(Tag(id=300, word="x"))
        session.rollback()
        session.commit()
    assert heard.changesets == []


def test_the_commit_after_an_update_that_was_rolled_back_does_not_fail(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    (one,) = _with_authors(sessions, heard, "one")
    with sessions() as session:
        author = session.get_one(Author, one)
        author.name = "two"
        session.flush()
        session.rollback()
        session.expunge(author)
        session.commit()
        session.add(Tag(id=1, word="x"))
        session.commit()
    assert heard.take() == ["write tags 1"]


def test_a_session_that_is_closed_without_a_commit_publishes_nothing(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    with sessions() as session:
        session.add(Tag(id=300, word="x"))
        session.flush()
    session.add(Tag(id=301, word="x"))
    session.commit()
    session.close()
    assert heard.take() == ["write tags 301"]


def test_a_savepoint_that_is_released_waits_for_the_outermost_commit(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    with sessions() as session:
        with session.begin_nested():
            session.add(Tag(id=1, word="x"))
        assert heard.changesets == []
        session.rollback()
        with session.begin_nested():
            session.add(Tag(id=2, word="x"))
        session.commit()
    assert heard.take() == ["write tags 2"]


def test_the_rollback_of_a_savepoint_drops_its_own_changes_only(
    sessions: sessionmaker[Session], heard: Heard
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
    assert heard.take() == ["write tags 1", "write tags 2", "write tags 4"]


def test_a_flush_that_fails_in_a_savepoint_leaves_the_rest(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    with sessions() as session:
        session.add(Tag(id=1, word="x"))
        session.flush()
        with pytest.raises(IntegrityError), session.begin_nested():
            session.execute(insert(Tag), [{"id": 2, "word": "x"}])
            session.execute(insert(Tag), [{"id": 1, "word": "x"}])
        session.add(Tag(id=3, word="x"))
        session.commit()
    assert heard.take() == ["write tags 1", "write tags 3"]


def test_a_session_goes_on_after_an_error(sessions: sessionmaker[Session], heard: Heard) -> None:
    _with_authors(sessions, heard)
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
    assert heard.take() == ["write tags 1", "write tags 3"]


def test_a_commit_that_somebody_refuses_publishes_nothing(
    sessions: sessionmaker[Session], heard: Heard
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
    assert heard.changesets == []


def test_a_session_inside_of_another_transaction_publishes_with_that(
    engine: Engine, sessions: sessionmaker[Session], heard: Heard
) -> None:
    for is_kept in (False, True):
        with engine.connect() as connection:
            outer = connection.begin()
            with sessions(bind=connection, join_transaction_mode="create_savepoint") as session:
                session.add(Tag(id=1, word="x"))
                session.commit()
            assert heard.changesets == []
            if is_kept:
                outer.commit()
            else:
                outer.rollback()
    assert heard.take() == ["write tags 1"]


def test_a_transaction_of_two_phases_is_published_when_it_is_committed(
    engine: Engine, heard: Heard, request: pytest.FixtureRequest
) -> None:
    if engine.dialect.name != "mariadb":
        # SQLite has none, and those of PostgreSQL have to be allowed by the server's settings.
        assert engine.dialect.name in ("sqlite", "postgresql")
        return
    with Session(engine, twophase=True) as session:
        pub = sqlalchemy_pub(session)
        session.add(Tag(id=1, word="x"))
        session.flush()
        session.prepare()
        assert heard.changesets == []
        session.commit()
        session.add(Tag(id=2, word="x"))
        session.flush()
        session.prepare()
        session.rollback()
        pub.close()
    assert heard.take() == ["write tags 1"]


# What.


@pytest.mark.parametrize("model", [Author, Tag])
def test_a_key_that_is_zero_is_published(
    sessions: sessionmaker[Session], heard: Heard, engine: Engine, model: type[Any]
) -> None:
    with sessions.begin() as session:
        if engine.dialect.name == "mariadb":
            # By itself it takes 0 for a key that it has to make.
            session.connection().exec_driver_sql("SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'")
        session.add(Author(id=0, name="Zero") if model is Author else Tag(id=0, word="zero"))
    assert heard.take() == [f"write {model.__tablename__} 0"]


def test_a_key_that_is_empty_text_is_published(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    with sessions.begin() as session:
        session.add(TextKey(key="", value=0))
    (change,) = heard.changes
    assert (change.key, change.after) == ({"k": ""}, {"k": "", "value": 0})


def test_setting_what_is_there_already_publishes_nothing(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    (one,) = _with_authors(sessions, heard, "one")
    with sessions.begin() as session:
        author = session.get_one(Author, one)
        author.name = "other"
        author.name = "one"
    assert heard.changesets == []


def test_an_update_has_the_row_as_it_was_and_as_it_is(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    (one,) = _with_authors(sessions, heard, "one")
    with sessions.begin() as session:
        session.get_one(Author, one).name = "two"
    (change,) = heard.changes
    assert change.before == {"id": one, "author_name": "one", "rank": None}
    assert change.after == {"id": one, "author_name": "two", "rank": None}
    assert change.key == {"id": one}
    assert change.old_key is None


def test_a_delete_has_the_row_as_it_was(sessions: sessionmaker[Session], heard: Heard) -> None:
    (one,) = _with_authors(sessions, heard, "one")
    with sessions.begin() as session:
        author = session.get_one(Author, one)
        author.name = "changed, but never written"
        session.delete(author)
    (change,) = heard.changes
    assert change.before == {"id": one, "author_name": "one", "rank": None}
    assert change.after is None


def test_what_was_not_loaded_is_not_told_rather_than_loaded(
    engine: Engine, sessions: sessionmaker[Session], heard: Heard
) -> None:
    with sessions.begin() as session:
        session.add(Book(id=1, title="one", notes="long"))
    heard.changesets.clear()
    statements: dict[bool, list[str]] = {False: [], True: []}
    for is_watched, said in statements.items():
        record = partial(_record, said)
        # Sessions of another factory are not watched.
        with (sessions if is_watched else sessionmaker(engine))() as session:
            book = session.get_one(Book, 1)
            session.commit()
            event.listen(engine, "before_cursor_execute", record)
            book.title = f"title {is_watched}"
            session.commit()
            event.remove(engine, "before_cursor_execute", record)
    assert statements[True] == statements[False]
    (change,) = heard.changes
    assert change.after is not None
    assert change.after["title"] == "title True"
    assert "notes" not in change.after | (change.before or {})


def _record(said: list[str], *given: Any) -> None:
    said.append(given[2])


def test_writing_and_changing_a_row_in_one_transaction_is_one_write(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    with sessions.begin() as session:
        author = Author(id=1, name="one")
        session.add(author)
        session.flush()
        author.name = "two"
        session.flush()
        author.rank = 5
    (change,) = heard.changes
    assert change.action == "write"
    assert change.after == {"id": 1, "author_name": "two", "rank": 5}


def test_updates_of_a_row_in_one_transaction_are_one(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    (one,) = _with_authors(sessions, heard, "one")
    with sessions.begin() as session:
        author = session.get_one(Author, one)
        for name in ("two", "three"):
            author.name = name
            session.flush()
    (change,) = heard.changes
    assert change.before == {"id": one, "author_name": "one", "rank": None}
    assert change.after == {"id": one, "author_name": "three", "rank": None}


def test_a_row_that_was_written_and_deleted_in_one_transaction_was_never_there(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    with sessions.begin() as session:
        key = TextKey(key="a")
        session.add(key)
        session.flush()
        session.delete(key)
    assert heard.changesets == []


def test_a_row_that_others_may_refer_to_keeps_its_steps(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    with sessions.begin() as session:
        author = Author(id=1, name="one")
        session.add(author)
        session.flush()
        session.delete(author)
    assert heard.take() == ["write authors 1", "delete authors 1"]


def test_values_that_have_to_be_unique_keep_their_steps(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    rows: dict[str, Any] = {}
    with sessions.begin() as session:
        session.add_all([Book(id=1, title="one"), Book(id=2, title="two")])
    replay(heard.changes, rows)
    heard.changesets.clear()
    with sessions.begin() as session:
        one, two = session.get_one(Book, 1), session.get_one(Book, 2)
        for book, title in ((one, "free"), (two, "one"), (one, "two")):
            book.title = title
            session.flush()
    assert heard.take() == ["update books 1", "update books 2", "update books 1"]


def test_a_row_that_is_deleted_and_written_anew_is_both(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    with sessions.begin() as session:
        session.add(TextKey(key="a", value=1))
    heard.changesets.clear()
    with sessions.begin() as session:
        session.delete(session.get_one(TextKey, "a"))
        session.flush()
        session.add(TextKey(key="a", value=2))
    assert heard.take() == ["delete text_keys a", "write text_keys a"]


def test_a_key_of_several_columns_is_told_in_the_order_of_the_key(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    keys: list[Any] = []

    def hear(key: object) -> None:
        keys.append(key)

    signal("pairs_write").connect(hear)
    with sessions.begin() as session:
        session.add(Pair(first=1, second=2, value="x"))
    (change,) = heard.changes
    assert list(change.key.items()) == [("second", 2), ("first", 1)]
    assert keys == [(2, 1)]


def test_a_change_of_the_key_tells_the_old_one(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    told: list[tuple[str, Any]] = []
    receivers = {}
    for action in ("write", "update", "delete"):
        receivers[action] = lambda key, action=action: told.append((action, key))
        signal(f"text_keys_{action}").connect(receivers[action])
    with sessions.begin() as session:
        session.add(TextKey(key="a", value=1))
    with sessions.begin() as session:
        session.get_one(TextKey, "a").key = "b"
    change = heard.changes[-1]
    assert (change.action, change.key, change.old_key) == ("update", {"k": "b"}, {"k": "a"})
    assert told == [("write", "a"), ("delete", "a"), ("write", "b")]


def test_an_object_in_two_tables_is_a_change_of_each(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    with sessions.begin() as session:
        session.add(Manager(id=1, name="Ann", staff=3))
        session.add(Employee(id=2, name="Bob"))
    assert sorted(heard.take()) == [
        "write employees 1",
        "write employees 2",
        "write managers 1",
    ]
    with sessions.begin() as session:
        session.get_one(Manager, 1).staff = 4
    (change,) = heard.changes
    assert change.table == "managers"
    assert change.before == {"id": 1, "staff": 3}
    assert change.after == {"id": 1, "staff": 4}
    heard.changesets.clear()
    with sessions.begin() as session:
        session.get_one(Employee, 1).name = "Anna"
    assert heard.take() == ["update employees 1"]
    with sessions.begin() as session:
        session.delete(session.get_one(Manager, 1))
    assert heard.take() == ["delete managers 1", "delete employees 1"]


def test_objects_of_several_classes_in_one_table_are_changes_of_that(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    with sessions.begin() as session:
        session.add_all([Cat(id=1, name="Tom", lives=9), Animal(id=2, name="Rex")])
    by_key = {change.key["id"]: change.after for change in heard.changes}
    assert by_key[1] == {"id": 1, "kind": "cat", "name": "Tom", "lives": 9}
    assert by_key[2] == {"id": 2, "kind": "animal", "name": "Rex", "lives": None}


def test_rows_of_an_association_are_changes_of_its_table(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    with sessions.begin() as session:
        tags = [Tag(id=1, word="a"), Tag(id=2, word="b")]
        session.add(Book(id=7, title="one", tags=tags))
    assert sorted(heard.take()) == [
        "write book_tags 7,1",
        "write book_tags 7,2",
        "write books 7",
        "write tags 1",
        "write tags 2",
    ]
    with sessions.begin() as session:
        book = session.get_one(Book, 7)
        book.tags.remove(session.get_one(Tag, 1))
    (change,) = heard.changes
    assert (change.table, change.action) == (BOOK_TAGS.name, "delete")
    assert change.key == {"book_id": 7, "tag_id": 1}


def test_rows_that_refer_to_each_other_are_told_as_they_were_written(
    sessions: sessionmaker[Session], heard: Heard, engine: Engine
) -> None:
    with sessions.begin() as session:
        one, two = Node(id=1), Node(id=2)
        one.next, two.next = two, one
        session.add_all([one, two])
    rows: dict[str, Any] = {}
    replay(heard.changes, rows)
    assert rows == contents(engine)
    assert heard.take()[:2] == ["write nodes 1", "write nodes 2"]


def test_a_table_without_a_key_is_told_by_its_columns(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    with sessions.begin() as session:
        session.add(Keyless(name="a", value=1))
    with sessions.begin() as session:
        session.delete(session.get_one(Keyless, "a"))
    write, delete = heard.changes
    assert (write.key, write.after) == ({}, {"name": "a", "value": 1})
    assert (delete.key, delete.before) == ({}, {"name": "a", "value": 1})


# Which tables.


def test_only_the_tables_that_were_named_are_published(
    sessions: sessionmaker[Session], heard: Heard, pub: sqlalchemy_pub
) -> None:
    pub.close()
    some = sqlalchemy_pub(sessions, ["tags"])
    with sessions.begin() as session:
        session.add_all([Tag(id=1, word="x"), TextKey(key="a"), Author(id=1, name="x")])
    assert heard.take() == ["write tags 1"]
    some(["text_*"])
    assert some.tables == frozenset(["tags", "text_*"])
    with sessions.begin() as session:
        session.add_all([Tag(id=2, word="x"), TextKey(key="b"), Author(id=2, name="x")])
    assert sorted(heard.take()) == ["write tags 2", "write text_keys b"]
    some.close()


@pytest.mark.parametrize("tables", [None, []])
def test_more_tables_than_all_are_all(
    sessions: sessionmaker[Session],
    heard: Heard,
    pub: sqlalchemy_pub,
    tables: list[str] | None,
) -> None:
    pub.close()
    everything = sqlalchemy_pub(sessions, tables)
    everything(["tags"])
    assert everything.tables is None
    with sessions.begin() as session:
        session.add(TextKey(key="a"))
    everything.close()
    assert heard.take() == ["write text_keys a"]


def test_one_text_is_no_list_of_tables(sessions: sessionmaker[Session]) -> None:
    with pytest.raises(ValueError, match="not one text"):
        sqlalchemy_pub(sessions, "tags")


def test_a_publisher_that_was_closed_publishes_nothing(
    sessions: sessionmaker[Session], heard: Heard, pub: sqlalchemy_pub
) -> None:
    pub.close()
    pub.close()
    with sessions.begin() as session:
        session.add(Tag(id=1, word="x"))
    assert heard.changesets == []


# Receivers.


def test_a_receiver_that_fails_breaks_neither_the_program_nor_others(
    sessions: sessionmaker[Session], heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("broken receiver")

    signal("tags_write").connect(fail)
    keys: list[object] = []

    def hear(key: object) -> None:
        keys.append(key)

    signal("tags_write").connect(hear)
    CHANGESET.connect(fail)
    try:
        for number in (1, 2):
            with sessions.begin() as session:
                session.add(Tag(id=number, word="x"))
    finally:
        CHANGESET.disconnect(fail)
    assert keys == [1, 2]
    assert heard.take() == ["write tags 1", "write tags 2"]
    assert "broken receiver" in caplog.text


def test_a_receiver_may_use_the_session_of_the_commit(
    sessions: sessionmaker[Session], heard: Heard
) -> None:
    found: list[str] = []
    session = sessions()

    def look(changeset: Changeset) -> None:
        if changeset.changes[0].table == "tags":
            found.append(session.get_one(Tag, 1).word)
            session.add(TextKey(key="a"))
            session.commit()

    CHANGESET.connect(look)
    try:
        session.add(Tag(id=1, word="read again"))
        session.commit()
    finally:
        CHANGESET.disconnect(look)
        session.close()
    assert found == ["read again"]
    assert "write text_keys a" in heard.take()


# Callbacks.


def test_callbacks_are_told_of_everything_pending_and_of_the_outcome(
    sessions: sessionmaker[Session], heard: Heard, pub: sqlalchemy_pub
) -> None:
    pub.close()
    told: list[tuple[str, list[str]]] = []

    def teller(name: str) -> Any:
        return lambda session, changes: told.append(
            (name, [f"{each.action} {each.table}" for each in changes])
        )

    names = ("on_prepare", "on_commit", "on_rollback")
    watching = sqlalchemy_pub(sessions, **{name: teller(name) for name in names})
    with sessions() as session:
        session.commit()
        session.rollback()
        session.add(Tag(id=1, word="x"))
        session.rollback()
        assert told == []
        session.add(Tag(id=1, word="x"))
        session.flush()
        session.add(TextKey(key="a"))
        session.commit()
        assert told == [
            ("on_prepare", ["write tags"]),
            ("on_prepare", ["write tags", "write text_keys"]),
            ("on_commit", ["write tags", "write text_keys"]),
        ]
        told.clear()
        session.add(Tag(id=2, word="x"))
        with session.begin_nested() as savepoint:
            session.add(TextKey(key="b"))
            session.flush()
            savepoint.rollback()
        session.rollback()
    watching.close()
    assert told == [
        ("on_prepare", ["write tags"]),
        ("on_prepare", ["write tags", "write text_keys"]),
        ("on_prepare", ["write tags"]),
        ("on_rollback", ["write tags"]),
    ]


def test_a_callback_can_refuse_what_is_prepared(
    sessions: sessionmaker[Session], heard: Heard, pub: sqlalchemy_pub
) -> None:
    pub.close()

    def refuse(session: Session, changes: object) -> None:
        raise RuntimeError("no")

    watching = sqlalchemy_pub(sessions, on_prepare=refuse)
    with sessions() as session:
        session.add(Tag(id=1, word="x"))
        with pytest.raises(RuntimeError, match="no"):
            session.commit()
        session.rollback()
        assert session.get(Tag, 1) is None
    watching.close()
    assert heard.changesets == []


def test_what_was_committed_and_could_not_be_published_is_told_as_that(
    sessions: sessionmaker[Session], pub: sqlalchemy_pub
) -> None:
    pub.close()
    told: list[str] = []

    def fail(_: object) -> None:
        raise RuntimeError("broken receiver")

    watching = sqlalchemy_pub(
        sessions,
        on_commit=lambda *_: told.append("commit"),
        on_unpublished=lambda *_: told.append("unpublished"),
    )
    CHANGESET.connect(fail)
    try:
        with sessions.begin() as session:
            session.add(Tag(id=1, word="x"))
    finally:
        CHANGESET.disconnect(fail)
        watching.close()
    assert told == ["unpublished"]


def test_a_session_can_name_its_transaction(sessions: sessionmaker[Session], heard: Heard) -> None:
    with sessions() as session:
        session.info[SESSION_ID] = "number 5"
        session.add(Tag(id=1, word="x"))
        session.commit()
    assert heard.changesets[0].source.transaction == "number 5"
