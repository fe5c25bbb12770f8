"""One job on a standalone cluster, on one in a session, and through Spark Connect.

Each driver is a separate process, as a process has one session only. They run with a Python that
has all packages of the tests' Python except stompkit. Therefore it can only be found in the tested
way.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from stompkit.spark import ship, spark_session
from stompkit.spark.apply import applier
from stompkit.spool import SpoolReader
from stompkit.testing.launching.polling import wait_until
from tests.spark.cluster import (
    JOB_S,
    LOOPBACK,
    QUICK,
    ROOTS,
    Machines,
    bare,
    installed,
    machines,
    master,
    wait_for_line,
)
from tests.spark.messages import changeset, fill, records_of

__all__ = ["bare", "installed", "machines", "master"]

#: The submitted program, as in the guide, and a check that only this process has stompkit.
_SUBMITTED: Final = """\
import sys

sys.path[:0] = sys.argv[2].split(",")

from stompkit.spark.jobs import Pipeline, load

pipeline = Pipeline(load(sys.argv[1]), "replicate", once=True)
pipeline.run()
assert pipeline.progress().changes, pipeline.progress()
"""
_TABLE: Final = "CREATE TABLE orders (id INT PRIMARY KEY, state VARCHAR(20), note VARCHAR(20))"
_SETS: Final = [changeset(number, changes=1 + number % 3) for number in range(90)]


@contextmanager
def connect_server(machines: Machines, name: str, python: Path, master: str) -> Iterator[str]:
    """A Spark Connect server; the value is its URL."""
    service = "org.apache.spark.sql.connect.service.SparkConnectServer"
    config = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": LOOPBACK,
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executor.extraJavaOptions": QUICK,
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
    }
    options = [word for pair in config.items() for word in ("--conf", "=".join(pair))]
    server = machines.spark_class(
        name,
        "org.apache.spark.deploy.SparkSubmit",
        *("--class", service, "--master", master, *options, "spark-internal"),
        PYSPARK_PYTHON=str(python),
    )
    try:
        port = wait_for_line(server, r"Spark Connect server started at: \S+:(\d+)")
        yield f"sc://{LOOPBACK}:{port}"
    finally:
        server.stop()


@pytest.fixture
def connect(machines: Machines, bare: Path, master: str) -> Iterator[str]:
    """The URL of a Connect server without stompkit, whose tasks run on the cluster."""
    with connect_server(machines, "connect", bare, master) as url:
        yield url


def drive(told: str, found: str) -> None:
    """Run a job as a driver; program and results are files."""
    job = json.loads(Path(told).read_text())
    config = {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.executor.memory": "512m",
    }
    spark = spark_session(
        "job",
        master=job.get("master"),
        remote=job.get("remote"),
        config=None if "remote" in job else config,
        profile="test",
    )
    try:
        if job["is_shipped"]:
            ship(spark)
        Path(found).write_text(json.dumps(run(spark, Path(job["folder"]), job)))
    finally:
        spark.stop()


def run(spark: SparkSession, folder: Path, job: Mapping[str, Any]) -> dict[str, Any]:
    """Read a spool as a stream and as a batch."""
    options = {"spool": job["spool"], "payload": "changeset", "minPartitions": "2"}
    if job["sink"] == "replica":
        frame = spark.readStream.format("stomp").options(**options).load()
        apply = applier(job["target"], pipeline="shop", spool=SpoolReader(job["spool"]).id)
        writing = frame.writeStream.foreachBatch(apply)
        checkpoint = writing.option("checkpointLocation", str(folder / "checkpoint"))
        assert checkpoint.trigger(availableNow=True).start().awaitTermination(int(JOB_S))
        return {}
    rows, killed = str(folder / "rows"), str(folder / "killed")
    stream = spark.readStream.format("stomp").options(**options)
    frame = stream.option("maxRecordsPerTrigger", "30").load()
    if job.get("kills"):
        folder.mkdir()
        frame = frame.mapInArrow(killing(killed), frame.schema)
    if job["sink"] == "parquet":
        writing = frame.writeStream.format("parquet").option("path", rows)
    else:
        writing = frame.writeStream.foreachBatch(saving(rows))
    checkpoint = writing.option("checkpointLocation", str(folder / "checkpoint"))
    query = checkpoint.trigger(availableNow=True).start()
    assert query.awaitTermination(int(JOB_S))
    batch = spark.read.format("stomp").options(**options).load()
    return {
        "streamed": changes(spark.read.parquet(rows)),
        "batch": changes(batch),
        "batches": len(list((folder / "checkpoint" / "commits").glob("[0-9]*"))),
        "killed": Path(killed).read_text(encoding="utf-8") if job.get("kills") else "",
    }


def changes(frame: DataFrame) -> list[list[Any]]:
    """Return the contents of rows, sorted."""
    rows = frame.select("changeset_id", "change", "operation", "after", "problem").collect()
    return sorted([*row[:3], json.loads(row["after"]), row["problem"]] for row in rows)


def saving(folder: str) -> Callable[[DataFrame, int], None]:
    """Return a function that writes each batch to a folder; a second attempt replaces it."""

    def save(frame: DataFrame, number: int) -> None:
        frame.write.mode("overwrite").parquet(f"{folder}/batch={number}")

    return save


def killing(
    marker: str,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Yield rows; the first task to have processed half of its rows kills its executor."""

    def ask(column: str, process: int) -> str:
        command = ["ps", "-ww", "-o", f"{column}=", "-p", str(process)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def kill(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            with suppress(FileExistsError), Path(marker).open("x", encoding="utf-8") as file:
                # A worker is a child of Spark's daemon, which is a child of the executor.
                executor = int(ask("ppid", os.getppid()))
                file.write(ask("args", executor))
                file.flush()
                os.kill(executor, signal.SIGKILL)
            yield batch.slice(half)

    return kill


@pytest.fixture(scope="module")
def spool(machines: Machines) -> str:
    records = list(records_of(_SETS))
    return str(fill(machines.folder / "spool", records[:50], records[50:]))


def expected() -> list[list[Any]]:
    """Return each change once."""
    return sorted(
        [each.id, number, "update", {"state": "paid", "note": "größer"}, None]
        for each in _SETS
        for number in range(len(each.changes))
    )


@pytest.mark.matrix
def test_a_cluster_without_stompkit_runs_what_is_shipped(
    machines: Machines, bare: Path, master: str, spool: str
) -> None:
    job = {"master": master, "spool": spool, "is_shipped": True, "sink": "foreachBatch"}
    found = machines.drive("standalone", bare, job)
    assert found["streamed"] == expected()
    assert found["batch"] == expected()
    assert found["batches"] == 3


@pytest.mark.matrix
@pytest.mark.skipif(find_spec("grpc") is None, reason="the extra connect is not installed")
def test_a_connect_server_without_stompkit_runs_what_is_shipped(
    machines: Machines, bare: Path, connect: str, spool: str
) -> None:
    job = {"remote": connect, "spool": spool, "is_shipped": True, "sink": "foreachBatch"}
    found = machines.drive("client", bare, job)
    assert found["streamed"] == expected()
    assert found["batch"] == expected()
    assert found["batches"] == 3


def new_replica(folder: Path) -> Path:
    """Return a database with an empty table."""
    folder.mkdir()
    file = folder / "replica.sqlite"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(_TABLE)
        # Updated rows have to exist.
        connection.executemany(
            "INSERT INTO orders (id) VALUES (?)", [(key,) for key, *_ in applied()]
        )
    return file


def rows_of(file: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute("SELECT * FROM orders ORDER BY id").fetchall()


def applied() -> list[tuple[int, str, str]]:
    """Return the rows after all changes."""
    keys = (100 * number + each for number in range(90) for each in range(1 + number % 3))
    return [(key, "paid", "größer") for key in keys]


@pytest.mark.matrix
def test_a_job_that_is_submitted_runs_on_a_cluster_without_stompkit(
    machines: Machines, bare: Path, master: str, spool: str
) -> None:
    folder = machines.folder / "submitted"
    file, job = new_replica(folder), folder / "job.py"
    job.write_text(_SUBMITTED)
    (folder / "shop.toml").write_text(
        f"""name = "shop"
state-dir = "{folder}/state"

[source]
spool = "{spool}"
minPartitions = 2

[target]
url = "sqlite:///{file}"

[spark]
ship = true
config = {{"spark.driver.host" = "{LOOPBACK}"}}
"""
    )
    conf = {
        "spark.driver.bindAddress": LOOPBACK,
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executor.extraJavaOptions": QUICK,
    }
    process = machines.spark_class(
        "submit",
        *("org.apache.spark.deploy.SparkSubmit", "--master", master),
        *(word for pair in conf.items() for word in ("--conf", "=".join(pair))),
        *(str(job), str(folder / "shop.toml"), ",".join(ROOTS)),
        PYSPARK_PYTHON=str(bare),
    )
    try:
        wait_until(lambda: process.status() is not None, JOB_S)
        assert process.status() == 0, process.log()
    finally:
        process.stop()
    assert rows_of(file) == applied()


@pytest.mark.matrix
@pytest.mark.skipif(find_spec("grpc") is None, reason="the extra connect is not installed")
def test_changes_are_applied_through_a_connect_server_that_has_stompkit(
    machines: Machines, installed: Path, spool: str
) -> None:
    file = new_replica(machines.folder / "through-connect")
    with connect_server(machines, "connect-installed", installed, "local[2]") as url:
        job = {"remote": url, "spool": spool, "is_shipped": False, "sink": "replica"}
        machines.drive("applying", installed, {**job, "target": f"sqlite:///{file}"})
    assert rows_of(file) == applied()


@pytest.mark.matrix
def test_where_stompkit_is_installed_an_executor_is_killed_and_nothing_is_lost_or_twice(
    machines: Machines, installed: Path, spool: str
) -> None:
    job = {"master": "local-cluster[2,1,1024]", "spool": spool, "is_shipped": False}
    found = machines.drive("local", installed, {**job, "sink": "parquet", "kills": True})
    assert "CoarseGrainedExecutorBackend" in found["killed"]
    assert found["streamed"] == expected()
    assert found["batch"] == expected()
    assert found["batches"] == 3
