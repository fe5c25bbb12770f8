"""The watched tables of a publisher, its receivers and their influence."""

from __future__ import annotations

from typing import Any

import pytest
from blinker import Signal
from sqlalchemy import create_engine
from sqlalchemy.orm import Session, sessionmaker

from stompkit.replication.model.events import Changeset
from stompkit.replication.model.signals import CHANGESET, signal
from stompkit.replication.sources.session import SESSION_ID, sqlalchemy_pub
from tests.replication.sources.conftest import only
from tests.replication.sources.models import (
    Author,
    Base,
    Tag,
    TextKey,
)
from tests.replication.sources.received import Received

pytestmark = pytest.mark.usefixtures("pub")


# Which tables.


def test_only_the_tables_that_were_named_are_published(
    sessions: sessionmaker[Session], received: Received, pub: sqlalchemy_pub
) -> None:
    pub.close()
    some = sqlalchemy_pub(sessions, ["tags"])
    with sessions.begin() as session:
        session.add_all([Tag(id=1, word="x"), TextKey(key="a"), Author(id=1, name="x")])
    assert received.take() == ["write tags 1"]
    some(["text_*"])
    assert some.tables == frozenset(["tags", "text_*"])
    with sessions.begin() as session:
        session.add_all([Tag(id=2, word="x"), TextKey(key="b"), Author(id=2, name="x")])
    assert sorted(received.take()) == ["write tags 2", "write text_keys b"]
    some.close()


@pytest.mark.parametrize("tables", [None, []])
def test_tables_that_are_named_later_are_those_that_are_published(
    sessions: sessionmaker[Session],
    received: Received,
    pub: sqlalchemy_pub,
    tables: list[str] | None,
) -> None:
    pub.close()
    everything = sqlalchemy_pub(sessions, tables)
    assert not everything.tables
    everything(["tags", "text_keys"])
    everything(["text_keys"])
    assert sorted(everything.tables or ()) == ["tags", "text_keys"]
    with sessions.begin() as session:
        session.add_all([TextKey(key="a"), Author(id=1, name="x")])
    everything.close()
    assert received.take() == ["write text_keys a"]


@only("sqlite")
def test_one_text_is_no_list_of_tables(sessions: sessionmaker[Session]) -> None:
    with pytest.raises(ValueError, match="not one text"):
        sqlalchemy_pub(sessions, "tags")


def test_a_publisher_that_was_closed_publishes_nothing(
    sessions: sessionmaker[Session], received: Received, pub: sqlalchemy_pub
) -> None:
    pub.close()
    pub.close()
    with sessions.begin() as session:
        session.add(Tag(id=1, word="x"))
    assert received.changesets == []


# Receivers.


def test_a_receiver_that_fails_breaks_neither_the_program_nor_others(
    sessions: sessionmaker[Session], received: Received, caplog: pytest.LogCaptureFixture
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
    assert received.take() == ["write tags 1", "write tags 2"]
    assert "broken receiver" in caplog.text


def test_a_receiver_may_use_the_session_of_the_commit(
    sessions: sessionmaker[Session], received: Received
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
    assert "write text_keys a" in received.take()


# Callbacks.


def test_callbacks_are_told_of_everything_pending_and_of_the_outcome(
    sessions: sessionmaker[Session], received: Received, pub: sqlalchemy_pub
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
    sessions: sessionmaker[Session], received: Received, pub: sqlalchemy_pub
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
    assert received.changesets == []


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


def test_a_session_can_name_its_transaction(
    sessions: sessionmaker[Session], received: Received
) -> None:
    with sessions() as session:
        session.info[SESSION_ID] = "number 5"
        session.add(Tag(id=1, word="x"))
        session.commit()
    assert received.changesets[0].source.transaction == "number 5"


def test_receivers_of_one_publisher_hear_no_other_one(pub: sqlalchemy_pub) -> None:
    """Two databases of one process have tables of the same names."""
    pub.close()
    received: dict[str, list[int]] = {"one": [], "two": []}
    watching = []
    factories = {}
    for name, numbers in received.items():
        engine = create_engine("sqlite://")
        Base.metadata.create_all(engine, tables=[Base.metadata.tables["tags"]])
        factories[name] = sessionmaker(engine)
        own = Signal()
        own.connect(
            lambda changeset, numbers=numbers: numbers.extend(
                change.key["id"] for change in changeset.changes
            ),
            weak=False,
        )
        watching.append(sqlalchemy_pub(factories[name], changesets=own))
    for name, number in (("one", 1), ("two", 2), ("one", 3)):
        with factories[name].begin() as session:
            session.add(Tag(id=number, word=str(number)))
    for each in watching:
        each.close()
    assert received == {"one": [1, 3], "two": [2]}
