"""A store's transactions: atomic, serialised, and without blocking others."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError, InvalidRequestError
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool, StaticPool

from stompkit.replica.store import (
    OriginRecord,
    PeerRecord,
    Reader,
    Store,
    StoreBusyError,
    StoreUnavailableError,
    Tx,
)
from tests.replica.stores import (
    ALL_KINDS,
    KINDS,
    A,
    B,
    changeset,
    database_url,
    engine,
    held,
    make_engine,
    row,
    server_urls,
    store,
)

__all__ = ["database_url", "engine", "server_urls", "store"]

all_kinds = pytest.mark.parametrize("engine", ALL_KINDS, indirect=True)
SERVERS = ("postgresql", "mariadb")
#: Timeout of a test in seconds.
PATIENCE_S = 60.0


@pytest.fixture
def notes(engine: Engine) -> Iterator[None]:
    """A table of the application."""
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE notes (id INTEGER NOT NULL PRIMARY KEY, a INT)")
        connection.exec_driver_sql("INSERT INTO notes VALUES (1, 0), (2, 0)")
    yield
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE notes")


def write(connection: Connection | Session, id: int, a: int) -> None:
    connection.execute(text("UPDATE notes SET a = :a WHERE id = :id"), {"a": a, "id": id})


def values(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return [a for (a,) in connection.exec_driver_sql("SELECT a FROM notes ORDER BY id")]


def fill(tx: Tx, first: int = 1) -> None:
    """Write a row into every table."""
    position = tx.last_position() + 1
    tx.add_changesets([changeset(position)], touched={position: [row(first).id]})
    tx.put_origins([OriginRecord(origin=A, sequence=position)])
    tx.put_rows([row(first), row(first + 1, is_live=False)])
    tx.put_base_rows([row(first)])
    tx.put_page(first, {A: first})
    tx.hold([held(first)])
    tx.put_peer(PeerRecord(origin=B, counter=first))
    tx.add_session(f"session {first}", first)
    tx.set_meta("first", first)


def everything(reader: Reader) -> dict[str, object]:
    return {
        "changesets": reader.changesets(),
        "origins": reader.origins(),
        "rows": reader.row_page(limit=100),
        "digests": reader.digests(),
        "base": [each.id for each in reader.base_page(limit=100)],
        "pages": reader.page_vectors(),
        "held": reader.held(),
        "peers": reader.peers(),
        "sessions": reader.sessions(),
        "meta": reader.meta("first"),
        "generation": reader.generation(),
        "position": reader.last_position(),
        "touching": [reader.touching(row(n).id) for n in range(4)],
    }


def seen(store: Store) -> dict[str, object]:
    with store.reading() as reader:
        return everything(reader)


def again(call: Callable[[], None]) -> None:
    """Retry until no other transaction conflicts."""
    for _ in range(1000):
        try:
            return call()
        except StoreBusyError:
            continue
    raise AssertionError("somebody was in the way all the time")


@all_kinds
def test_what_raises_leaves_everything_as_it_was(store: Store) -> None:
    with store.transaction() as tx:
        fill(tx)
    before = seen(store)
    with pytest.raises(KeyError), store.transaction() as tx:
        fill(tx, 2)
        tx.drop_changesets({A: 1})
        tx.delete_rows([row(1).id])
        tx.clear_pages()
        tx.unhold([(B, 1)])
        assert everything(tx) != before
        raise KeyError
    assert seen(store) == before
    with store.transaction() as tx:
        assert everything(tx) == before
        fill(tx, 2)
    assert store.last_position() == 2


@all_kinds
def test_what_raises_in_a_savepoint_undoes_only_that(store: Store) -> None:
    with store.transaction() as tx:
        fill(tx)
        before = everything(tx)
        with pytest.raises(KeyError), tx.savepoint():
            fill(tx, 2)
            raise KeyError
        assert everything(tx) == before
        fill(tx, 2)
    assert (store.last_position(), store.generation()) == (2, 1)


@all_kinds
def test_generations_count_the_transactions_that_write(store: Store) -> None:
    before = store.generation()
    with store.transaction() as tx:
        everything(tx)
        tx.put_rows([])
        tx.hold([])
    assert store.generation() == before
    with store.transaction() as tx:
        fill(tx)
        assert tx.generation() == before + 1
    assert store.generation() == before + 1
    with pytest.raises(KeyError), store.transaction() as tx, tx.savepoint():
        fill(tx, 2)
        raise KeyError
    assert store.generation() == before + 1


@all_kinds
@pytest.mark.usefixtures("notes")
def test_errors_that_are_no_problems_of_the_store_pass(engine: Engine, store: Store) -> None:
    with pytest.raises(IntegrityError), store.transaction() as tx:
        fill(tx)
        tx.connection.exec_driver_sql("INSERT INTO notes VALUES (1, 1)")
    with pytest.raises(DBAPIError, match="nothing"), store.transaction() as tx:
        fill(tx)
        tx.connection.exec_driver_sql("SELECT 1 FROM nothing")
    assert seen(store)["changesets"] == []
    assert values(engine) == [0, 0]


# Within a caller's transaction.


@all_kinds
@pytest.mark.usefixtures("notes")
def test_an_application_commits_what_was_joined_with_its_own(engine: Engine, store: Store) -> None:
    with Session(engine) as session:
        write(session, 1, 5)
        fill(store.join(session.connection()))
        write(session, 2, 6)
        fill(store.join(session.connection()), 2)
        session.commit()
    assert values(engine) == [5, 6]
    assert store.last_position() == 2
    assert seen(store)["meta"] == 2


@all_kinds
@pytest.mark.usefixtures("notes")
def test_an_application_rolls_back_what_was_joined_with_its_own(
    engine: Engine, store: Store
) -> None:
    before = seen(store)
    with Session(engine) as session:
        write(session, 1, 5)
        fill(store.join(session.connection()))
        session.rollback()
        write(session, 2, 6)
        session.commit()
    assert values(engine) == [0, 6]
    assert seen(store) == before


@all_kinds
@pytest.mark.usefixtures("notes")
def test_a_transaction_can_be_joined_that_has_written_nothing(engine: Engine, store: Store) -> None:
    with engine.connect() as connection:
        fill(store.join(connection))
        connection.rollback()
        assert values(engine) == [0, 0]
        fill(store.join(connection))
        connection.commit()
    assert store.last_position() == 1


@all_kinds
@pytest.mark.usefixtures("notes")
def test_a_store_that_is_joined_anew_sees_what_a_savepoint_has_undone(
    engine: Engine, store: Store
) -> None:
    with Session(engine) as session:
        write(session, 1, 5)
        fill(store.join(session.connection()))
        savepoint = session.begin_nested()
        fill(store.join(session.connection()), 2)
        savepoint.rollback()
        tx = store.join(session.connection())
        assert (tx.last_position(), tx.meta("first")) == (1, 1)
        fill(tx, 2)
        session.commit()
    assert store.last_position() == 2


@pytest.mark.parametrize("engine", SERVERS, indirect=True)
@pytest.mark.usefixtures("notes")
def test_who_joins_sees_what_was_committed_since_its_transaction_began(
    engine: Engine, store: Store
) -> None:
    with engine.connect() as connection:
        # In MariaDB this transaction reads the current state from now on.
        connection.exec_driver_sql("SELECT * FROM notes").all()
        with store.transaction() as other:
            fill(other)
        tx = store.join(connection)
        assert everything(tx) == {**seen(store), "generation": tx.generation()}
        fill(tx, 2)
        connection.commit()
    assert seen(store)["digests"] == {"notes": (1 ^ 2, 2)}
    assert store.last_position() == 2


@pytest.mark.parametrize("engine", KINDS, indirect=True)
def test_who_commits_each_statement_can_not_be_joined(engine: Engine, store: Store) -> None:
    hasty = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    other = Store(hasty)
    with hasty.connect() as connection:
        with pytest.raises(InvalidRequestError, match="commits each statement by itself"):
            other.join(connection)
    # The store's own transactions are atomic nevertheless.
    with pytest.raises(KeyError), other.transaction() as tx:
        fill(tx)
        raise KeyError
    assert seen(store)["changesets"] == []
    with other.transaction() as tx:
        fill(tx)
    assert seen(other) == seen(store)
    assert store.last_position() == 1
    hasty.dispose()


def test_mariadb_may_be_reached_as_if_it_were_mysql(database_url: Callable[[str], str]) -> None:
    engine = create_engine(database_url("mariadb").replace("mariadb+", "mysql+"))
    store = Store(engine, "mysql_")
    store.create()
    store.create()
    with store.transaction() as tx:
        fill(tx)
        tx.put_rows([row(1, "Notes")])
    assert store.last_position() == 1
    assert seen(store)["digests"] == {"Notes": (1, 1), "notes": (1, 1)}
    store.metadata.drop_all(engine)
    engine.dispose()


# Concurrency.


@pytest.mark.parametrize("engine", ALL_KINDS[1:], indirect=True)
def test_transactions_of_many_threads_leave_no_gaps(engine: Engine, store: Store) -> None:
    def add(sequence: int) -> None:
        def once() -> None:
            if sequence % 2:
                with store.transaction() as tx:
                    tx.add_changesets([changeset(tx.last_position() + 1, sequence)])
                return
            with engine.connect() as connection:
                tx = store.join(connection)
                tx.add_changesets([changeset(tx.last_position() + 1, sequence)])
                connection.commit()

        again(once)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(1, 61)))
    with store.reading() as reader:
        found = reader.changesets()
    assert [each.position for each in found] == list(range(1, 61))
    assert {each.sequence for each in found} == set(range(1, 61))
    assert store.generation() == 60


@pytest.mark.parametrize("kind", ALL_KINDS[1:])
def test_a_transaction_gives_up_while_another_one_lasts(
    kind: str, database_url: Callable[[str], str]
) -> None:
    engine = make_engine(kind, database_url(kind), timeout_s=0.1)
    store = Store(engine, lock_wait_s=0.5, join_wait_s=0.1)
    store.create()
    with store.transaction() as tx:
        before = tx.last_position()
        with pytest.raises(StoreBusyError, match="in use"), store.transaction():
            pass
        with engine.connect() as connection, pytest.raises(StoreBusyError, match="in use"):
            store.join(connection)
        tx.add_changesets([changeset(before + 1)])
    assert store.last_position() == before + 1
    with store.transaction() as tx:
        tx.drop_changesets({A: before + 1})
    engine.dispose()


@pytest.mark.parametrize("engine", ("sqlite-wal", *SERVERS), indirect=True)
def test_who_reads_sees_one_state_of_everything(store: Store) -> None:
    with store.transaction() as tx:
        fill(tx)
    with store.reading() as reader:
        before = everything(reader)
        with store.transaction() as tx:
            fill(tx, 2)
        assert everything(reader) == before
    assert seen(store) != before


@pytest.mark.parametrize("engine", SERVERS, indirect=True)
@pytest.mark.usefixtures("notes", "store")
def test_the_store_gives_way_to_an_application_that_waits_for_it(engine: Engine) -> None:
    store = Store(engine, lock_wait_s=1.0)
    has_written = threading.Event()
    has_lock = threading.Event()

    def application() -> None:
        with engine.connect() as connection:
            write(connection, 1, 7)
            has_written.set()
            assert has_lock.wait(PATIENCE_S)
            store.join(connection).set_meta("who", "application")
            connection.commit()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(application)
        assert has_written.wait(PATIENCE_S)
        with pytest.raises(StoreBusyError), store.transaction() as tx:
            tx.set_meta("who", "store")
            has_lock.set()
            write(tx.connection, 1, 8)
        done.result(PATIENCE_S)
    assert values(engine) == [7, 0]
    with store.reading() as reader:
        assert reader.meta("who") == "application"


@pytest.mark.parametrize("engine", ("sqlite", *SERVERS), indirect=True)
def test_several_can_make_the_tables_at_once(engine: Engine) -> None:
    stores = [Store(engine, "many_") for _ in range(4)]
    barrier = threading.Barrier(len(stores))

    def create(store: Store) -> None:
        barrier.wait(PATIENCE_S)
        again(store.create)

    try:
        with ThreadPoolExecutor(len(stores)) as pool:
            list(pool.map(create, stores))
        again(stores[0].create)
        with stores[1].transaction() as tx:
            fill(tx)
        stores[2].create()
        assert stores[3].last_position() == 1
    finally:
        stores[0].metadata.drop_all(engine)


@pytest.mark.parametrize(
    ("engine", "question"),
    [
        ("postgresql", "SHOW lock_timeout"),
        ("postgresql", "SHOW transaction_isolation"),
        ("mariadb", "SELECT @@innodb_lock_wait_timeout"),
        ("mariadb", "SELECT @@tx_isolation"),
    ],
    indirect=["engine"],
)
def test_connections_are_left_as_they_were(engine: Engine, store: Store, question: str) -> None:
    def ask() -> object:
        with engine.connect() as connection:
            return connection.exec_driver_sql(question).scalar_one()

    before = ask()
    with pytest.raises(KeyError), store.transaction() as tx:
        fill(tx)
        raise KeyError
    with store.reading() as reader:
        everything(reader)
    with store.transaction() as tx:
        fill(tx)
    assert ask() == before


# SQLite only.


def test_a_commit_that_sqlite_refuses_changes_nothing(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'a'}", connect_args={"timeout": 0})
    store = Store(engine)
    store.create()
    reading = sqlite3.connect(tmp_path / "a", isolation_level=None)
    reading.execute("BEGIN")
    reading.execute("SELECT * FROM stompkit_replica_state").fetchall()
    with pytest.raises(StoreBusyError, match="locked"), store.transaction() as tx:
        fill(tx)
    reading.execute("ROLLBACK")
    assert seen(store)["changesets"] == []
    with store.transaction() as tx:
        fill(tx)
    assert store.last_position() == 1
    reading.close()
    engine.dispose()


def test_a_connection_that_is_shared_carries_one_transaction() -> None:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    store = Store(engine)
    store.create()
    for use in (store.transaction, store.reading):
        with engine.connect() as connection:
            fill(store.join(connection))
            with pytest.raises(InvalidRequestError, match="rolled back"), use():
                pass
        assert seen(store)["changesets"] == []
    engine.dispose()


# Without a database.


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////nowhere/there/is/none.sqlite",
        "postgresql+psycopg://u@/d?host=/nowhere",
    ],
)
def test_a_database_that_is_not_there_is_unavailable(url: str) -> None:
    store = Store(create_engine(url))
    with pytest.raises(StoreUnavailableError, match="cannot be used"):
        store.create()
    with pytest.raises(StoreUnavailableError), store.transaction():
        pass
    with pytest.raises(StoreUnavailableError), store.reading():
        pass
    with pytest.raises(StoreUnavailableError):
        store.last_position()


@pytest.mark.parametrize(
    ("engine", "kill"),
    [
        ("postgresql", "SELECT pg_terminate_backend({})"),
        ("mariadb", "KILL {}"),
    ],
    indirect=["engine"],
)
def test_a_connection_that_is_lost_loses_its_transaction(
    engine: Engine, store: Store, kill: str
) -> None:
    own = "pg_backend_pid" if engine.dialect.name == "postgresql" else "connection_id"
    with pytest.raises(StoreUnavailableError), store.transaction() as tx:
        fill(tx)
        number = tx.connection.exec_driver_sql(f"SELECT {own}()").scalar_one()
        with engine.connect() as other:
            other.exec_driver_sql(kill.format(number))
        everything(tx)
    assert seen(store)["changesets"] == []
    with store.transaction() as tx:
        fill(tx)


def test_a_pool_without_a_free_connection_is_busy(tmp_path: Path) -> None:
    engine = create_engine(
        f"sqlite:///{tmp_path / 'a'}",
        poolclass=QueuePool,
        pool_size=1,
        max_overflow=0,
        pool_timeout=0.01,
    )
    store = Store(engine)
    store.create()
    with engine.connect(), pytest.raises(StoreBusyError), store.transaction():
        pass
    engine.dispose()


def test_a_problem_says_nothing_of_what_was_written() -> None:
    engine = create_engine("sqlite:////nowhere/there/is/none.sqlite")
    with pytest.raises(StoreUnavailableError) as caught, Store(engine).transaction():
        pass
    assert str(caught.value) == "the store cannot be used: unable to open database file"
    assert caught.value.__suppress_context__


def test_a_database_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = create_engine("sqlite://")
    monkeypatch.setattr(engine.dialect, "name", "oracle")
    with pytest.raises(ValueError, match="not in oracle"):
        Store(engine)
