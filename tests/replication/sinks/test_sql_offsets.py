"""The sink for SQL: changes are applied once, despite all failures."""

from __future__ import annotations

import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from stompkit.replication.model.events import Changeset
from stompkit.replication.sinks import ApplyError
from stompkit.replication.sinks.sql import SinkUnavailableError, SqlSink
from tests.replication.sinks.sql_targets import (
    KINDS,
    Target,
    change,
    changeset,
    database_url,
    target,
)
from tests.server.stores.tcp_proxy import Cut, Proxy
from tests.servers import SqlServer, mariadb, postgresql

__all__ = ["database_url", "mariadb", "postgresql", "target"]

SECRET = "hush"
#: A table that gets a row for each application.
LOG = "CREATE TABLE t (a INT)"
KEYED = "CREATE TABLE k (id INT NOT NULL PRIMARY KEY, a INT)"


def logged(number: int, origin: str = "origin") -> Changeset:
    return changeset(number, change("write", {}, after={"a": number}), origin=origin)


def numbers(target: Target) -> list[int]:
    return [row[0] for row in target.table()]


@contextmanager
def opened(url: str, **settings: Any) -> Iterator[SqlSink]:
    sink = SqlSink(url, **settings)
    try:
        yield sink
    finally:
        sink.close()


def test_what_was_applied_before_has_no_effect(target: Target) -> None:
    target.execute(LOG)
    with opened(target.url) as sink:
        assert sink.last("origin") is None
        sink.apply([])
        sink.apply([logged(1), logged(2), logged(2), logged(1)])
        sink.apply([logged(2), logged(3)])
        sink.apply([logged(3)])
    with opened(target.url) as sink:
        assert sink.last("origin") == 3
        sink.apply([logged(1), logged(2), logged(3), logged(7)])
        assert sink.last("origin") == 7
    assert numbers(target) == [1, 2, 3, 7]


def test_the_first_number_can_be_zero(target: Target) -> None:
    target.execute(LOG)
    with opened(target.url) as sink:
        sink.apply([logged(0)])
        sink.apply([logged(0)])
        assert sink.last("origin") == 0
    assert numbers(target) == [0]


def test_origins_are_counted_each_by_itself(target: Target) -> None:
    target.execute(LOG)
    origins = [
        "a",
        "A",
        "a ",
        "x" * 300,
        "x" * 301,
        "\0",
        "\ud800",
        "ü",
        "sha256:",
        "' OR 1=1 --",
        "",
    ]
    with opened(target.url) as sink:
        sink.apply([logged(number, origin) for number, origin in enumerate(origins, 1)])
        assert [sink.last(origin) for origin in origins] == list(range(1, len(origins) + 1))
    with opened(target.url, offsets_table="other") as sink:
        assert sink.last("a") is None


def test_it_is_noted_what_was_applied_last(target: Target) -> None:
    target.execute(LOG)
    last = logged(2)
    with opened(target.url) as sink:
        sink.apply([logged(1), last])
    query = "SELECT origin, sequence, changeset, hash FROM stompkit_offsets"
    assert [tuple(row) for row in target.rows(query)] == [("origin", 2, "origin:2", last.hash)]


def test_what_is_skipped_only_counts(target: Target) -> None:
    target.execute(LOG)
    with opened(target.url) as sink:
        sink.skip(logged(5))
        assert sink.last("origin") == 5
        sink.skip(logged(4))
        assert sink.last("origin") == 5
        sink.apply([logged(5), logged(6)])
        poison = changeset(
            7, change("write", {"x": "\0"}, "\0", after={"a": object()}), origin="\0"
        )
        sink.skip(poison)
        assert sink.last("\0") == 7
    assert numbers(target) == [6]


def test_of_poison_nothing_is_applied_and_the_sink_goes_on(target: Target) -> None:
    target.execute(LOG)
    poison = changeset(
        2, change("write", {}, after={"a": 1}), change("write", {}, after={"a": "x"})
    )
    with opened(target.url) as sink:
        with pytest.raises(ApplyError, match=r"changeset 2 of 'origin': .*'t': column 'a': "):
            sink.apply([logged(1), poison, logged(3)])
        assert sink.last("origin") is None
        sink.apply([logged(1)])
        sink.skip(poison)
        sink.apply([logged(3)])
        assert sink.last("origin") == 3
    assert numbers(target) == [1, 3]


