"""Database servers that are killed while tasks stage rows in them, and before these are committed.

The driver is the command of the pipeline, with tasks in its process or on a standalone cluster. A
trigger of the target writes down each version of a row. So one written twice is seen, and a lost
one too, even if later changes hide it.
"""

from __future__ import annotations

import os
import random
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import pytest
from sqlalchemy import Connection, create_engine, inspect, make_url
from sqlalchemy.exc import DBAPIError

from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.launching.processes.process import GuardedProcess
from tests.effort import effort
from tests.servers import (
    PostgreSql,
    PostgreSqlReplica,
    SqlServer,
    mariadb,
    mariadb_type,
    postgresql,
)
from tests.spark.cluster import JOB_S, LOOPBACK, QUICK, Machines, bare, installed, machines, master
from tests.spark.messages import BEGIN, fill, records_of

__all__ = ["bare", "installed", "machines", "mariadb", "master", "postgresql"]

pytestmark = pytest.mark.matrix

SEEDS: Final = effort([1], list(range(20)))
KILLS: Final = 4
#: Messages of a batch, half of which go to each of two tasks, and changes of a message.
MESSAGES: Final = 20
CHANGES: Final = 200
BATCHES: Final = 8
FENCE: Final = "stompkit_pipeline_fence"
#: Time in seconds between two looks at transactions: InnoDB refreshes its list of them only if
#: nobody has read it for a tenth of a second.
LOOK_S: Final = 0.3
#: Number of the advisory lock that stagings wait for.
STAGINGS_LOCK: Final = 29
#: What is killed: a server that has staged rows of one task at least; one whose driver waits for
#: the fence, so that all rows are staged; one whose driver commits, or has done so.
MOMENTS: Final = ("staging", "staged", "committing")
Moment = Literal["staging", "staged", "committing"]
FILE: Final = """
name = "shop"
state-dir = "{folder}/state"
trigger = "0s"

[source]
spool = "{folder}/spool"
maxRecordsPerTrigger = {messages}
minPartitions = 2

[target]
url = "{url}"

[spark]
master = "{master}"

[spark.config]
"spark.driver.host" = "{host}"
"spark.driver.bindAddress" = "{host}"
"spark.executor.memory" = "512m"
"spark.driver.extraJavaOptions" = "{quick}"
"spark.executor.extraJavaOptions" = "{quick}"
"""


class Victim(ABC):
    """A server with a table and the versions of its rows, which is killed."""

    def __init__(self, server: SqlServer) -> None:
        """Create the tables."""
        self.server = server
        self.database = server.new_database()
        self._engine = create_engine(server.url(self.database))
        with self._engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(9), b INT)")
            connection.exec_driver_sql("CREATE TABLE versions (id INT, b INT)")
            for statement in self.triggers():
                connection.exec_driver_sql(statement)

    @property
    def url(self) -> str:
        """The URL of the database, for the pipeline."""
        return self.server.url(self.database)

    @abstractmethod
    def triggers(self) -> Sequence[str]:
        """Return statements that create triggers for new versions of rows."""

    @abstractmethod
    def waiting(self) -> str:
        """Return a query for transactions that wait for a lock."""

    def kill(self, chance: random.Random) -> None:
        """Kill the server, and start it again."""
        self.server.kill()
        self.server.start()
        self._engine.dispose()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(query)]

    def staged(self) -> set[str]:
        """Return the names of staging tables."""
        names = inspect(self._engine).get_table_names()
        return {name for name in names if name.startswith("stompkit_stage_")}

    @contextmanager
    def locked_fence(self) -> Iterator[Connection]:
        """Keep drivers from committing until the end of the block, or until the server dies."""
        connection = self._engine.connect()
        try:
            assert connection.exec_driver_sql(f"SELECT * FROM {FENCE} FOR UPDATE").all()
            yield connection
        finally:
            connection.invalidate()

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()


