"""A changeset contains old and new rows, in an order that can be replayed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session, sessionmaker

from stompkit.replication.model.signals import signal
from tests.replication.sources.models import (
    BOOK_TAGS,
    Animal,
    Author,
    Book,
    Cat,
    Employee,
    Keyless,
    Manager,
    Node,
    Pair,
    Tag,
    TextKey,
)
from tests.replication.sources.received import Received, contents, replay, with_authors

pytestmark = pytest.mark.usefixtures("pub")


@pytest.mark.parametrize("model", [Author, Tag])
def test_a_key_that_is_zero_is_published(
    sessions: sessionmaker[Session], received: Received, engine: Engine, model: type[Any]
) -> None:
    with sessions.begin() as session:
        if engine.dialect.name == "mariadb":
            # By default it generates a key in place of 0.
            session.connection().exec_driver_sql("SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'")
        session.add(Author(id=0, name="Zero") if model is Author else Tag(id=0, word="zero"))
    assert received.take() == [f"write {model.__tablename__} 0"]


def test_a_key_that_is_empty_text_is_published(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions.begin() as session:
        session.add(TextKey(key="", value=0))
    (change,) = received.changes
    assert (change.key, change.after) == ({"k": ""}, {"k": "", "value": 0})


def test_setting_what_is_there_already_publishes_nothing(
    sessions: sessionmaker[Session], received: Received
) -> None:
    (one,) = with_authors(sessions, received, "one")
    with sessions.begin() as session:
        author = session.get_one(Author, one)
        author.name = "other"
        author.name = "one"
    assert received.changesets == []


def test_an_update_has_the_row_as_it_was_and_as_it_is(
    sessions: sessionmaker[Session], received: Received
) -> None:
    (one,) = with_authors(sessions, received, "one")
    with sessions.begin() as session:
        session.get_one(Author, one).name = "two"
    (change,) = received.changes
    assert change.before == {"id": one, "author_name": "one", "rank": None}
    assert change.after == {"id": one, "author_name": "two", "rank": None}
    assert change.key == {"id": one}
    assert change.old_key is None


def test_a_delete_has_the_row_as_it_was(
    sessions: sessionmaker[Session], received: Received
) -> None:
    (one,) = with_authors(sessions, received, "one")
    with sessions.begin() as session:
        author = session.get_one(Author, one)
        author.name = "changed, but never written"
        session.delete(author)
    (change,) = received.changes
    assert change.before == {"id": one, "author_name": "one", "rank": None}
    assert change.after is None


def test_what_was_not_loaded_is_not_told_rather_than_loaded(
    engine: Engine, sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions.begin() as session:
        session.add(Book(id=1, title="one", notes="long"))
    received.changesets.clear()
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
    (change,) = received.changes
    assert change.after is not None
    assert change.after["title"] == "title True"
    assert "notes" not in change.after | (change.before or {})


def _record(said: list[str], *given: Any) -> None:
    said.append(given[2])


def test_writing_and_changing_a_row_in_one_transaction_is_one_write(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions.begin() as session:
        author = Author(id=1, name="one")
        session.add(author)
        session.flush()
        author.name = "two"
        session.flush()
        author.rank = 5
    (change,) = received.changes
    assert change.action == "write"
    assert change.after == {"id": 1, "author_name": "two", "rank": 5}


def test_updates_of_a_row_in_one_transaction_are_one(
    sessions: sessionmaker[Session], received: Received
) -> None:
    (one,) = with_authors(sessions, received, "one")
    with sessions.begin() as session:
        author = session.get_one(Author, one)
        for name in ("two", "three"):
            author.name = name
            session.flush()
    (change,) = received.changes
    assert change.before == {"id": one, "author_name": "one", "rank": None}
    assert change.after == {"id": one, "author_name": "three", "rank": None}


def test_a_row_that_was_written_and_deleted_in_one_transaction_was_never_there(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions.begin() as session:
        key = TextKey(key="a")
        session.add(key)
        session.flush()
        session.delete(key)
    assert received.changesets == []


def test_a_row_that_others_may_refer_to_keeps_its_steps(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions.begin() as session:
        author = Author(id=1, name="one")
        session.add(author)
        session.flush()
        session.delete(author)
    assert received.take() == ["write authors 1", "delete authors 1"]


def test_values_that_have_to_be_unique_keep_their_steps(
    sessions: sessionmaker[Session], received: Received
) -> None:
    rows: dict[str, Any] = {}
    with sessions.begin() as session:
        session.add_all([Book(id=1, title="one"), Book(id=2, title="two")])
    replay(received.changes, rows)
    received.changesets.clear()
    with sessions.begin() as session:
        one, two = session.get_one(Book, 1), session.get_one(Book, 2)
        for book, title in ((one, "free"), (two, "one"), (one, "two")):
            book.title = title
            session.flush()
    assert received.take() == ["update books 1", "update books 2", "update books 1"]


def test_a_row_that_is_deleted_and_written_anew_is_both(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions.begin() as session:
        session.add(TextKey(key="a", value=1))
    received.changesets.clear()
    with sessions.begin() as session:
        session.delete(session.get_one(TextKey, "a"))
        session.flush()
        session.add(TextKey(key="a", value=2))
    assert received.take() == ["delete text_keys a", "write text_keys a"]


def test_a_key_of_several_columns_is_told_in_the_order_of_the_key(
    sessions: sessionmaker[Session], received: Received
) -> None:
    keys: list[Any] = []

    def hear(key: object) -> None:
        keys.append(key)

    signal("pairs_write").connect(hear)
    with sessions.begin() as session:
        session.add(Pair(first=1, second=2, value="x"))
    (change,) = received.changes
    assert list(change.key.items()) == [("second", 2), ("first", 1)]
    assert keys == [(2, 1)]


def test_a_change_of_the_key_tells_the_old_one(
    sessions: sessionmaker[Session], received: Received
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
    change = received.changes[-1]
    assert (change.action, change.key, change.old_key) == ("update", {"k": "b"}, {"k": "a"})
    assert told == [("write", "a"), ("delete", "a"), ("write", "b")]


def test_an_object_in_two_tables_is_a_change_of_each(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions.begin() as session:
        session.add(Manager(id=1, name="Ann", staff=3))
        session.add(Employee(id=2, name="Bob"))
    assert sorted(received.take()) == [
        "write employees 1",
        "write employees 2",
        "write managers 1",
    ]
    with sessions.begin() as session:
        session.get_one(Manager, 1).staff = 4
    (change,) = received.changes
    assert change.table == "managers"
    assert change.before == {"id": 1, "staff": 3}
    assert change.after == {"id": 1, "staff": 4}
    received.changesets.clear()
    with sessions.begin() as session:
        session.get_one(Employee, 1).name = "Anna"
    assert received.take() == ["update employees 1"]
    with sessions.begin() as session:
        session.delete(session.get_one(Manager, 1))
    assert received.take() == ["delete managers 1", "delete employees 1"]


def test_objects_of_several_classes_in_one_table_are_changes_of_that(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions.begin() as session:
        session.add_all([Cat(id=1, name="Tom", lives=9), Animal(id=2, name="Rex")])
    by_key = {change.key["id"]: change.after for change in received.changes}
    assert by_key[1] == {"id": 1, "kind": "cat", "name": "Tom", "lives": 9}
    assert by_key[2] == {"id": 2, "kind": "animal", "name": "Rex", "lives": None}


def test_rows_of_an_association_are_changes_of_its_table(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions.begin() as session:
        tags = [Tag(id=1, word="a"), Tag(id=2, word="b")]
        session.add(Book(id=7, title="one", tags=tags))
    assert sorted(received.take()) == [
        "write book_tags 7,1",
        "write book_tags 7,2",
        "write books 7",
        "write tags 1",
        "write tags 2",
    ]
    with sessions.begin() as session:
        book = session.get_one(Book, 7)
        book.tags.remove(session.get_one(Tag, 1))
    (change,) = received.changes
    assert (change.table, change.action) == (BOOK_TAGS.name, "delete")
    assert change.key == {"book_id": 7, "tag_id": 1}


def test_rows_that_refer_to_each_other_are_told_as_they_were_written(
    sessions: sessionmaker[Session], received: Received, engine: Engine
) -> None:
    with sessions.begin() as session:
        one, two = Node(id=1), Node(id=2)
        one.next, two.next = two, one
        session.add_all([one, two])
    rows: dict[str, Any] = {}
    replay(received.changes, rows)
    assert rows == contents(engine)
    assert received.take()[:2] == ["write nodes 1", "write nodes 2"]


def test_a_table_without_a_key_is_told_by_its_columns(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions.begin() as session:
        session.add(Keyless(name="a", value=1))
    with sessions.begin() as session:
        session.delete(session.get_one(Keyless, "a"))
    write, delete = received.changes
    assert (write.key, write.after) == ({}, {"name": "a", "value": 1})
    assert (delete.key, delete.before) == ({}, {"name": "a", "value": 1})
