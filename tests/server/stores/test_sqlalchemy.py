"""The store in an SQL database: lost connections, concurrent changes, secrets."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from stompkit.server.interfaces import CreateLane, Put, Remove, StoreError, StoreFullError
from stompkit.server.stores.sqlalchemy import SqlAlchemyStore
from tests.server.log.log_lines import logged_lines
from tests.server.stores.conftest import Place
from tests.server.stores.tcp_proxy import Cut, Proxy
from tests.servers import SqlServer

SERVERS = ("postgresql", "mariadb")
SECRET = "hush"

every_database = pytest.mark.parametrize("place", ["sqlite", *SERVERS], indirect=True)


def put(place: int, size: int = 10) -> Put:
    return Put(1, place, size, 0, 0, f"id-{place}", b"a:b\n", SECRET.encode())


def places(store: SqlAlchemyStore) -> list[int]:
    return [message.place for message in store.read(1, 0, 1_000_000, 1_000_000_000)]


def opened(url: str, *, synchronous: bool = True) -> SqlAlchemyStore:
    store = SqlAlchemyStore(url, synchronous=synchronous)
    store.open()
    return store


def execute(url: str, *statements: str) -> object:
    """Execute statements directly in the database; return the result of the last one."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            result = connection.execute(text(statement))
        value = result.scalar() if result.returns_rows else None
    engine.dispose()
    return value


def told(error: BaseException) -> str:
    """Return everything that a log could show of an error."""
    return "".join(traceback.format_exception(error))


# URLs and packages.


@pytest.mark.parametrize("url", ["", "a/path", f"postgresql//user:{SECRET}@host", f"::{SECRET}"])
def test_a_url_that_can_not_be_read_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(ValueError, match="URL of an SQL store") as caught:
        SqlAlchemyStore(url)
    assert SECRET not in told(caught.value)


@pytest.mark.parametrize(
    ("url", "package"),
    [("oracle+oracledb://host", "oracledb"), ("mysql+mysqldb://host", "MySQLdb")],
)
def test_a_driver_that_is_missing_is_named(url: str, package: str) -> None:
    with pytest.raises(StoreError, match=f"needs the package {package}"):
        SqlAlchemyStore(url).open()


def test_a_database_that_nobody_knows_is_refused() -> None:
    with pytest.raises(StoreError, match="nosuchdb"):
        SqlAlchemyStore("nosuchdb://host").open()


@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "mariadb"])
def test_a_server_that_is_not_there_is_told_without_secrets(scheme: str) -> None:
    # No server can listen on port 0.
    store = SqlAlchemyStore(f"{scheme}://user:{SECRET}@127.0.0.1:0/database")
    with pytest.raises(StoreError, match=r"user:\*\*\*@127\.0\.0\.1") as caught:
        store.open()
    assert SECRET not in told(caught.value)
    with pytest.raises(StoreError, match="not open"):
        store.lanes()


def test_secrets_in_the_query_of_a_url_are_not_shown() -> None:
    store = SqlAlchemyStore(f"postgresql://127.0.0.1:0/database?user=u&password={SECRET}")
    with pytest.raises(StoreError) as caught:
        store.open()
    assert SECRET not in told(caught.value)


def test_without_sqlalchemy_the_extra_is_named() -> None:
    script = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "import stompkit.server.stores\n"
        "import stompkit.server.stores.sqlalchemy\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert result.stderr.splitlines()[-1].endswith("pip install 'stompkit[sql]'")


# SQLite's files.


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        store = opened(f"sqlite:///{tmp_path / 'messages.sqlite'}")
        store.apply([CreateLane(1, "/queue/a", 4)])
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(old)
    store.close()
    assert len(modes) > 1
    assert set(modes.values()) == {0o600}


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file or directory"):
        opened(f"sqlite:///{tmp_path / 'none' / 'messages.sqlite'}")


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("something else" * 1_000)
    with pytest.raises(StoreError, match="not a database"):
        opened(f"sqlite:///{tmp_path / 'file'}")


#: Limits the size of files at some time, then raises the limit.
FILE_LIMIT = """
import resource, signal, sys
from stompkit.server.stores.sqlalchemy import SqlAlchemyStore
from stompkit.server.interfaces import CreateLane, Put, StoreError

def put(place):
    return Put(1, place, 1000, 0, 0, "id", b"", b"x" * 1000)

def limit(octets):
    resource.setrlimit(resource.RLIMIT_FSIZE, (octets, resource.RLIM_INFINITY))

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = SqlAlchemyStore(sys.argv[1])
store.open()
store.apply([CreateLane(1, "/queue/a", 4)])
limit(1_000_000)
place = 1
try:
    while True:
        store.apply([put(number) for number in range(place, place + 100)])
        place += 100
except StoreError as error:
    print(error)
assert place > 300
print(len(store.read(1, 0, 10_000, 100_000_000)) == place - 1)
limit(resource.RLIM_INFINITY)
store.apply([put(number) for number in range(place, place + 1_000)])
print(store.lanes()[0].messages == place - 1 + 1_000)
"""


