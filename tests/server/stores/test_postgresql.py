"""The store in PostgreSQL: its URLs, lost connections, and what other brokers do."""

from __future__ import annotations

import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from stompkit.server.interfaces import (
    CreateLane,
    FencedError,
    Mark,
    Put,
    Remove,
    StoreError,
    StoreFullError,
)
from stompkit.server.stores.postgresql.connection import LostError, PostgresConnection
from stompkit.server.stores.postgresql.store import PostgresStore
from stompkit.server.stores.postgresql.url import parsed
from stompkit.server.stores.sqlalchemy import SqlAlchemyStore
from stompkit.testing.launching.polling import wait_until
from tests.server.stores.tcp_proxy import Cut, Proxy
from tests.servers import SqlServer

SECRET = "hush"
LONG_S = 20.0


def put(place: int, size: int = 10, body: bytes = SECRET.encode()) -> Put:
    return Put(1, place, size, 0, 0, f"id-{place}", b"a:b\n", body)


def places(store: PostgresStore) -> list[int]:
    return [message.place for message in store.read(1, 0, 1_000_000, 1_000_000_000)]


def opened(url: str, *, synchronous: bool = True) -> PostgresStore:
    store = PostgresStore(url, synchronous=synchronous)
    store.open()
    return store


def connected(url: str) -> psycopg.Connection[tuple[object, ...]]:
    """Return a connection to a database, without a store."""
    return psycopg.connect(**parsed(url).parameters, autocommit=True)


def told(error: BaseException) -> str:
    """Return everything that a log could show of an error."""
    return "".join(traceback.format_exception(error))


@pytest.fixture
def url(postgresql: SqlServer, database: Callable[[SqlServer], str]) -> str:
    """The URL of a database without tables."""
    return database(postgresql)


# URLs.


@pytest.mark.parametrize(
    ("url", "parameters"),
    [
        ("postgresql://h/d", {"host": "h", "dbname": "d"}),
        (
            f"postgresql://u:{SECRET}@h:1/d?sslmode=require",
            {
                "user": "u",
                "password": SECRET,
                "host": "h",
                "port": 1,
                "dbname": "d",
                "sslmode": "require",
            },
        ),
        (
            f"postgresql://u:a,b%40{SECRET}@h",
            {"user": "u", "password": f"a,b@{SECRET}", "host": "h"},
        ),
        ("postgresql://a,b:2/d", {"host": "a,b", "port": "5432,2", "dbname": "d"}),
        (
            f"postgresql://u:{SECRET}@[::1]:3,b/d?target_session_attrs=read-write",
            {
                "user": "u",
                "password": SECRET,
                "host": "::1,b",
                "port": "3,5432",
                "dbname": "d",
                "target_session_attrs": "read-write",
            },
        ),
        ("postgresql:///d?host=a:1&host=b:2", {"dbname": "d", "host": "a,b", "port": "1,2"}),
        ("postgresql+psycopg:///d?host=/run", {"dbname": "d", "host": "/run"}),
    ],
)
def test_urls_of_libpq_and_of_sqlalchemy_are_read(url: str, parameters: dict[str, object]) -> None:
    found = parsed(url)
    assert found.parameters == parameters
    assert SECRET not in found.name
    for host in str(parameters["host"]).split(","):
        assert host in found.name
    for port in str(parameters.get("port", "")).split(","):
        assert f":{port}:{port}" not in found.name


@pytest.mark.parametrize(
    "url", ["", "a/path", f"postgresql://u:{SECRET}@h:x/d", f"postgresql://u:{SECRET}@[::1,b/d"]
)
def test_a_url_that_can_not_be_read_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(ValueError, match="URL of an SQL store") as caught:
        PostgresStore(url)
    assert SECRET not in told(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{SECRET}@127.0.0.1:1,127.0.0.1:2/database",
        f"postgresql://127.0.0.1:1/database?user=user&password={SECRET}",
    ],
)
def test_a_server_that_is_not_there_is_told_without_secrets(url: str) -> None:
    store = PostgresStore(url)
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:1.*refused") as caught:
        store.open()
    assert SECRET not in told(caught.value)
    with pytest.raises(StoreError, match="not open"):
        store.lanes()


def test_the_host_that_answers_is_used(postgresql: SqlServer, url: str) -> None:
    proxy = Proxy(postgresql.socket)
    host, port = proxy.address
    database = url.partition("?")[0].rpartition("/")[2]
    store = opened(f"postgresql://postgres@127.0.0.1:1,{host}:{port}/{database}")
    store.apply([CreateLane(1, "/queue/a", 4)])
    assert len(store.lanes()) == 1
    store.close()
    proxy.close()


