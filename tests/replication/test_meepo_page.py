"""The examples of Meepo's documentation work here; differences are stated.

The names of modules differ: see "From Meepo" in the documentation.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from signal import SIGINT
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)

from stompkit.replication.eventstore import (
    RedisEventStore,
    RedisPrepareCommit,
    redis_es_sub,
    sqlalchemy_es_pub,
)
from stompkit.replication.model.signals import for_factory, signal
from stompkit.replication.sinks.forwarders import print_sub
from stompkit.replication.sources import mysql_pub, sqlalchemy_pub
from stompkit.replication.sources.mysql import MysqlPublisher
from stompkit.replication.workers import QueueReplicator, RqReplicator
from tests.replication.sources.mysql.reading import Database
from tests.replication.workers.callbacks import by_name
from tests.servers import MariaDb, RedisServer, mariadb, redis, redis_server

__all__ = ["mariadb", "redis", "redis_server"]


class Base(DeclarativeBase):
    """The tables of the page."""


class Test(Base):
    """The only table of the page."""

    __test__ = False
    __tablename__ = "test"
    id: Mapped[int] = mapped_column(primary_key=True)
    data: Mapped[str]


@pytest.fixture
def session_factory() -> sessionmaker[Session]:
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    return sessionmaker(engine)


@pytest.fixture
def database(mariadb: MariaDb) -> Iterator[Database]:
    with closing(Database(mariadb)) as database:
        database.rotate()
        database.run("CREATE TABLE test (id INT PRIMARY KEY, data TEXT)")
        yield database


# "Pub Concept", "MySQL Pub".


def test_the_events_of_the_binary_log_are_signals(database: Database) -> None:
    database.run("INSERT INTO test VALUES (1, 'a')", "CREATE TABLE other (id INT PRIMARY KEY)")
    database.run("INSERT INTO other VALUES (7)")
    sg = signal("test_write")
    found: list[Any] = []

    @sg.connect
    def print_test_write(pk: Any) -> None:
        found.append(f"test_write -> {pk}")

    @signal("test_write_raw").connect
    def raw(values: Any) -> None:
        found.append(values)

    @signal("other_write").connect
    def other(pk: Any) -> None:
        found.append(pk)

    positions: list[str] = []
    signal("mysql_binlog_pos").connect(lambda pos: positions.append(pos), weak=False)
    mysql_pub(database.url, tables=["test"])
    assert found == ["test_write -> 1", {"values": {"data": "a", "id": 1}}]
    assert positions
    file, _, pos = positions[-1].partition(":")
    assert (file, int(pos)) == database.end()
    mysql_pub(database.url, server_id=1024, blocking=False)
    assert 7 in found


#: The program of a daemon on the page.
DAEMON = """
import sys

from stompkit.replication.sources import mysql_pub
from stompkit.replication.model.signals import signal

mysql_dsn = sys.argv[1]
sg = signal("test_write")

@sg.connect
def print_test_write(pk):
    print("test_write -> %s" % pk, flush=True)

@signal("mysql_binlog_pos").connect
def print_pos(pos):
    print(pos, flush=True)

