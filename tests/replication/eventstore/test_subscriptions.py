"""The stored events of sessions, and of other publishers."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session, sessionmaker

from stompkit.replication.eventstore import (
    EventStore,
    PrepareCommit,
    RedisEventStore,
    es_sub,
    recover,
    redis_es_sub,
    session_id,
    sql_es_sub,
    sqlalchemy_es_pub,
    store_sub,
)
from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from stompkit.replication.model.signals import CHANGESET, emit, signal
from stompkit.testing.launching.polling import wait_until
from tests.replication.eventstore.conftest import MakePrepareCommit, MakeStore
from tests.replication.eventstore.shop import Base, Item, Order
from tests.servers import RedisServer

TABLES = ["orders", "items"]


class FakeSession:
    """The required part of a session."""

    def __init__(self) -> None:
        """Start empty."""
        self.info: dict[Any, Any] = {}


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path}/data.sqlite")
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def factory(data: Engine) -> Iterator[sessionmaker[Session]]:
    made = sessionmaker(data)
    publisher = sqlalchemy_es_pub(made)
    yield made
    publisher.close()


@pytest.fixture
def both(
    make_store: MakeStore,
    make_prepare_commit: MakePrepareCommit,
    factory: sessionmaker[Session],
) -> tuple[EventStore, PrepareCommit]:
    """A store and a prepare-commit that are connected to the sessions."""
    store, prepare_commit = make_store(history=True), make_prepare_commit()
    es_sub(store, prepare_commit, factory, TABLES)
    return store, prepare_commit


# Sessions as in Meepo's tests.


@pytest.mark.parametrize("end", ["session_commit", "session_rollback"])
def test_signals_of_sessions_are_noted(place: str | Engine, end: str) -> None:
    make: Any = redis_es_sub if isinstance(place, str) else sql_es_sub
    store, prepare_commit = make(FakeSession, ["test"], place)
    session = FakeSession()
    signal("session_prepare").send(session, event={"test_write": [1]})
    assert prepare_commit.phase(session) == "prepare"
    assert prepare_commit.prepare_info() == {session_id(session)}
    assert prepare_commit.session_info(session) == {"test_write": [1]}
    if end == "session_commit":
        signal("test_write").send(1)
    signal(end).send(session)
    assert prepare_commit.phase(session) == "commit"
    assert prepare_commit.prepare_info() == set()
    assert store.replay("test_write") == ([1] if end == "session_commit" else [])
    store.close()
    prepare_commit.close()


def test_a_row_outside_of_sessions_is_stored_at_once(
    both: tuple[EventStore, PrepareCommit],
) -> None:
    store, _ = both
    signal("orders_write").send((1, "a"))
    assert store.replay("orders_write") == [(1, "a")]


def test_rows_without_a_key_are_passed_over(place: str | Engine) -> None:
    make: Any = redis_es_sub if isinstance(place, str) else sql_es_sub
    store, prepare_commit = make(FakeSession, ["test"], place)
    session = FakeSession()
    signal("session_prepare").send(session, event={"test_write": [None]})
    assert prepare_commit.prepare_info() == set()
    signal("test_write").send(None)
    signal("session_commit").send(session)
    assert store.replay("test_write") == []
    store.close()
    prepare_commit.close()


# Sessions.


def test_a_session_is_noted_until_its_events_are_stored(
    both: tuple[EventStore, PrepareCommit], factory: sessionmaker[Session]
) -> None:
    store, prepare_commit = both
    with factory() as session:
        session.add(Order(id=1, note="x"))
        session.add(Item(order_id=1, number=2))
        session.flush()
        assert prepare_commit.session_info(session) == {
            "orders_write": [1],
            "items_write": [(1, 2)],
        }
        assert store.replay("orders_write") == []
        session.commit()
    assert store.replay("orders_write") == [1]
    assert store.replay("items_write") == [(1, 2)]
    assert prepare_commit.prepare_info() == set()
    ((_, changeset),) = store.events()
    assert {"id": 1, "note": "x"} in [each.after for each in changeset.changes]


def test_of_a_rollback_nothing_is_stored(
    both: tuple[EventStore, PrepareCommit], factory: sessionmaker[Session]
) -> None:
    store, prepare_commit = both
    with factory() as session:
        session.add(Order(id=1))
        session.flush()
        assert len(prepare_commit.prepare_info()) == 1
        session.rollback()
    assert prepare_commit.prepare_info() == set()
    assert store.replay("orders_write") == []
    assert list(store.events()) == []


def test_sessions_of_others_are_not_noted(
    both: tuple[EventStore, PrepareCommit], tmp_path: Path
) -> None:
    _, prepare_commit = both
    engine = create_engine(f"sqlite:///{tmp_path}/other.sqlite")
    Base.metadata.create_all(engine)
    other = sessionmaker(engine)
    publisher = sqlalchemy_es_pub(other)
    with other() as session:
        session.add(Order(id=1))
        session.flush()
        assert prepare_commit.prepare_info() == set()
    publisher.close()
    engine.dispose()


def test_tables_of_no_interest_are_not_noted(
    make_store: MakeStore, make_prepare_commit: MakePrepareCommit, factory: sessionmaker[Session]
) -> None:
    store, prepare_commit = make_store(history=True), make_prepare_commit()
    es_sub(store, prepare_commit, factory, {"items"})
    with factory() as session:
        session.add(Order(id=1))
        session.flush()
        assert prepare_commit.prepare_info() == set()
        session.add(Item(order_id=1, number=2))
        session.flush()
        assert prepare_commit.session_info(session) == {"items_write": [(1, 2)]}
        session.commit()
    assert prepare_commit.prepare_info() == set()
    assert store.replay("orders_write") == []
    ((_, changeset),) = store.events()
    assert [each.table for each in changeset.changes] == ["items"]


@pytest.mark.parametrize("tables", ["orders", b"orders", {"orders": 1}, iter(["orders"])])
def test_tables_are_a_list_or_a_set(tables: Any, redis: RedisServer, data: Engine) -> None:
    with pytest.raises(ValueError, match="list or a set"):
        redis_es_sub(sessionmaker(data), tables, redis.url)
    with pytest.raises(ValueError, match="list or a set"):
        store_sub(RedisEventStore(redis.url), tables)


def test_a_closed_store_hears_nothing_any_more(
    both: tuple[EventStore, PrepareCommit], factory: sessionmaker[Session]
) -> None:
    store, prepare_commit = both
    store.close()
    with factory() as session:
        session.add(Order(id=1))
        session.flush()
        assert prepare_commit.prepare_info() == set()
        session.commit()
    assert store.replay("orders_write") == []


def test_the_ttl_is_that_of_both(redis: RedisServer, factory: sessionmaker[Session]) -> None:
    store, prepare_commit = redis_es_sub(factory, TABLES, redis.url, ttl=0.3)
    prepare_commit.prepare("a", {"orders_write": [1]})
    store.add("orders_write", 1)
    assert wait_until(lambda: prepare_commit.prepare_info() == set(), 20)
    assert wait_until(lambda: store.replay("orders_write") == [], 20)
    store.close()
    prepare_commit.close()


def test_notes_in_the_sqlite_file_of_the_sessions_are_refused(data: Engine) -> None:
    with pytest.raises(ValueError, match="another SQLite file"):
        sql_es_sub(sessionmaker(data), TABLES, str(data.url))


# Failures of Redis.


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[str]:
    """The URL of a server that accepts connections and never answers."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "silent"))
        listener.listen(100)
        yield f"unix://{tmp_path}/silent"