def test_without_the_driver_the_extra_is_named() -> None:
    script = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from stompkit.server.stores.sql import sql_store\n"
        "sql_store('postgresql://h/d')\n"
    )
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stderr.splitlines()[-1].endswith("pip install 'stompkit[sql,postgresql]'")


# Stores of earlier versions.


def test_a_store_that_an_earlier_version_has_written_goes_on(url: str) -> None:
    before = SqlAlchemyStore(url)
    before.open()
    before.apply([CreateLane(1, "/queue/a", 4), put(1), put(2)])
    before.close()
    store = opened(url)
    store.apply([Remove(1, 1), put(3), Mark(1, 2, 3)])
    assert [(each.place, each.deliveries) for each in store.read(1, 0, 9, 999)] == [(2, 3), (3, 0)]
    store.close()
    before.open()
    assert [(lane.messages, lane.octets) for lane in before.lanes()] == [(2, 20)]
    before.close()


# Batches.


def test_batches_of_any_size_are_done_as_a_whole(url: str) -> None:
    store = opened(url)
    many = 12_000
    store.apply([CreateLane(1, "/queue/a", 4), *(put(number) for number in range(1, many + 1))])
    large = [put(many + number, 10, b"x" * 20_000_000) for number in range(1, 5)]
    store.apply([*large, *(Remove(1, number) for number in range(1, many, 3))])
    [lane] = store.lanes()
    left = [number for number in range(1, many + 5) if number % 3 != 1 or number > many]
    assert (lane.messages, lane.octets, lane.last_place) == (len(left), 10 * len(left), many + 4)
    assert [each.place for each in store.read(1, 0, many, 10 * many)] == left
    store.close()


def test_what_clients_sent_is_in_no_message(url: str) -> None:
    store = opened(url)
    store.apply([CreateLane(1, "/queue/a", 4), put(1)])
    with connected(url) as other:
        other.execute("ALTER TABLE stompkit_messages ADD CONSTRAINT refuse CHECK (size < 100)")
    with pytest.raises(StoreError, match="refuse") as caught:
        store.apply([put(2), put(3, 100), Remove(1, 1)])
    shown = told(caught.value)
    assert SECRET not in shown
    assert SECRET.encode().hex() not in shown
    assert places(store) == [1]
    store.apply([put(2)])
    assert places(store) == [1, 2]
    store.close()


def test_a_server_without_room_is_a_store_that_is_full(url: str) -> None:
    store = opened(url)
    store.apply([CreateLane(1, "/queue/a", 4)])
    with connected(url) as other:
        other.execute(
            "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN"
            " RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $$ LANGUAGE plpgsql"
        )
        other.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON stompkit_messages FOR EACH ROW"
            " EXECUTE FUNCTION refuse()"
        )
    with pytest.raises(StoreFullError, match="no room"):
        store.apply([put(1)])
    store.close()


@pytest.mark.parametrize("synchronous", [True, False])
def test_syncing_writes_the_log_of_the_server(url: str, *, synchronous: bool) -> None:
    store = opened(url, synchronous=synchronous)
    store.apply([CreateLane(1, "/queue/a", 4), *(put(number) for number in range(1, 500))])
    with connected(url) as other:
        [written] = other.execute("SELECT pg_current_wal_insert_lsn()").fetchall()
        store.sync()
        query = "SELECT pg_current_wal_flush_lsn() >= %s"
        assert synchronous or other.execute(query, written).fetchone() == (True,)
    store.close()


# Other brokers.


def test_of_two_brokers_the_first_to_write_goes_on(url: str) -> None:
    one, other = opened(url), opened(url)
    one.apply([CreateLane(1, "/queue/a", 4)])
    for _ in range(2):
        with pytest.raises(FencedError, match="somebody else has written"):
            other.apply([CreateLane(1, "/queue/b", 4)])
    one.apply([put(1)])
    assert places(other) == [1]
    other.close()
    other.open()
    other.apply([put(2)])
    with pytest.raises(FencedError, match="somebody else has written"):
        one.apply([put(3)])
    assert places(one) == [1, 2]
    one.close()
    other.close()


@pytest.mark.parametrize(
    "kinds", [(SqlAlchemyStore, PostgresStore), (PostgresStore, SqlAlchemyStore)]
)
def test_a_broker_of_an_earlier_version_is_noticed_and_notices(
    url: str, kinds: tuple[type[PostgresStore | SqlAlchemyStore], ...]
) -> None:
    one, other = (kind(url) for kind in kinds)
    one.open()
    other.open()
    one.apply([CreateLane(1, "/queue/a", 4)])
    with pytest.raises(StoreError, match="somebody else has written"):
        other.apply([CreateLane(1, "/queue/b", 4)])
    one.close()
    other.close()


# Lost connections.