def test_a_store_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'messages.sqlite'}"
    result = subprocess.run(
        [sys.executable, "-c", FILE_LIMIT, url], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    _, *held = result.stdout.splitlines()
    assert held == ["True", "True"]


# Concurrent changes.


@every_database
def test_a_newer_store_is_refused(place: Place) -> None:
    opened(place.url).close()
    execute(place.url, "UPDATE stompkit_meta SET version = 7")
    for _ in range(2):
        with pytest.raises(StoreError, match="version 7, made by a newer stompkit"):
            opened(place.url)


@every_database
def test_an_older_store_that_nobody_knows_is_refused(place: Place) -> None:
    opened(place.url).close()
    execute(place.url, "UPDATE stompkit_meta SET version = 0")
    with pytest.raises(StoreError, match="version 0, which this stompkit cannot bring to"):
        opened(place.url)


@every_database
def test_of_two_brokers_the_first_to_write_goes_on(place: Place) -> None:
    one, other = opened(place.url), opened(place.url)
    one.apply([CreateLane(1, "/queue/a", 4)])
    for _ in range(2):
        with pytest.raises(StoreError, match="somebody else has written"):
            other.apply([CreateLane(1, "/queue/b", 4)])
    one.apply([put(1)])
    assert places(other) == [1]
    other.close()
    other.open()
    other.apply([put(2)])
    with pytest.raises(StoreError, match="somebody else has written"):
        one.apply([put(3)])
    assert places(one) == [1, 2]
    one.close()
    other.close()


@every_database
def test_reading_a_store_does_not_stop_the_broker_that_uses_it(place: Place) -> None:
    broker, reader = opened(place.url), opened(place.url)
    broker.apply([CreateLane(1, "/queue/a", 4), put(1)])
    assert (len(reader.lanes()), reader.records(), places(reader)) == (1, {}, [1])
    broker.apply([put(2)])
    reader.close()
    broker.apply([put(3)])
    assert places(broker) == [1, 2, 3]
    broker.close()


#: Statements that make a database refuse messages of 100 bytes or more, with an error that may
#: quote them.
REFUSE = {
    "sqlite": [
        "CREATE TRIGGER refuse BEFORE INSERT ON stompkit_messages WHEN NEW.size >= 100"
        " BEGIN SELECT RAISE(ABORT, 'too large'); END"
    ],
    "postgresql": ["ALTER TABLE stompkit_messages ADD CONSTRAINT refuse CHECK (size < 100)"],
    "mariadb": ["ALTER TABLE stompkit_messages ADD CONSTRAINT refuse CHECK (size < 100)"],
}


@every_database
def test_what_clients_sent_is_in_no_message(place: Place) -> None:
    store = opened(place.url)
    store.apply([CreateLane(1, "/queue/a", 4), put(1)])
    execute(place.url, *REFUSE[place.kind])
    with pytest.raises(StoreError, match=r"large|refuse") as caught:
        store.apply([put(2), put(3, 100), Remove(1, 1)])
    shown = told(caught.value)
    assert SECRET not in shown
    assert SECRET.encode().hex() not in shown
    assert places(store) == [1]
    store.apply([put(2)])
    assert places(store) == [1, 2]
    store.close()


#: Statements that make a server report a full disk.
FULL = {
    "postgresql": [
        "CREATE FUNCTION refuse() RETURNS trigger AS $$"
        " BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $$ LANGUAGE plpgsql",
        "CREATE TRIGGER refuse BEFORE INSERT ON stompkit_messages FOR EACH ROW"
        " EXECUTE FUNCTION refuse()",
    ],
    "mariadb": [
        "CREATE TRIGGER refuse BEFORE INSERT ON stompkit_messages FOR EACH ROW"
        " SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'no room'"
    ],
}


@pytest.mark.parametrize("place", SERVERS, indirect=True)
def test_a_server_without_room_is_a_store_that_is_full(place: Place) -> None:
    store = opened(place.url)
    store.apply([CreateLane(1, "/queue/a", 4)])
    execute(place.url, *FULL[place.kind])
    with pytest.raises(StoreFullError, match="no room"):
        store.apply([put(1)])
    store.close()


# Lost connections.


class Line:
    """A store in a database behind a proxy."""

    def __init__(self, proxy: Proxy, url: str) -> None:
        """Open the store and create a lane with a message."""
        self.proxy = proxy
        self.store = opened(url)
        self.store.apply([CreateLane(1, "/queue/a", 4), put(1)])


@pytest.fixture(params=SERVERS)
def line(request: pytest.FixtureRequest, database: Callable[[SqlServer], str]) -> Iterator[Line]:
    """A store that can be disconnected from its server."""
    server: SqlServer = request.getfixturevalue(request.param)
    name = database(server).partition("?")[0].rpartition("/")[2]
    proxy = Proxy(server.socket)
    line = Line(proxy, server.url(name, proxy.address))
    yield line
    line.store.close()
    proxy.close()


def test_a_connection_that_was_lost_is_made_again_before_anybody_notices(line: Line) -> None:
    line.proxy.cut()
    line.store.apply([put(2)])
    line.proxy.cut()
    assert places(line.store) == [1, 2]


def test_a_connection_that_was_lost_is_made_again_when_it_can_be(line: Line) -> None:
    line.proxy.close()
    for _ in range(2):
        with pytest.raises(StoreError, match="cannot be used"):
            line.store.apply([put(2)])
    with pytest.raises(StoreError, match="cannot be used"):
        line.store.lanes()
    line.proxy.open()
    assert places(line.store) == [1]
    line.store.apply([put(2)])
    assert places(line.store) == [1, 2]


@pytest.mark.parametrize("word", [b"stompkit_messages", b"UPDATE stompkit_meta"])
# After Cut.WITHIN the server keeps the transaction open until it notices; the store in PostgreSQL
# ends such sessions (test_postgresql).
@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
def test_a_batch_whose_connection_is_lost_is_not_done(line: Line, word: bytes, cut: Cut) -> None:
    line.proxy.cut_at(word, cut)
    with pytest.raises(StoreError, match="cannot be used"):
        line.store.apply([Remove(1, 1), put(2)])
    assert places(line.store) == [1]
    line.store.apply([put(3)])
    assert places(line.store) == [1, 3]


def test_a_commit_that_was_not_heard_of_is_found_out_about(line: Line) -> None:
    line.proxy.cut_at(b"COMMIT", Cut.AFTER)
    line.store.apply([put(2)])
    assert places(line.store) == [1, 2]
    line.store.apply([put(3)])
    assert places(line.store) == [1, 2, 3]


def test_a_commit_that_did_not_arrive_is_found_out_about(line: Line) -> None:
    line.proxy.cut_at(b"COMMIT", Cut.BEFORE)
    with pytest.raises(StoreError, match="cannot be used"):
        line.store.apply([put(2)])
    assert places(line.store) == [1]
    line.store.apply([put(3)])
    assert places(line.store) == [1, 3]


@pytest.mark.parametrize(("cut", "left"), [(Cut.BEFORE, [1, 3]), (Cut.AFTER, [1, 2, 3])])
def test_a_commit_that_can_not_be_found_out_about_is_told(
    line: Line, cut: Cut, left: list[int]
) -> None:
    line.proxy.cut_at(b"COMMIT", cut, stays_open=False)
    with pytest.raises(StoreError, match="whether the change was made is not known"):
        line.store.apply([put(2)])
    line.proxy.close()
    line.proxy.cut_at(b"nothing", cut)
    line.proxy.open()
    line.store.apply([put(3)])
    assert places(line.store) == left


# Synchronous commits.


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
def test_syncing_writes_the_log_of_the_server(place: Place) -> None:
    store = opened(place.url, synchronous=False)
    store.apply([CreateLane(1, "/queue/a", 4), *(put(number) for number in range(1, 500))])
    written = execute(place.url, "SELECT pg_current_wal_insert_lsn()")
    store.sync()
    assert execute(place.url, f"SELECT pg_current_wal_flush_lsn() >= '{written}'::pg_lsn") is True
    store.close()


@pytest.mark.parametrize("place", ["mariadb"], indirect=True)
def test_a_server_that_does_not_sync_at_each_commit_is_logged(place: Place) -> None:
    name = "innodb_flush_log_at_trx_commit"
    before = execute(place.url, f"SELECT @@{name}")
    execute(place.url, f"SET GLOBAL {name} = 2")
    try:
        with logged_lines() as lines:
            opened(place.url).close()
    finally:
        execute(place.url, f"SET GLOBAL {name} = {before}")
    [event] = lines.events("store-without-sync")
    assert event["value"] == "2"
    assert SECRET not in event["store"]