"""


@contextmanager
def daemon(database: Database, call: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON + call, database.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def printed(process: subprocess.Popen[str]) -> Iterator[str]:
    """Return the rows that a daemon prints from now on."""
    assert process.stdout is not None
    return (line.strip() for line in process.stdout if "->" in line)


@pytest.mark.parametrize(
    "call",
    [
        "mysql_pub(mysql_dsn, blocking=True)",
        "mysql_pub(mysql_dsn, blocking=True, server_id=1024)",
        'mysql_pub(mysql_dsn, ["test"], True)',
    ],
)
def test_a_daemon_waits_for_more_in_the_log(database: Database, call: str) -> None:
    """It starts at the current file of the log, and continues with later files."""
    database.run("INSERT INTO test VALUES (1, 'a')")
    with daemon(database, call) as process:
        lines = printed(process)
        assert next(lines) == "test_write -> 1"
        database.run("INSERT INTO test VALUES (2, 'b')")
        assert next(lines) == "test_write -> 2"
        database.run("FLUSH BINARY LOGS", "INSERT INTO test VALUES (3, 'c')")
        assert next(lines) == "test_write -> 3"
        readers = [int(row[0]) for row in database.ask("SHOW SLAVE HOSTS")]
        if "1024" in call:
            assert readers == [1024]
        else:
            assert len(readers) == 1
            assert 1_000_000_000 <= readers[0] <= 4_294_967_295
        assert process.poll() is None


def test_a_daemon_is_interrupted_from_the_keyboard(database: Database) -> None:
    database.run("INSERT INTO test VALUES (1, 'a')")
    # The environment of the tests may ignore the signal.
    heeds = "from signal import default_int_handler, signal as on; on(2, default_int_handler)"
    with daemon(database, f"{heeds}\nmysql_pub(mysql_dsn, blocking=True)") as process:
        assert next(printed(process)) == "test_write -> 1"
        process.send_signal(SIGINT)
        _, errors = process.communicate()
    assert errors.splitlines()[-1] == "KeyboardInterrupt"


def test_the_stream_goes_on_at_a_position_that_was_recorded(database: Database) -> None:
    """The page uses ``resume_stream``, ``log_file`` and ``log_pos``, and this package ``start``."""
    found: list[Any] = []
    positions: list[str] = []
    signal("test_write").connect(found.append, weak=False)
    signal("mysql_binlog_pos").connect(lambda pos: positions.append(pos), weak=False)
    database.run("INSERT INTO test VALUES (1, 'a')")
    mysql_pub(database.url)
    database.run("INSERT INTO test VALUES (2, 'b')")
    file, _, pos = positions[-1].partition(":")
    mysql_pub(database.url, start=(file, int(pos)))
    assert found == [1, 2]
    with pytest.raises(TypeError, match="resume_stream"):
        mysql_pub(database.url, resume_stream=True, log_file=file, log_pos=int(pos))


def test_a_daemon_is_stopped_by_a_publisher(database: Database) -> None:
    """The page has no way to stop a daemon; here the class behind ``mysql_pub`` has ``stop``."""
    publisher = MysqlPublisher(database.url, ["test"], blocking=True)
    found: list[Any] = []

    @signal("test_write").connect
    def stop(pk: Any) -> None:
        found.append(pk)
        publisher.stop()

    database.run("INSERT INTO test VALUES (1, 'a')")
    publisher.run()
    assert found == [1]


# "SQLAlchemy Pub".


def test_tables_are_merged(session_factory: sessionmaker[Session]) -> None:
    with closing(sqlalchemy_pub(session_factory)) as pub:
        pub(["table_a", "table_b"])
        pub(["table_b", "table_c"])
        assert pub.tables == {"table_a", "table_b", "table_c"}


def test_a_session_is_published_behind_its_commit(
    session_factory: sessionmaker[Session], capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[Any] = []
    # use weak False here to force strong ref to the lambda func.
    signal("test_write").connect(lambda pk: found.append(f"test_write -> {pk}"), weak=False)
    printer = print_sub(["test"])
    with closing(sqlalchemy_pub(session_factory, tables=["test"])):
        session = session_factory()
        t_1 = Test(id=1, data="a")
        session.add(t_1)
        assert not found
        session.commit()
    printer.close()
    assert found == ["test_write -> 1"]
    assert "test_write -> 1" in capsys.readouterr().out


@pytest.mark.parametrize("of", ["session", "factory", "scoped"])
def test_any_session_can_be_hooked_and_bulk_operations_are_seen(
    session_factory: sessionmaker[Session], of: str
) -> None:
    """On the page bulk operations "won't work"; here they do."""
    found: list[Any] = []
    signal("test_update").connect(lambda pk: found.append(pk), weak=False)
    signal("test_write_raw").connect(lambda obj: found.append(obj.after), weak=False)
    session = session_factory()
    scoped = scoped_session(session_factory)
    hooked = {"session": session, "factory": session_factory, "scoped": scoped}[of]
    with closing(sqlalchemy_pub(hooked)):
        used = scoped() if of == "scoped" else session
        used.add(Test(id=1, data="a"))
        used.commit()
        # The raw signal has the change; on the page it has the object.
        assert found == [{"id": 1, "data": "a"}]
        # bulk updates
        used.query(Test).update({"data": "x"})
        used.commit()
        used.close()
    assert found[1:] == [1]


# "Pub Concept", sent by hand.


def test_a_publisher_of_ones_own_sends_keys() -> None:
    sg = signal("table_action")
    found: list[Any] = []

    @sg.connect
    def dummy_print(pk: Any) -> None:
        found.append(pk)

    signal("table_action").send(7)
    assert found == [7]


# "Eventsourcing".


def test_receivers_of_sessions_take_the_session(
    session_factory: sessionmaker[Session],
) -> None:
    found: list[Any] = []

    def session_prepare(session: Session, event: Any) -> None:
        found.append(("prepare", event))

    def session_commit(session: Session) -> None:
        found.append("commit")

    def session_rollback(session: Session) -> None:
        found.append("rollback")

    signal("session_prepare").connect(session_prepare)
    signal("session_commit").connect(session_commit)
    signal("session_rollback").connect(session_rollback)
    with closing(sqlalchemy_es_pub(session_factory, tables=["test"])):
        with session_factory.begin() as session:
            session.add(Test(id=1, data="a"))
        session = session_factory()
        session.add(Test(id=2, data="b"))
        session.flush()
        session.rollback()
    write = [("prepare", {"test_write": [1]}), "commit", ("prepare", {"test_write": [2]})]
    assert found == [*write, "rollback"]


def test_sessions_are_told_apart() -> None:
    """The page has ``sender=SessionA``, for which Meepo changes blinker; here ``for_factory``."""
    SessionA = sessionmaker(create_engine("sqlite://"), info={"name": "session_a"})
    SessionB = sessionmaker(create_engine("sqlite://"), info={"name": "session_b"})
    found: list[Any] = []

    def _sp_for_a(session: Session, event: Any) -> None:
        found.append(session.info["name"])

    def _sc_for_a(session: Session) -> None:
        found.append("commit")

    prepare = for_factory(_sp_for_a, SessionA)
    commit = for_factory(_sc_for_a, SessionA)
    signal("session_prepare").connect(prepare)
    signal("session_commit").connect(commit)
    for factory in (SessionA, SessionB):
        with closing(sqlalchemy_es_pub(factory)), factory.begin() as session:
            Base.metadata.create_all(session.connection())
            session.add(Test(id=1, data="a"))
    assert found == ["session_a", "commit"]


@pytest.mark.parametrize("options", [{}, {"decode_responses": True}])
def test_events_are_stored_and_replayed(redis: RedisServer, options: dict[str, Any]) -> None:
    event_store = RedisEventStore(redis.url, f"store{len(options)}", **options)
    event_store.add("test_write", 1)
    event_store.add("test_write", 2, ts=1024)
    assert event_store.replay("test_write") == [2, 1]
    # all events since timestamp 1025
    assert event_store.replay("test_write", ts=1025) == [1]
    # all events between timestamp 1024 and 1025
    assert event_store.replay("test_write", ts=1024, end_ts=1025) == [2]
    with_ts = event_store.replay("test_write", with_ts=True)
    assert (with_ts[0], with_ts[1][0]) == ((2, 1024.0), 1)
    assert event_store.query("test_write", 2) == 1024
    assert event_store.query("test_write", 1) == with_ts[1][1]
    assert event_store.query("test_write", 3) is None
    # only events later than that
    assert event_store.query("test_write", 2, ts=1024) == 1024
    assert event_store.query("test_write", 2, ts=1025) is None
    event_store.clear("test_write")
    assert event_store.replay("test_write") == []


def test_a_namespace_is_a_function_of_the_time(redis: RedisServer) -> None:
    event_store = RedisEventStore(redis.url, lambda ts: f"day:{int(ts // 86400)}")
    event_store.add("test_write", 1, ts=time.time() - 86400)
    assert event_store.query("test_write", 1) is not None
    assert event_store.replay("test_write") == [1]
    # Query within another namespace, that of yesterday.
    yesterday = time.time() // 86400 * 86400 - 86400
    event_store.add("test_write", 2, ts=yesterday + 5)
    assert event_store.query("test_write", 2, ts=yesterday) == yesterday + 5
    assert event_store.query("test_write", 2, ts=yesterday + 6) is None


@pytest.mark.parametrize("options", [{}, {"decode_responses": True}])
def test_sessions_are_noted_and_stored(
    redis: RedisServer, session_factory: sessionmaker[Session], options: dict[str, Any]
) -> None:
    namespace = f"noted{len(options)}"
    with closing(sqlalchemy_es_pub(session_factory, tables=["test"])):
        store, prepare_commit = redis_es_sub(
            session_factory, ["test"], redis.url, strict=True, namespace=namespace, **options
        )
        assert isinstance(prepare_commit, RedisPrepareCommit)
        session = session_factory()
        session.add(Test(id=1, data="a"))
        session.flush()
        assert prepare_commit.phase(session) == "prepare"
        assert len(prepare_commit.prepare_info()) == 1
        session.commit()
        assert prepare_commit.phase(session) == "commit"
        assert prepare_commit.prepare_info() == set()
        assert store.replay("test_write") == [1]


def test_the_phases_of_a_session_are_set_by_hand(
    redis: RedisServer, session_factory: sessionmaker[Session]
) -> None:
    prepare_commit = RedisPrepareCommit(redis.url, strict=True, namespace="by_hand", ttl=60)
    session, other = session_factory(), session_factory()
    for each in (session, other):
        prepare_commit.prepare(each, {"test_write": [1]})
        assert prepare_commit.phase(each) == "prepare"
    assert prepare_commit.session_info(session) == {"test_write": [1]}
    assert len(prepare_commit.prepare_info(ts=time.time() + 1)) == 2
    prepare_commit.commit(session)
    prepare_commit.rollback(other)
    assert prepare_commit.phase(session) == prepare_commit.phase(other) == "commit"
    prepare_commit.prepare(session, {"test_write": [2]})
    prepare_commit.clear()
    assert prepare_commit.prepare_info() == set()
    prepare_commit.close()


# "Replicators".


def test_callbacks_are_registered_as_the_page_has_it() -> None:
    rq_repl = RqReplicator("tcp://127.0.0.1:1")

    @rq_repl.event("a_table_update")
    def job_test(pks: list[Any]) -> bool:
        return bool(pks)

    replicator = QueueReplicator("tcp://127.0.0.1:1")
    decorate = replicator.event("a_table_write", workers=2, multi=True, queue_limit=100)
    assert decorate(by_name) is by_name
