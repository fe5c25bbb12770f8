"""Work of tasks: it stays in the target until the driver commits it."""

from __future__ import annotations

import pickle
from contextlib import closing
from typing import Any

import pytest

from stompkit.spark.targets import Committed, Job, Staged, StagingLostError
from stompkit.spark.targets.sql import SqlTarget
from tests.replication.sinks.sql_targets import Target, change, database_url, target
from tests.servers import mariadb, postgresql
from tests.spark.change_rows import batch_of, row_of

__all__ = ["database_url", "mariadb", "postgresql", "target"]

MANY = 50
TABLE = "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a {})"
#: A column for long texts.
LONG = {"sqlite": "TEXT", "postgresql": "TEXT", "mariadb": "LONGTEXT"}
STAGED = "SELECT count(*) FROM stompkit_pipeline_staged"
EXPECTED = [(each, str(each) * 30_000) for each in range(10, 10 + MANY)]


def rows() -> list[dict[str, Any]]:
    """Return few changes with long values."""
    return [
        row_of(change("write", {"id": number}, after={"id": number, "a": text}), number)
        for number, text in EXPECTED
    ]


def staged_in(made: SqlTarget) -> tuple[list[Staged], Job]:
    """Return what a task sends to the driver, and the job."""
    made.prepare()
    job = Job("p", "s", fence=made.fence("p", "s"))
    task: SqlTarget = pickle.loads(pickle.dumps(made))
    with closing(task):
        sent = [part.dump() for part in task.stage([batch_of(rows())], job)]
    assert sum(map(len, sent)) < 10_000
    return [Staged.load(octets) for octets in sent], job


def test_rows_do_not_pass_through_spark(target: Target) -> None:
    target.execute(TABLE.format(target.pick(**LONG)))
    with closing(SqlTarget(target.url)) as made:
        parts, job = staged_in(made)
        assert made.commit(parts, job) == Committed(written=MANY)
    assert target.table() == EXPECTED
    assert target.rows(STAGED) == [(0,)]


def test_discarded_work_is_removed(target: Target) -> None:
    target.execute(TABLE.format(target.pick(**LONG)))
    with closing(SqlTarget(target.url)) as made:
        parts, _ = staged_in(made)
        made.discard(parts)
    assert (target.table(), target.rows(STAGED)) == ([], [(0,)])


def test_lost_work_is_never_taken_for_applied(target: Target) -> None:
    target.execute(TABLE.format(target.pick(**LONG)))
    with closing(SqlTarget(target.url)) as made:
        parts, job = staged_in(made)
        target.execute("DELETE FROM stompkit_pipeline_staged WHERE part_no = 0")
        with pytest.raises(StagingLostError, match="is lost"):
            made.commit(parts, job)
        assert (target.table(), made.fence("p", "s")) == ([], {})


def test_without_the_table_work_passes_through_spark(target: Target) -> None:
    target.execute(TABLE.format(target.pick(**LONG)))
    with closing(SqlTarget(target.url)) as made:
        made.prepare()
        target.execute("DROP TABLE stompkit_pipeline_staged")
        job = Job("p", "s", fence=made.fence("p", "s"))
        parts = list(made.stage([batch_of(rows())], job))
        assert made.commit(parts, job) == Committed(written=MANY)
    assert target.table() == EXPECTED