def test_a_strict_one_aborts_what_it_cannot_note(
    silent: str, factory: sessionmaker[Session]
) -> None:
    store, _ = redis_es_sub(factory, TABLES, silent, strict=True, socket_timeout=0.1)
    with factory() as session:
        session.add(Order(id=1))
        with pytest.raises(Exception, match=r"[Tt]imeout"):
            session.commit()
        session.rollback()
        assert session.get(Order, 1) is None
    store.close()


def test_others_let_the_commit_through(
    silent: str, factory: sessionmaker[Session], caplog: pytest.LogCaptureFixture
) -> None:
    store, _ = redis_es_sub(factory, TABLES, silent, socket_timeout=0.1, history=True)
    with caplog.at_level(logging.ERROR), factory() as session:
        session.add_all([Order(id=number) for number in range(50)])
        session.commit()
        assert len(session.query(Order).all()) == 50
    # One timeout for all rows, and not one for each.
    assert len([each for each in caplog.records if "not stored" in each.getMessage()]) <= 2
    store.close()


@pytest.mark.parametrize("strict", [False, True])
def test_events_that_could_not_be_stored_can_be_recovered(
    silent: str,
    redis: RedisServer,
    make_prepare_commit: MakePrepareCommit,
    factory: sessionmaker[Session],
    data: Engine,
    kind: str,
    *,
    strict: bool,
) -> None:
    broken = RedisEventStore(silent, socket_timeout=0.1, strict=strict)
    prepare_commit = make_prepare_commit()
    es_sub(broken, prepare_commit, factory, TABLES)
    with factory() as session:
        session.add(Order(id=1))
        session.commit()
    broken.close()
    store = RedisEventStore(redis.url, namespace="recovered")
    (done,) = recover(prepare_commit, data, store=store, older_than_s=0)
    assert done.prepared.is_committed
    assert store.replay("orders_write") == [1]
    assert prepare_commit.prepare_info() == set()
    store.close()


