"""Executors that do not see what the driver sees: a job names their machine and applies nothing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from stompkit.spark import spark_session
from stompkit.spark.eventstore import SparkEventStore
from stompkit.spark.executors import check_folders
from stompkit.spark.jobs import JobName, Pipeline, PipelineError, load
from stompkit.spool import SpoolReader, SpoolWriter
from stompkit.testing.launching.polling import wait_until
from tests.namespaces import unshared
from tests.spark.cluster import (
    JOB_S,
    LOOPBACK,
    ROOTS,
    Machines,
    cluster,
    installed,
    machines,
)
from tests.spark.messages import BEGIN, fill, records_of
from tests.spool.serving.servers import TOKEN, served

__all__ = ["installed", "machines"]

#: Name of the machine of the second worker.
ELSEWHERE: Final = "elsewhere"
#: Gives a command another name of the machine, and another folder under the path of the first one.
_APART: Final = 'hostname "$1" && mount --bind "$2" "$3" && shift 3 && exec "$@"'
_DRIVER: Final = (
    "import sys; sys.path[:0] = sys.argv[1].split(','); "
    "from tests.spark.test_executors import drive; drive(*sys.argv[2:])"
)
_FILE: Final = """
name = "shop"
state-dir = "{folder}/state"

[source]
spool = "{spool}"

[target]
url = "sqlite:///{target}/copy.sqlite"
create = true
"""


def drive(master: str, file: str, found: str, job: JobName) -> None:
    """Run a job on a cluster of two workers; write its error to a file."""
    config = {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.executor.memory": "512m",
    }
    spark = spark_session("job", master=master, config=config, profile="test")
    context: Any = spark.sparkContext._jsc
    try:
        # The driver counts as one.
        assert wait_until(lambda: context.sc().getExecutorMemoryStatus().size() == 3, JOB_S)
        error = ""
        try:
            Pipeline(load(Path(file)), job, once=True, spark=spark).run()
        except PipelineError as problem:
            error = str(problem)
        Path(found).write_text(json.dumps(error))
    finally:
        spark.stop()


class Machine:
    """A machine with another folder under a path."""

    def __init__(self, folder: Path) -> None:
        """Create both folders."""
        self.shown, self.hidden = folder / "shared", folder / "local"
        self.shown.mkdir(parents=True)
        self.hidden.mkdir()

    def command(self) -> list[str]:
        """Return the command before others that run on it; skips where that is not permitted."""
        return unshared("-rmu", _APART, ELSEWHERE, str(self.hidden), str(self.shown))


@pytest.fixture(scope="module")
def machine(machines: Machines) -> Machine:
    return Machine(machines.folder / "elsewhere")


@pytest.fixture(scope="module")
def master(machines: Machines, machine: Machine) -> Iterator[str]:
    """The URL of a cluster with a worker here and another one elsewhere."""
    with cluster(machines, (), machine.command()) as url:
        yield url


def spool_in(folder: Path) -> Path:
    """Return a new spool with a row."""
    row = {"id": 1, "state": "paid"}
    change = RowChange(table="orders", action="write", key={"id": 1}, after=row)
    made = make_changeset("shop", 1, [change], Source(kind="test"), id="c-1", timestamp=BEGIN)
    return fill(folder, list(records_of([made])))


@pytest.mark.matrix
@pytest.mark.parametrize("wrong", ["nothing is there", "another is there", "target", ""])
def test_job_names_machine_that_does_not_see_a_folder(
    machines: Machines, machine: Machine, installed: Path, master: str, wrong: str
) -> None:
    folder = machines.folder / f"job-{wrong.replace(' ', '-')}"
    folder.mkdir()
    target = machine.shown if wrong == "target" else folder
    spool = spool_in((folder if wrong in ("target", "") else machine.shown) / folder.name)
    if wrong == "another is there":
        spool_in(machine.hidden / folder.name)
    file, found = folder / "shop.toml", folder / "found.json"
    file.write_text(_FILE.format(folder=folder, spool=spool, target=target))
    error = driven(machines, installed, master, file, found, "replicate")
    others = " (another spool is there)" if wrong == "another is there" else ""
    seen = f"the target in {machine.shown}" if wrong == "target" else f"the spool in {spool}"
    begin = f"the executors on {ELSEWHERE}{others} do not see {seen}. All machines have to "
    assert error.startswith(begin) if wrong else not error, error
    assert (target / "copy.sqlite").exists() == (not wrong)
    assert not [path for path in target.iterdir() if path.name.startswith(".stompkit-")]


@pytest.mark.matrix
def test_job_reads_the_spool_from_its_server_where_executors_do_not_see_the_folder(
    machines: Machines, machine: Machine, installed: Path, master: str
) -> None:
    folder = machines.folder / "job-served"
    folder.mkdir()
    spool = machine.shown / folder.name
    with SpoolWriter(spool) as writer:
        for number in range(40):
            writer.append(list(records_of([changed(number)])))
    file, found = folder / "shop.toml", folder / "found.json"
    with served(spool) as url:
        text = _FILE.format(folder=folder, spool=url, target=folder)
        more = f'spoolToken = "{TOKEN}"\nminPartitions = 8\n\n[target]'
        history = f'\n[events]\npath = "{machine.shown}/events"\nhistory = true\n'
        file.write_text(text.replace("[target]", more) + history)
        assert driven(machines, installed, master, file, found, "replicate") == ""
        with closing(sqlite3.connect(folder / "copy.sqlite")) as connection:
            assert connection.execute("SELECT id, state FROM orders ORDER BY id").fetchall() == [
                (number, "paid") for number in range(40)
            ]
        # Executors elsewhere do not see the event store either.
        error = driven(machines, installed, master, file, found, "events")
        assert error.startswith(f"the executors on {ELSEWHERE} do not see the event store in ")
        assert error.endswith("; or set through_driver = true in [events]")
        file.write_text(f"{file.read_text()}through_driver = true\n")
        assert driven(machines, installed, master, file, found, "events") == ""
    events = SparkEventStore(machine.shown / "events", history=True)
    assert [each.id for _, each in events.events()] == [f"c-{number}" for number in range(40)]
    for name in (folder.name, "events"):
        assert not (machine.hidden / name).exists()


def changed(number: int) -> Changeset:
    row = {"id": number, "state": "paid"}
    change = RowChange(table="orders", action="write", key={"id": number}, after=row)
    source = Source(kind="test")
    return make_changeset("shop", number + 1, [change], source, id=f"c-{number}", timestamp=BEGIN)


def driven(
    machines: Machines, installed: Path, master: str, file: Path, found: Path, job: str
) -> str:
    """Run a job in a driver; return its error, which is empty without one."""
    found.unlink(missing_ok=True)
    process = machines.start(
        f"driver-{file.parent.name}-{job}",
        *(str(installed), "-c", _DRIVER, ",".join(ROOTS), master, str(file), str(found), job),
        PYSPARK_PYTHON=str(installed),
    )
    try:
        assert wait_until(lambda: process.status() is not None, JOB_S), process.log()
        assert process.status() == 0, process.log()
    finally:
        process.stop()
    error: str = json.loads(found.read_text())
    return error


def test_folders_are_not_looked_at_where_driver_and_executors_are_one_process(
    spark: SparkSession, tmp_path: Path
) -> None:
    tracker = spark.sparkContext.statusTracker()
    reader = SpoolReader(spool_in(tmp_path / "spool"))
    before = tracker.getJobIdsForGroup()
    check_folders(spark, reader, {"the target": tmp_path / "missing"})
    assert tracker.getJobIdsForGroup() == before