def test_a_changeset_without_changes_counts(target: Target) -> None:
    with opened(target.url) as sink:
        sink.apply([changeset(1)])
        assert sink.last("origin") == 1


def test_an_engine_that_is_given_stays_open(target: Target) -> None:
    target.execute(LOG)
    engine = create_engine(target.url)
    sink = SqlSink(engine)
    sink.apply([logged(1)])
    sink.close()
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT a FROM t").scalar() == 1
    engine.dispose()


# Concurrency.


def persistently(apply: Callable[[], None]) -> None:
    """Retry while others hold locks."""
    for _ in range(100):
        try:
            apply()
        except SinkUnavailableError:
            continue
        return
    raise AssertionError("others are always in the way")


def together(*work: Callable[[], None]) -> None:
    """Run all concurrently; raise the error of one of them."""
    problems: list[BaseException] = []
    begin = threading.Barrier(len(work))

    def run(each: Callable[[], None]) -> None:
        try:
            begin.wait()
            each()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=run, args=[each]) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_of_two_sinks_with_the_same_changesets_one_applies_each(target: Target) -> None:
    target.execute(LOG)

    def work(size: int) -> Callable[[], None]:
        def run() -> None:
            with opened(target.url) as sink:
                for first in range(1, 61, size):
                    batch = [logged(number) for number in range(first, min(first + size, 61))]
                    persistently(lambda: sink.apply(batch))  # noqa: B023

        return run

    together(work(3), work(7))
    assert sorted(numbers(target)) == list(range(1, 61))


def test_sinks_of_several_origins_share_a_target(target: Target) -> None:
    target.execute(LOG, KEYED)

    def work(origin: str) -> Callable[[], None]:
        def run() -> None:
            with opened(target.url) as sink:
                for number in range(1, 31):
                    rows = [change("write", {"id": at}, "k", after={"a": number}) for at in (1, 2)]
                    both = changeset(number, *logged(number).changes, *rows, origin=origin)
                    persistently(lambda: sink.apply([both]))  # noqa: B023

        return run

    together(work("one"), work("two"), work("three"))
    assert sorted(numbers(target)) == sorted([*range(1, 31)] * 3)
    assert target.table("k") == [(1, 30), (2, 30)]


#: Applies changesets from the last one on, and reports after each batch.
APPLY = """
import sys
from stompkit.replication.sinks.sql import SqlSink
from tests.replication.sinks.sql_targets import change, changeset

sink = SqlSink(sys.argv[1])
at = (sink.last("origin") or 0) + 1
while True:
    batch = [
        changeset(
            number,
            change("write", {}, after={"a": number}),
            change("write", {"id": number % 10}, "k", after={"id": number % 10, "a": number}),
        )
        for number in range(at, at + 7)
    ]
    sink.apply(batch)
    at += 7
    print(at - 1, flush=True)
"""


def test_after_a_kill_data_and_number_agree(target: Target) -> None:
    target.execute(LOG, KEYED)
    for batches in (1, 3, 10):
        with subprocess.Popen(
            [sys.executable, "-c", APPLY, target.url],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        ) as process:
            assert process.stdout is not None
            told = [int(process.stdout.readline()) for _ in range(batches)]
            process.kill()
        with opened(target.url) as sink:
            # A transaction in progress may have been committed; the server ends it before the
            # check.
            sink.skip(changeset(0))
            last = sink.last("origin")
        assert last is not None
        assert last >= told[-1]
        assert sorted(numbers(target)) == list(range(1, last + 1))
        expected = {number % 10: number for number in range(1, last + 1)}
        assert dict(target.table("k")) == expected


# Servers that disconnect.


@pytest.mark.parametrize("target", KINDS[1:], indirect=True)
def test_a_sink_goes_on_when_its_server_was_away(
    target: Target, request: pytest.FixtureRequest
) -> None:
    server: SqlServer = request.getfixturevalue(target.kind)
    target.execute(LOG)
    proxy = Proxy(server.socket)
    name = target.engine.url.database
    assert name is not None
    with opened(server.url(name, proxy.address)) as sink:
        sink.apply([logged(1)])
        proxy.close()
        for _ in range(2):
            with pytest.raises(SinkUnavailableError):
                sink.apply([logged(2)])
        with pytest.raises(SinkUnavailableError):
            sink.last("origin")
        proxy.open()
        sink.apply([logged(2)])
    proxy.close()
    assert numbers(target) == [1, 2]