class MariaDbVictim(Victim):
    """MariaDB or MySQL, whose staging tables survive a crash."""

    def triggers(self) -> Sequence[str]:
        """Return statements that create triggers for new versions of rows."""
        return [
            f"CREATE TRIGGER {event}_t AFTER {event} ON t FOR EACH ROW"
            " INSERT INTO versions VALUES (NEW.id, NEW.b)"
            for event in ("INSERT", "UPDATE")
        ]

    def waiting(self) -> str:
        """Return a query for transactions that wait for a lock."""
        return "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"


class PostgreSqlVictim(Victim):
    """PostgreSQL, which empties staging tables at a crash, and one of whose standbys is promoted.

    The standby is asynchronous, so it may lack the last batches.
    """

    def __init__(self, server: PostgreSql) -> None:
        """Create the tables, and the standby."""
        super().__init__(server)
        self._standby: PostgreSqlReplica | None = PostgreSqlReplica(server)
        self._urls = [super().url, self._standby.url(self.database)]
        self._standby.start()
        self._promoted: PostgreSqlReplica | None = None

    @property
    def url(self) -> str:
        """The URL of the database on the server that accepts writes."""
        hosts = [str(make_url(url).query["host"]) for url in self._urls]
        query = {
            "host": ",".join(hosts),
            "port": ",".join("5432" for _ in hosts),
            "target_session_attrs": "read-write",
        }
        made = make_url(self._urls[0]).set(query=query)
        return made.render_as_string(hide_password=False)

    def triggers(self) -> Sequence[str]:
        """Return statements that create a trigger for new versions of rows."""
        return [
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN INSERT INTO versions VALUES (NEW.id, NEW.b); RETURN NULL; END $$",
            "CREATE TRIGGER note AFTER INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION note()",
        ]

    def let_stagings_wait(self) -> None:
        """Make every other staging of rows wait while :meth:`held_stagings` is open."""
        statements = (
            "CREATE SEQUENCE stagings",
            "CREATE FUNCTION hold() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF mod(nextval('stagings'), 2) = 0 THEN"
            f" PERFORM pg_advisory_xact_lock_shared({STAGINGS_LOCK}); END IF; END $$",
            "CREATE EVENT TRIGGER hold ON ddl_command_start WHEN TAG IN ('CREATE TABLE AS')"
            " EXECUTE FUNCTION hold()",
        )
        with self._engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    @contextmanager
    def held_stagings(self) -> Iterator[None]:
        """Keep every other staging from starting until the block ends or the server crashes."""
        connection = self._engine.connect()
        try:
            connection.exec_driver_sql(f"SELECT pg_advisory_lock({STAGINGS_LOCK})")
            yield
        finally:
            connection.invalidate()
            self._engine.dispose()

    def held(self) -> list[int]:
        """Return the process ids of stagings that wait."""
        query = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'advisory'"
        return [pid for (pid,) in self.rows(query)]

    def waiting(self) -> str:
        """Return a query for transactions that wait for a lock."""
        return (
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            f" AND query LIKE '%%{FENCE}%%FOR UPDATE%%'"
        )

    def kill(self, chance: random.Random) -> None:
        """Kill the server; start it again, or promote the standby."""
        if self._standby is None or chance.random() < 0.5:
            super().kill(chance)
            return
        self.server.kill()
        self._engine.dispose()
        self._standby.promote()
        self._promoted, self._standby = self._standby, None
        self.server = self._promoted
        self._engine = create_engine(self.server.url(self.database))
        assert wait_until(self._accepts_writes, JOB_S)

    def _accepts_writes(self) -> bool:
        return self.rows("SELECT pg_is_in_recovery()") == [(False,)]

    def close(self) -> None:
        """Close the connections, and remove the standby."""
        super().close()
        standby = self._standby or self._promoted
        assert standby is not None
        standby.remove()


class Expected(NamedTuple):
    """Content of the tables of a :class:`Victim` after a workload."""

    rows: list[tuple[Any, ...]]
    versions: list[tuple[int, int]]


