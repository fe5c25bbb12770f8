"""Staged rows of a driver that was killed: the next driver of its pipeline drops them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import inspect

from stompkit.spark.targets import Committed, Job, Staged
from stompkit.spark.targets.database.staging_tables import LEAST_ROWS
from stompkit.spark.targets.sql import SqlTarget
from tests.replication.sinks.sql_targets import Target, change, database_url, target
from tests.servers import mariadb, postgresql
from tests.spark.change_rows import batch_of, row_of

__all__ = ["database_url", "mariadb", "postgresql", "target"]

ROWS = 2 * LEAST_ROWS
#: SQLite has no staging tables: work waits in a table if it is long enough.
LONG = "a" * 200


class Driver:
    """A driver of a pipeline, with its tasks."""

    def __init__(self, where: Target, pipeline: str = "p", spool: str = "s") -> None:
        self._made = SqlTarget(where.url)
        self._made.prepare()
        self._job = Job(pipeline, spool, fence=self._made.fence(pipeline, spool))

    def stage(self) -> list[Staged]:
        """Return what a task stages for the next rows."""
        begin = self._job.fence.get(0, -1) + 1
        rows = [
            row_of(change("write", {"id": n % ROWS}, after={"id": n % ROWS, "a": LONG}), n)
            for n in range(begin, begin + ROWS)
        ]
        other: SqlTarget = pickle.loads(pickle.dumps(self._made))
        return [Staged.load(part.dump()) for part in other.stage([batch_of(rows)], self._job)]

    def commit(self, parts: list[Staged]) -> Committed | None:
        """Commit parts; then the driver goes on with the next rows."""
        done = self._made.commit(parts, self._job)
        fence = self._made.fence(self._job.pipeline, self._job.spool)
        self._job = Job(self._job.pipeline, self._job.spool, fence=fence)
        return done

    def close(self) -> None:
        """Close the connections."""
        self._made.close()


@pytest.fixture
def drivers(target: Target) -> Iterator[Any]:
    """A function that starts drivers with the target."""
    target.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(200))")
    made: list[Driver] = []

    def start(*job: str) -> Driver:
        made.append(Driver(target, *job))
        return made[-1]

    yield start
    for each in made:
        each.close()


def staged(where: Target) -> set[str]:
    """Return the names of all that is staged."""
    names = inspect(where.engine).get_table_names()
    work = where.rows("SELECT DISTINCT name FROM stompkit_pipeline_staged")
    return {name for name in names if name.startswith("stompkit_stage_")} | {
        name for (name,) in work
    }


def names_of(parts: list[Staged]) -> set[str]:
    """Return the names of what is staged for parts."""
    return {name for part in parts for name in [*part.tables, part.stored] if name}


def test_first_commit_drops_what_earlier_drivers_have_staged(target: Target, drivers: Any) -> None:
    killed = drivers()
    left = killed.stage() + killed.stage()
    others = [part for job in (("q", "s"), ("p", "t")) for part in drivers(*job).stage()]
    assert staged(target) == names_of(left) | names_of(others)
    assert len(names_of(left)) == len(names_of(others)) == 2
    driver = drivers()
    assert staged(target) == names_of(left) | names_of(others), "the killed one may still commit"
    assert driver.commit(driver.stage()) == Committed(written=ROWS)
    assert staged(target) == names_of(others)
    assert killed.commit(left) is None, "its fence has moved"


def test_later_commit_drops_what_tasks_of_an_earlier_driver_still_staged(
    target: Target, drivers: Any
) -> None:
    if target.kind == "sqlite":
        pytest.skip("tasks of SQLite are on the driver's machine and end with it")
    killed, driver = drivers(), drivers()
    driver.commit(driver.stage())
    assert staged(target) == set()
    left = killed.stage()
    assert staged(target) == names_of(left)
    driver.commit(driver.stage())
    assert staged(target) == set()


@contextmanager
def reading(where: Target, table: str) -> Iterator[None]:
    """Use a table in a transaction that is open, as a task on a lost machine does."""
    with where.engine.connect() as connection:
        connection.exec_driver_sql(f"SELECT * FROM {table}").all()
        yield
        connection.rollback()


@pytest.mark.parametrize("target", ["postgresql", "mariadb"], indirect=True)
def test_table_in_use_is_dropped_by_a_later_commit(target: Target, drivers: Any) -> None:
    killed, driver = drivers(), drivers()
    used, free = sorted(names_of(killed.stage()) | names_of(killed.stage()))
    with reading(target, used):
        assert driver.commit(driver.stage()) == Committed(written=ROWS)
        assert staged(target) == {used}
        assert free not in staged(target)
    driver.commit(driver.stage())
    assert staged(target) == set()