def test_a_changeset_that_could_not_be_kept_can_be_recovered(
    redis: RedisServer, factory: sessionmaker[Session]
) -> None:
    store, prepare_commit = redis_es_sub(factory, TABLES, redis.url, history=True)
    with Redis.from_url(redis.url) as client, factory() as session:
        client.set("stompkit:es::history", "no history")
        session.add(Order(id=1))
        session.commit()
    assert store.replay("orders_write") == [1]
    assert [each.is_committed for each in prepare_commit.stuck(0)] == [True]
    store.close()
    prepare_commit.close()


def test_what_could_not_be_published_can_be_recovered(
    both: tuple[EventStore, PrepareCommit], factory: sessionmaker[Session], data: Engine
) -> None:
    _, prepare_commit = both

    def refuse(changeset: Changeset) -> None:
        raise OSError("the broker is away")

    with CHANGESET.connected_to(refuse), factory() as session:
        session.add(Order(id=1))
        session.commit()
    published: list[Changeset] = []
    recover(prepare_commit, data, publish=published.append, older_than_s=0)
    assert [each.changes[0].key for each in published] == [{"id": 1}]


# Other publishers.


def changes() -> list[RowChange]:
    return [
        RowChange(table="t", schema="s", action="write", key={"id": 1}),
        RowChange(table="t", schema="s", action="update", key={"id": 3}, old_key={"id": 2}),
        RowChange(table="u", action="delete", key={"a": 1, "b": "x"}),
        RowChange(table="u", action="read", key={"a": 2, "b": "y"}),
        RowChange(table="u", action="truncate", key={}),
        RowChange(table="v", action="write", key={}, after={"x": 1}),
    ]


def made() -> Changeset:
    return make_changeset("o", 1, changes(), Source(kind="k"))


def test_what_any_publisher_finds_is_stored(make_store: MakeStore) -> None:
    store = make_store(history=True)
    store_sub(store)
    changeset = made()
    emit(changeset)
    for name in ("t", "s.t"):
        assert sorted(store.replay(f"{name}_write")) == [1, 3]
        assert store.replay(f"{name}_delete") == [2]
        assert store.replay(f"{name}_update") == []
    assert store.replay("u_delete") == [(1, "x")]
    assert store.replay("u_write") == [(2, "y")]
    assert store.replay("v_write") == []
    assert [each for _, each in store.events()] == [changeset]


def test_only_those_tables_are_stored(make_store: MakeStore) -> None:
    store = make_store(history=True)
    store_sub(store, ["s.t"])
    emit(made())
    assert sorted(store.replay("s.t_write")) == [1, 3]
    assert store.replay("t_write") == []
    assert store.replay("u_delete") == []
    ((_, changeset),) = store.events()
    assert changeset.changes == tuple(changes()[:2])


def test_a_strict_store_stops_a_publisher_that_can_resume(silent: str) -> None:
    store = RedisEventStore(silent, socket_timeout=0.1, strict=True)
    store_sub(store)
    with pytest.raises(Exception, match=r"[Tt]imeout"):
        emit(made())
    store.close()