class Line:
    """A store in a database behind a proxy."""

    def __init__(self, proxy: Proxy, url: str) -> None:
        """Open the store and create a lane with a message."""
        self.proxy = proxy
        self.url = url
        self.store = opened(url)
        self.store.apply([CreateLane(1, "/queue/a", 4), put(1)])


@pytest.fixture
def line(postgresql: SqlServer, url: str) -> Iterator[Line]:
    """A store that can be disconnected from its server."""
    name = url.partition("?")[0].rpartition("/")[2]
    proxy = Proxy(postgresql.socket)
    line = Line(proxy, postgresql.url(name, proxy.address))
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
    with pytest.raises(StoreError, match="was made is not known"):
        line.store.apply([put(2)])
    with pytest.raises(StoreError, match="cannot be used"):
        line.store.apply([put(2)])
    with pytest.raises(StoreError, match="cannot be used"):
        line.store.lanes()
    line.proxy.open()
    assert places(line.store) == [1]
    line.store.apply([put(2)])
    assert places(line.store) == [1, 2]


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("size", [10, 500_000])
def test_a_batch_whose_connection_is_lost_is_done_once(line: Line, cut: Cut, size: int) -> None:
    line.proxy.cut_at(b"END", cut)
    line.store.apply([Remove(1, 1), put(2), put(3, 10, b"x" * size + b"END")])
    assert places(line.store) == [2, 3]
    line.store.apply([put(4), Remove(1, 2)])
    assert places(line.store) == [3, 4]
    [lane] = line.store.lanes()
    assert (lane.messages, lane.octets) == (2, 20)


def lose(line: Line, link: psycopg.Connection[Any]) -> None:
    """Lose a connection within a pipeline, whose end then fails, too."""
    with link.pipeline():
        line.proxy.cut_at(b"END", Cut.BEFORE)
        link.execute("SELECT %s", ["END"])
        link.execute("SELECT 1").fetchall()


def test_a_lost_connection_is_reported_once(line: Line, caplog: pytest.LogCaptureFixture) -> None:
    """The driver also logs a warning, which others keep that use it in the same process."""
    connection = PostgresConnection(parsed(line.url), [])
    link = connection.use()
    with pytest.raises(LostError), connection.errors():
        lose(line, link)
    connection.drop()
    assert [each.getMessage() for each in caplog.records if each.name == "psycopg"] == []
    with pytest.raises(psycopg.OperationalError):
        lose(line, connected(line.url))
    assert [each.name for each in caplog.records] == ["psycopg"]


def test_a_batch_that_is_lost_each_time_is_given_up(line: Line) -> None:
    stopped = threading.Event()

    def cut() -> None:
        while not stopped.is_set():
            line.proxy.cut_at(b"END", Cut.BEFORE)

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        with pytest.raises(StoreError, match="cannot be used"):
            line.store.apply([put(2, 10, b"END")])
    finally:
        stopped.set()
        thread.join()
    line.proxy.cut_at(b"nothing", Cut.BEFORE)
    line.store.apply([put(3)])
    assert places(line.store) == [1, 3]


@pytest.mark.parametrize(("cut", "left"), [(Cut.BEFORE, [1, 3]), (Cut.AFTER, [1, 2, 3])])
def test_a_commit_that_can_not_be_found_out_about_is_told(
    line: Line, cut: Cut, left: list[int]
) -> None:
    line.proxy.cut_at(SECRET.encode(), cut, stays_open=False)
    with pytest.raises(StoreError, match="whether the change was made is not known"):
        line.store.apply([put(2)])
    line.proxy.close()
    line.proxy.cut_at(b"nothing", cut)
    line.proxy.open()
    line.store.apply([put(3)])
    assert places(line.store) == left


def test_a_call_that_waits_can_be_aborted_from_another_thread(url: str) -> None:
    store = opened(url)
    store.apply([CreateLane(1, "/queue/a", 4)])
    failures: list[StoreError] = []

    def apply() -> None:
        try:
            store.apply([put(1)])
        except StoreError as error:
            failures.append(error)

    with connected(url) as looker, connected(url) as other, other.transaction():
        other.execute("UPDATE stompkit_meta SET stamp = stamp")
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        thread = threading.Thread(target=apply)
        thread.start()
        assert wait_until(lambda: looker.execute(waiting).fetchone() == (1,), LONG_S)
        store.abort()
        thread.join(LONG_S)
        assert not thread.is_alive()
        with pytest.raises(StoreError, match="does not use"):
            store.lanes()
        store.close()
        # The server still has the whole batch, and nobody to tell what has become of it.
        store.open()
        assert wait_until(lambda: looker.execute(waiting).fetchone() == (0,), LONG_S)
    assert [str(failure) for failure in failures] == [str(failures[0])]
    assert "does not use" in str(failures[0])
    assert places(store) == []
    store.close()
