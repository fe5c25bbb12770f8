"""Jobs that read the spool from its server: as from the folder, and with the same checkpoints."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from stompkit.spark.jobs import JobName, Pipeline, PipelineError, load
from stompkit.spark.jobs.events import Events
from stompkit.spool import SpoolReader, SpoolUnavailableError, SpoolWriter
from stompkit.spool.readers import listed
from stompkit.spool.retention import retain
from stompkit.testing.launching.polling import wait_until
from tests.effort import in_matrix
from tests.ports import free_ports
from tests.spark.jobs.test_jobs import LONG_S, Shop, orders
from tests.spool.serving.servers import TOKEN, ServerProcess


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def server(shop: Shop) -> Iterator[ServerProcess]:
    """The server of the shop's spool, which has 100 messages."""
    spool = shop.folder / "spool"
    add(spool, 0, 60)
    add(spool, 60, 100)
    with free_ports() as (port,):
        process = ServerProcess(spool, port, shop.folder)
        process.start()
        try:
            yield process
        finally:
            process.stop()


def add(spool: Path, first: int, end: int) -> None:
    """Append changesets in a new segment."""
    with SpoolWriter(spool, segment_bytes=1) as writer:
        writer.append(orders(first, end))


def served(server: ServerProcess, **more: Any) -> dict[str, Any]:
    return {
        "spool": server.url,
        "spoolToken": f"file:{server.folder / 'token'}",
        "minPartitions": 2,
        "maxRecordsPerTrigger": 40,
        **more,
    }


@pytest.mark.parametrize("job", ["replicate", in_matrix("events"), in_matrix("analytics")])
def test_a_job_goes_on_with_the_folder_and_with_the_server(
    shop: Shop, server: ServerProcess, spark: SparkSession, job: JobName
) -> None:
    more = f'[analytics]\npath = "{shop.folder}/analytics"\n'
    spool = shop.folder / "spool"
    counts = []
    for end, source in (
        (100, served(server)),
        (150, {"spool": str(spool)}),
        (200, served(server)),
    ):
        if end > 100:
            add(spool, end - 50, end)
        shop.describe(source, more)
        pipeline = shop.run(spark, job)
        counts.append(pipeline.progress().changes)
        assert shop.done(job) == end
        assert listed(spool)[f"shop.{job}"].positions == (end,)
    assert counts == [100, 50, 50]
    if job != "analytics":
        shop.check(job, 200)


def test_a_job_survives_kills_of_the_server_and_retention(
    shop: Shop, server: ServerProcess, spark: SparkSession
) -> None:
    spool = shop.folder / "spool"
    shop.describe(served(server, maxRecordsPerTrigger=5))
    pipeline = Pipeline(load(shop.file), "replicate", spark=spark)
    thread = threading.Thread(target=pipeline.run)
    thread.start()
    try:
        for least, end in ((10, 150), (110, 200)):
            assert wait_until(lambda: pipeline.progress().changes >= least, LONG_S)  # noqa: B023
            server.kill()
            add(spool, end - 50, end)
            # Segments stay that the job has not read, which cannot read now.
            retain(spool, max_bytes=1)
            server.start()
        assert wait_until(lambda: pipeline.progress().changes == 200, LONG_S), pipeline.progress()
    finally:
        pipeline.stop()
        thread.join()
    shop.check("replicate", 200)
    # What is read can be removed, and the job continues after it.
    shop.run(spark, "replicate")
    assert retain(spool, max_bytes=1).kept_for == {}
    assert SpoolReader(spool).floor() == (150,)
    add(spool, 200, 210)
    assert shop.run(spark, "replicate").progress().changes == 10
    shop.check("replicate", 210)


def test_no_history_is_complete_because_the_server_does_not_answer(
    shop: Shop, server: ServerProcess, spark: SparkSession
) -> None:
    """Only the spool says if a history begins with its first message: the batch has to wait."""
    shop.describe(served(server))
    events = Events(replace(load(shop.file), retry_for="1s"))
    none = spark.createDataFrame(
        [], "_partition int, _ordinal long, operation string, problem string"
    )
    server.stop()
    with pytest.raises(SpoolUnavailableError):
        events.apply(none, 0, SpoolReader(shop.folder / "spool").id)


def test_a_wrong_token_ends_a_job_with_what_to_do(
    shop: Shop, server: ServerProcess, spark: SparkSession
) -> None:
    shop.describe(served(server, spoolToken="wrong-token-0123456789"))
    with pytest.raises(PipelineError, match="does not accept the token: set spoolToken") as refused:
        shop.run(spark, "replicate")
    assert "wrong-token" not in str(refused.value)
    assert shop.execute("SELECT * FROM orders") == []


def test_a_server_that_stays_away_ends_a_job_with_what_to_do(
    shop: Shop, server: ServerProcess, spark: SparkSession
) -> None:
    server.kill()
    shop.describe(served(server))
    text = shop.file.read_text().replace("trigger =", 'retry-for = "1s"\ntrigger =')
    shop.file.write_text(text)
    with pytest.raises(PipelineError, match="Start the server there") as away:
        shop.run(spark, "replicate")
    assert TOKEN not in str(away.value)