@pytest.mark.parametrize("target", KINDS[1:], indirect=True)
@pytest.mark.parametrize("cut", Cut)
def test_a_commit_that_is_not_heard_of_is_not_done_twice(
    target: Target, cut: Cut, request: pytest.FixtureRequest
) -> None:
    server: SqlServer = request.getfixturevalue(target.kind)
    target.execute(LOG)
    commit = target.pick(postgresql="COMMIT\0", mariadb="\3COMMIT")
    proxy = Proxy(server.socket)
    name = target.engine.url.database
    assert name is not None
    with opened(server.url(name, proxy.address)) as sink:
        sink.apply([logged(1)])
        proxy.cut_at(b"hash", Cut.BEFORE)
        with pytest.raises(SinkUnavailableError):
            sink.apply([logged(2)])
        assert numbers(target) == [1]
        sink.apply([logged(2)])
        begun = sink.last("origin")
        proxy.cut_at(commit.encode(), cut)
        with pytest.raises(SinkUnavailableError):
            sink.apply([logged(3)])
        sink.apply([logged(3)])
        assert (begun, sink.last("origin")) == (2, 3)
    proxy.close()
    assert numbers(target) == [1, 2, 3]


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
def test_a_database_that_others_write_to_is_worth_another_try(target: Target) -> None:
    target.execute(LOG)
    engine = create_engine(target.url, connect_args={"timeout": 0})
    sink = SqlSink(engine)
    sink.apply([logged(1)])
    with target.engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(SinkUnavailableError, match="locked"):
            sink.apply([logged(2)])
    sink.apply([logged(2)])
    engine.dispose()
    assert numbers(target) == [1, 2]


def test_a_table_that_is_dropped_and_made_again(target: Target) -> None:
    target.execute(LOG)
    with opened(target.url) as sink:
        sink.apply([logged(1)])
        target.execute("DROP TABLE t", "DROP TABLE stompkit_offsets")
        with pytest.raises(ApplyError, match="no such table"):
            sink.apply([logged(2)])
        target.execute(LOG)
        sink.apply([logged(2)])
    assert numbers(target) == [2]


# URLs and secrets.


def told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("url", ["", "a/path", f"postgresql//user:{SECRET}@host"])
def test_a_url_that_can_not_be_read_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(ValueError, match="URL of an SQL sink") as caught:
        SqlSink(url)
    assert SECRET not in told(caught.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"oracle+oracledb://u:{SECRET}@host", "needs the package oracledb"),
        (f"nosuchdb://u:{SECRET}@host", "nosuchdb is not known"),
        (f"mssql+pyodbc://u:{SECRET}@host", "needs the package pyodbc"),
    ],
)
def test_another_kind_of_database_is_refused(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        SqlSink(url)
    assert SECRET not in told(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "mariadb"])
def test_a_server_that_is_not_there_is_told_without_secrets(scheme: str) -> None:
    # Port 0 is never open.
    with opened(f"{scheme}://user:{SECRET}@127.0.0.1:0/database") as sink:
        with pytest.raises(SinkUnavailableError, match=r"user:\*\*\*@127\.0\.0\.1") as caught:
            sink.apply([logged(1)])
        assert SECRET not in told(caught.value)


def test_what_is_stored_is_not_in_a_message_of_the_driver(target: Target) -> None:
    target.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a INT NOT NULL, b VARCHAR(20))")
    row = change("write", {"id": 1}, after={"id": 1, "a": None, "b": SECRET})
    with opened(target.url) as sink:
        with pytest.raises(ApplyError) as caught:
            sink.apply([changeset(1, row)])
    assert SECRET not in told(caught.value)


def test_without_sqlalchemy_the_extra_is_named() -> None:
    script = "import sys; sys.modules['sqlalchemy'] = None\nimport stompkit.replication.sinks.sql\n"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert result.stderr.splitlines()[-1].endswith("pip install 'stompkit[sql]'")