def workload(seed: int) -> tuple[list[Changeset], Expected]:
    """Return the changesets, and what is there after them. Each change has its own ``b``."""
    chance = random.Random(seed)
    rows: dict[int, tuple[str, int]] = {}
    versions: list[tuple[int, int]] = []
    made: list[Changeset] = []
    number = 0
    for half in range(2 * BATCHES):
        count = MESSAGES // 2 * CHANGES
        # Mostly one kind, so that it is enough for a staging table.
        kind = chance.choice(["write", "update", "delete"]) if half > 2 else "write"
        if len(rows) < count:
            kind = "write"
        keys = chance.sample(range(3 * count) if kind == "write" else sorted(rows), count)
        changes = []
        for key in keys:
            number += 1
            if kind == "delete":
                del rows[key]
                changes.append(RowChange(table="t", action="delete", key={"id": key}))
                continue
            after: dict[str, Any] = {"b": number}
            if kind == "write":
                after = {"id": key, "a": f"a{number % 1000}", **after}
            rows[key] = (after.get("a") or rows[key][0], number)
            versions.append((key, number))
            action: Any = kind
            changes.append(RowChange(table="t", action=action, key={"id": key}, after=after))
        for at in range(0, count, CHANGES):
            sequence = len(made) + 1
            source = Source(kind="postgresql", position=str(sequence), transaction=str(sequence))
            part = changes[at : at + CHANGES]
            made.append(make_changeset("shop", sequence, part, source, timestamp=BEGIN))
    left = sorted((key, *values) for key, values in rows.items())
    return made, Expected(left, sorted(versions))


def strike(victim: Victim, job: GuardedProcess, moment: Moment, chance: random.Random) -> bool:
    """Kill the server at a moment of a batch; return False if the job ends before."""
    known: set[str] = set()

    def is_at() -> bool:
        if job.status() is not None:
            return True
        new = victim.staged() - known
        return bool(new) and (moment == "staging" or bool(victim.rows(victim.waiting())))

    def is_begun() -> bool:
        return job.status() is not None or has_fence(victim)

    assert wait_until(is_begun, JOB_S), job.log()
    if job.status() is not None:
        return False
    with victim.locked_fence() as connection:
        # Those that are there may be of a batch that an earlier kill has ended.
        known |= victim.staged() if moment == "staging" else set()
        is_there = wait_until(is_at, JOB_S, interval_s=LOOK_S)
        assert is_there, job.log()
        if job.status() is not None:
            return False
        if moment == "committing":
            connection.rollback()
            # Another moment of the commit each time: no condition tells them apart from outside.
            wait_until(lambda: False, chance.random() * 0.1)
        victim.kill(chance)
    return True


def has_fence(victim: Victim) -> bool:
    """Return True if a batch was committed."""
    try:
        return bool(victim.rows(f"SELECT 1 FROM {FENCE} WHERE partition_no >= 0"))
    except DBAPIError:
        return False  # the table is not created yet


def start(
    victim: Victim, master: str, machines: Machines, python: Path, folder: Path, seed: int
) -> tuple[Expected, GuardedProcess]:
    """Start a job that applies a workload; return what is expected at its end, and the job."""
    changesets, expected = workload(seed)
    fill(folder / "spool", list(records_of(changesets)))
    file = folder / "shop.toml"
    file.write_text(
        FILE.format(
            folder=folder,
            messages=MESSAGES,
            url=victim.url,
            master=master,
            host=LOOPBACK,
            quick=QUICK,
        )
    )
    return expected, run(machines, folder.name, python, file)


def run(machines: Machines, name: str, python: Path, file: Path) -> GuardedProcess:
    """Start the job of a configuration."""
    return machines.start(
        name,
        *(str(python), "-m", "stompkit", "pipeline", "run", "replicate", "--config", str(file)),
        "--once",
        "--verbose",
        PYSPARK_PYTHON=str(python),
    )


def assert_applied_once(victim: Victim, expected: Expected) -> None:
    """Assert that no change was lost, and none applied twice."""
    assert victim.rows("SELECT id, a, b FROM t ORDER BY id") == expected.rows
    assert victim.rows("SELECT id, b FROM versions ORDER BY id, b") == expected.versions


