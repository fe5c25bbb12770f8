"""Rows that tasks stage in PostgreSQL: applied in the staged state, or staged again."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import Connection, inspect
from sqlalchemy.exc import DBAPIError

from stompkit.replication.model.events import Action, RowChange, Source, make_changeset
from stompkit.replication.sinks import ApplyError
from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.spark.apply import _Batch, apply_changes
from stompkit.spark.jobs.rebuild import rebuild
from stompkit.spark.jobs.settings import parse
from stompkit.spark.targets import Committed, Job, Staged, StagingLostError
from stompkit.spark.targets.database.staging_tables import LEAST_ROWS
from stompkit.spark.targets.sql import SqlTarget
from tests.replication.broker.place import until
from tests.replication.sinks.sql_targets import Target, change, database_url, target
from tests.servers import PostgreSql, PostgreSqlReplica, SqlServer, mariadb, postgresql
from tests.spark.change_rows import batch_of, row_of
from tests.spark.messages import BEGIN, fill, records_of

__all__ = ["database_url", "mariadb", "postgresql", "target"]

MANY = 2 * LEAST_ROWS
SIMPLE = "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(20), b INT)"
EXPECTED = [(each, "a", each) for each in range(MANY)]


def rows() -> list[dict[str, Any]]:
    """Return enough new rows for staging."""
    return [
        row_of(change("write", {"id": n}, after={"id": n, "a": "a", "b": n}), n)
        for n in range(MANY)
    ]


def staged_in(made: SqlTarget) -> tuple[list[Staged], Job]:
    """Return the parts that two tasks have staged, and the job."""
    made.prepare()
    job = Job("p", "s", fence=made.fence("p", "s"))
    halves = rows()[: MANY // 2], rows()[MANY // 2 :]
    parts = [part for half in halves for part in made.stage([batch_of(half)], job)]
    # Rows do not pass through Spark, but are in the database.
    assert [len(part.tables) for part in parts] == [1, 1]
    assert all(len(part.dump()) < 2000 for part in parts)
    return parts, job


def crash(where: Target) -> None:
    """Crash one process of the server, as lack of memory does, and wait for the recovery."""
    with where.engine.connect() as killed, where.engine.connect() as other:
        pid = killed.exec_driver_sql("SELECT pg_backend_pid()").scalar()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        # The server ends all of its processes, and then recovers.
        until(lambda: is_lost(other))
        killed.invalidate()
    until(lambda: answers(where))


def is_lost(connection: Connection) -> bool:
    """Return True if the server has closed a connection."""
    try:
        connection.exec_driver_sql("SELECT 1")
    except DBAPIError:
        return True
    return False


def answers(where: Target) -> bool:
    """Return True if the server accepts connections."""
    where.engine.dispose()
    try:
        return bool(where.rows("SELECT 1"))
    except DBAPIError:
        return False


@pytest.fixture(scope="module")
def own_server(postgresql: SqlServer) -> Iterator[PostgreSql]:
    """A server that may crash."""
    with PostgreSql() as server:
        yield server


@pytest.fixture
def own_target(own_server: PostgreSql) -> Iterator[Target]:
    """An empty table on it."""
    made = Target("postgresql", own_server.url(own_server.new_database()))
    made.execute(SIMPLE)
    yield made
    made.engine.dispose()


def test_rows_that_a_crash_has_emptied_are_not_taken_for_applied(
    own_target: Target,
) -> None:
    with closing(SqlTarget(own_target.url)) as made:
        parts, job = staged_in(made)
        crash(own_target)
        assert all(own_target.rows(f"SELECT * FROM {part.tables[0]}") == [] for part in parts)
        with pytest.raises(StagingLostError, match="recovered from a crash"):
            made.commit(parts, job)
        assert (own_target.table(), made.fence("p", "s")) == ([], {})
        made.discard(parts)
        parts, job = staged_in(made)
        assert made.commit(parts, job) == Committed(written=MANY)
    assert own_target.table() == EXPECTED


class Crashing(SqlTarget):
    """A target that crashes the server when rows are staged, this many times."""

    def __init__(self, where: Target, times: int) -> None:
        super().__init__(where.url)
        self.crash: Callable[[], None] = lambda: crash(where)
        self.times = times

    def commit(self, parts: Sequence[Staged], job: Job) -> Committed | None:
        """Crash first."""
        if self.times:
            self.times -= 1
            self.crash()
        return super().commit(parts, job)


class InProcess(_Batch):
    """A batch whose tasks run here, without Spark."""

    def __init__(self, made: SqlTarget, *tasks: list[dict[str, Any]]) -> None:
        nothing: Any = None
        super().__init__(nothing, nothing, made, Job("p", "s"))
        self._tasks = tasks

    def _stage(self, job: Job) -> list[Staged]:
        other: SqlTarget = pickle.loads(pickle.dumps(self._target))
        return [
            Staged.load(part.dump())
            for rows in self._tasks
            for part in other.stage([batch_of(rows)], job)
        ]


def test_batch_is_staged_again_after_crashes(own_target: Target) -> None:
    with closing(Crashing(own_target, times=2)) as crashing:
        crashing.prepare()
        applied = InProcess(crashing, rows()[:LEAST_ROWS], rows()[LEAST_ROWS:]).run()
    assert (applied.changes, applied.written) == (MANY, MANY)
    assert own_target.table() == EXPECTED
    assert own_target.rows("SELECT 1 FROM pg_tables WHERE tablename LIKE 'stompkit_stage%%'") == []


@pytest.mark.matrix
def test_batch_of_spark_is_staged_again_after_a_crash(
    spark: SparkSession, own_target: Target
) -> None:
    made = spark.createDataFrame(pa.Table.from_batches([batch_of(rows())])).coalesce(1)
    with closing(Crashing(own_target, times=1)) as crashing:
        applied = apply_changes(made, crashing, pipeline="p")
    assert (applied.changes, applied.written) == (MANY, MANY)
    assert own_target.table() == EXPECTED


class Elsewhere(SqlTarget):
    """A batch whose tasks use another database, such as an SQLite file that workers lack."""

    def __reduce__(self) -> tuple[Any, ...]:
        return SqlTarget, (f"{self.url}-of-a-worker",)


class Moving(SqlTarget):
    """A target whose fence another job moves before each commit."""

    def commit(self, parts: Sequence[Staged], job: Job) -> Committed | None:
        """Move the fence, then commit."""
        last = job.fence.get(1, 0)
        other = Staged({1: ((last + 1, 0), (last + 1, 0))})
        assert super().commit([other], job) is not None
        return super().commit(parts, job)


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Elsewhere, r"tasks do not find t \(a, b, id\) in the target.*SQLite file has to be on"),
        (Moving, "its fence in the target was moved meanwhile. Is it running more than once"),
    ],
)
def test_batch_that_is_begun_anew_in_vain_says_why(
    target: Target, kind: type[SqlTarget], reason: str
) -> None:
    target.execute(SIMPLE)
    with closing(kind(target.url, create=True)) as made:
        made.prepare()
        with pytest.raises(ApplyError, match=reason):
            InProcess(made, rows()[:3]).run()


@pytest.mark.matrix
def test_promoted_standby_is_staged_on_again(own_server: PostgreSql, own_target: Target) -> None:
    with PostgreSqlReplica(own_server) as standby:
        there = Target("postgresql", standby.url(own_target.engine.url.database or ""))
        with closing(SqlTarget(own_target.url)) as made:
            parts, job = staged_in(made)
        own = own_target.rows("SELECT pg_current_wal_lsn()::text")[0][0]
        caught_up = f"SELECT pg_last_wal_replay_lsn() >= '{own}'::pg_lsn"
        until(lambda: there.rows(caught_up)[0][0])
        standby.promote()
        with closing(SqlTarget(there.url)) as promoted:
            with pytest.raises(StagingLostError, match="another server"):
                promoted.commit(parts, job)
            promoted.discard(parts)
            parts, job = staged_in(promoted)
            assert promoted.commit(parts, job) == Committed(written=MANY)
        assert there.table() == EXPECTED
        there.engine.dispose()


@pytest.mark.parametrize("target", ["postgresql", "mariadb"], indirect=True)
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("DELETE FROM {} WHERE id = 7", f"there were {LEAST_ROWS}, and there are {LEAST_ROWS - 1}"),
        ("INSERT INTO {} (id, a, b) VALUES (-1, 'x', 1)", f"and there are {LEAST_ROWS + 1}"),
        ("UPDATE {} SET b = b + 1 WHERE id = 7", "were changed by somebody else"),
        ("TRUNCATE {}", "and there are 0"),
        ("DROP TABLE {}", "the server has no such table"),
    ],
)
def test_rows_are_applied_as_they_were_staged_or_not_at_all(
    target: Target, statement: str, reason: str
) -> None:
    target.execute(SIMPLE)
    with closing(SqlTarget(target.url)) as made:
        parts, job = staged_in(made)
        target.execute(statement.format(parts[0].tables[0]))
        with pytest.raises(StagingLostError, match=reason):
            made.commit(parts, job)
        assert (target.table(), made.fence("p", "s")) == ([], {})


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
def test_a_staged_number_that_only_new_rows_can_have_stays_or_is_refused(target: Target) -> None:
    target.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, n INT GENERATED ALWAYS AS IDENTITY)")
    steps = [{"a": n, "n": 7} for n in (1, 2)] + [{"n": 7}, {"n": 8}]
    with closing(SqlTarget(target.url)) as made:
        made.prepare()
        for step, values in enumerate(steps):
            action: Action = "update" if step else "write"
            changes = [change(action, {"id": n}, after={"id": n, **values}) for n in range(MANY)]
            at = step * MANY
            job = Job("p", "s", fence=made.fence("p", "s"))
            parts = list(
                made.stage(
                    [batch_of([row_of(each, at + n) for n, each in enumerate(changes)])], job
                )
            )
            if values["n"] == 7:
                assert made.commit(parts, job) is not None
            else:
                with pytest.raises(ApplyError, match=r"'n' has changed.* SET GENERATED"):
                    made.commit(parts, job)
            assert set(target.rows("SELECT a, n FROM t")) == {(min(step + 1, 2), 7)}


@pytest.mark.parametrize("target", ["postgresql", "mariadb"], indirect=True)
def test_staged_rows_have_the_effect_of_their_changes(target: Target) -> None:
    target.execute(SIMPLE.replace("t (", "t (c INT UNIQUE, "))
    first = [change("write", {"id": n}, after={"c": n, "id": n, "a": "a"}) for n in range(MANY)]
    others = [
        # Some rows are new, and the values of a unique column go from row to row.
        [change("update", {"id": n}, after={"b": n}) for n in range(10, MANY + 10)],
        [change("update", {"id": n}, after={"c": n - 1}) for n in range(MANY)],
        [change("write", {"id": n}, after={"c": None, "a": "%s '"}) for n in range(MANY)],
        [change("delete", {"id": n}) for n in range(MANY)],
    ]
    states: list[list[tuple[Any, ...]]] = [
        [(n, n, "a", None) for n in range(MANY)],
        [(n, n, "a", n if n > 9 else None) for n in range(MANY)]
        + [(None, n, None, n) for n in range(MANY, MANY + 10)],
    ]
    states.append([(row[1] - 1 if row[1] < MANY else None, *row[1:]) for row in states[1]])
    states.append([(None, n, "%s '" if n < MANY else None, b) for _, n, _, b in states[2]])
    states.append(states[3][MANY:])
    with closing(SqlTarget(target.url)) as made:
        made.prepare()
        at = 0
        for changes, expected in zip([first, *others], states, strict=True):
            job = Job("p", "s", fence=made.fence("p", "s"))
            batch = batch_of([row_of(each, at + n) for n, each in enumerate(changes)])
            at += len(changes)
            parts = list(made.stage([batch], job))
            assert made.commit(parts, job) is not None
            assert target.table(order="id") == expected
    assert not staging_tables(target)


def staging_tables(target: Target) -> list[str]:
    """Return the names of staging tables."""
    names = inspect(target.engine).get_table_names()
    return [name for name in names if name.startswith("stompkit_stage_")]


@pytest.mark.parametrize("target", ["mariadb"], indirect=True)
def test_keys_that_the_target_takes_for_equal_are_written_in_order(target: Target) -> None:
    target.execute(
        "CREATE TABLE t (id VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY, a INT, b INT)"
    )
    keys = [f"{case}{n}" for n in range(MANY // 2) for case in "aA"]
    written = [change("write", {"id": key}, after={"id": key, "a": 0}) for key in keys[::2]]
    updated = [change("update", {"id": key}, after={"b": n}) for n, key in enumerate(keys)]
    with closing(SqlTarget(target.url)) as made:
        made.prepare()
        at = 0
        for changes in (written, updated):
            job = Job("p", "s", fence=made.fence("p", "s"))
            batch = batch_of([row_of(each, at + n) for n, each in enumerate(changes)])
            at += len(changes)
            assert made.commit(list(made.stage([batch], job)), job) is not None
    assert sorted(row[2] for row in target.table()) == list(range(1, MANY, 2))
    assert not staging_tables(target)


@pytest.mark.parametrize("target", ["mariadb"], indirect=True)
@pytest.mark.parametrize("granted", ["SELECT, INSERT, UPDATE", "SELECT, INSERT, UPDATE, CREATE"])
def test_user_who_may_not_create_and_drop_tables_writes_rows(target: Target, granted: str) -> None:
    target.execute(SIMPLE)
    with closing(SqlTarget(target.url)) as owner:
        owner.prepare()
    url = target.engine.url
    name = f"u{len(granted)}"
    target.execute(
        f"CREATE OR REPLACE USER {name}@'%%' IDENTIFIED BY 'pw'"
        if not target.is_mysql
        else f"CREATE USER {name}@'%%' IDENTIFIED BY 'pw'",
        f"GRANT {granted}, DELETE ON {url.database}.* TO {name}@'%%'",
    )
    limited = url.set(username=name, password="pw").render_as_string(hide_password=False)
    with closing(SqlTarget(limited)) as made:
        job = Job("p", "s", fence=made.fence("p", "s"))
        parts = list(made.stage([batch_of(rows())], job))
        assert [part.tables for part in parts] == [[]]
        assert made.commit(parts, job) == Committed(written=MANY)
    assert target.table() == EXPECTED
    assert not staging_tables(target)


@pytest.mark.parametrize("target", ["postgresql", "mariadb"], indirect=True)
def test_row_that_the_server_rejects_is_found(target: Target) -> None:
    target.execute(SIMPLE.replace("b INT", "b INT CHECK (b <> 7)"))
    batch = batch_of(rows())
    with closing(SqlTarget(target.url)) as made:
        made.prepare()
        job = Job("p", "s", dead_letters=True, fence=made.fence("p", "s"))
        parts = list(made.stage([batch], job))
        done = made.commit(parts, replace(job, reread=lambda part: [batch]))
        assert done == Committed(written=MANY - 1, dead_letters=1)
    assert target.table() == [row for row in EXPECTED if row[0] != 7]
    assert not staging_tables(target)


def test_rebuild_is_begun_anew_after_crashes(
    own_server: PostgreSql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = Target("postgresql", own_server.url(own_server.new_database()))
    where.execute(SIMPLE)
    made = [
        RowChange(table="t", action="write", key={"id": n}, after={"id": n, "a": "a", "b": n})
        for n in range(MANY)
    ]
    source = Source(kind="postgresql", position="0/1", transaction="1")
    whole = make_changeset("shop", 1, made, source, timestamp=BEGIN)
    spool = fill(tmp_path / "spool", list(records_of([whole])))
    settings = parse(
        {
            "name": "p",
            "state-dir": str(tmp_path / "state"),
            "source": {"spool": str(spool)},
            "target": {"url": where.url},
        }
    )
    commit = SqlTarget.commit
    crashes = iter(range(2))

    def crash_first(target: SqlTarget, parts: Sequence[Staged], job: Job) -> Committed | None:
        assert [len(part.tables) for part in parts] == [1]
        if next(crashes, None) is not None:
            crash(where)
        return commit(target, parts, job)

    monkeypatch.setattr(SqlTarget, "commit", crash_first)
    done = rebuild(settings)
    assert (done.changes, done.rows, done.goes_on) == (MANY, {"t": MANY}, True)
    assert where.table() == EXPECTED
    where.engine.dispose()


def test_rebuild_whose_commit_is_not_answered_is_done_once(
    own_server: PostgreSql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = Target("postgresql", own_server.url(own_server.new_database()))
    where.execute(SIMPLE)
    change = RowChange(table="t", action="write", key={"id": 1}, after={"id": 1, "a": "a", "b": 2})
    source = Source(kind="postgresql", position="0/1", transaction="1")
    whole = make_changeset("shop", 1, [change], source, timestamp=BEGIN)
    settings = parse(
        {
            "name": "p",
            "state-dir": str(tmp_path / "state"),
            "source": {"spool": str(fill(tmp_path / "spool", list(records_of([whole]))))},
            "target": {"url": where.url},
        }
    )
    commit = SqlTarget.commit

    def lose_answer(target: SqlTarget, parts: Sequence[Staged], job: Job) -> Committed | None:
        commit(target, parts, job)
        raise SinkUnavailableError("the connection is lost")

    monkeypatch.setattr(SqlTarget, "commit", lose_answer)
    done = rebuild(settings)
    assert (done.changes, done.rows, done.goes_on) == (1, {"t": 1}, True)
    where.engine.dispose()