@pytest.fixture(params=["local[2,4]", "cluster"])
def spark_master(request: pytest.FixtureRequest) -> str:
    """The URL of a master."""
    if request.param == "cluster":
        url: str = request.getfixturevalue("master")
        return url
    return str(request.param)


@pytest.fixture(params=["mariadb", "postgresql"])
def victim(request: pytest.FixtureRequest) -> Iterator[Victim]:
    """A separate server, which may be killed; skipped as the shared one is if there is none."""
    request.getfixturevalue(request.param)
    if request.param == "mariadb":
        with mariadb_type()() as server:
            made: Victim = MariaDbVictim(server)
            yield made
            made.close()
        return
    with PostgreSql() as server:
        made = PostgreSqlVictim(server)
        yield made
        made.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_change_is_lost_or_doubled_when_the_server_dies_between_staging_and_commit(
    victim: Victim,
    spark_master: str,
    machines: Machines,
    installed: Path,
    tmp_path: Path,
    seed: int,
) -> None:
    chance = random.Random(seed)
    expected, job = start(victim, spark_master, machines, installed, tmp_path, seed)
    moments: list[Moment] = ["staged", *chance.choices(MOMENTS, k=KILLS - 1)]
    try:
        struck = [moment for moment in moments if strike(victim, job, moment, chance)]
        assert wait_until(lambda: job.status() is not None, JOB_S), job.log()
        assert job.status() == 0, job.log()
    finally:
        job.stop()
    print("killed:", *struck, "- last:", victim.server.name, "- left:", len(victim.staged()))
    assert struck[0] == "staged", job.log()
    assert_applied_once(victim, expected)


def test_next_job_drops_what_a_killed_job_has_staged(
    victim: Victim, machines: Machines, installed: Path, tmp_path: Path
) -> None:
    expected, killed = start(victim, "local[2,4]", machines, installed, tmp_path, seed=1)

    def is_staged() -> bool:
        assert killed.status() is None, killed.log()
        return has_fence(victim) and bool(victim.rows(victim.waiting()))

    try:
        assert wait_until(lambda: has_fence(victim), JOB_S), killed.log()
        with victim.locked_fence():
            assert wait_until(is_staged, JOB_S, interval_s=LOOK_S), killed.log()
            killed.kill()
    finally:
        killed.stop()
    assert victim.staged()
    job = run(machines, "again", installed, tmp_path / "shop.toml")
    try:
        assert wait_until(lambda: job.status() is not None, JOB_S), job.log()
        assert job.status() == 0, job.log()
    finally:
        job.stop()
    assert victim.staged() == set()
    assert_applied_once(victim, expected)


@pytest.fixture
def postgresql_victim(postgresql: object) -> Iterator[PostgreSqlVictim]:
    """A separate PostgreSQL, which may be killed."""
    with PostgreSql() as server:
        made = PostgreSqlVictim(server)
        yield made
        made.close()


def test_rows_of_one_task_are_staged_again_when_postgresql_crashes_before_another_stages(
    postgresql_victim: PostgreSqlVictim,
    spark_master: str,
    machines: Machines,
    installed: Path,
    tmp_path: Path,
) -> None:
    victim = postgresql_victim
    victim.let_stagings_wait()
    expected, job = start(victim, spark_master, machines, installed, tmp_path, seed=1)

    def is_between() -> bool:
        return job.status() is not None or (bool(victim.staged()) and bool(victim.held()))

    try:
        with victim.held_stagings():
            assert wait_until(is_between, JOB_S), job.log()
            assert job.status() is None, job.log()
            # All processes of the server end with this one, and unlogged tables are emptied.
            os.kill(victim.held()[0], signal.SIGKILL)
        assert wait_until(lambda: job.status() is not None, JOB_S), job.log()
        assert job.status() == 0, job.log()
    finally:
        job.stop()
    assert_applied_once(victim, expected)
