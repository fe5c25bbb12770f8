"""Jobs of pipelines, from a broker to a replica and to an event store, with kills."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from stompkit.replication.model.frames import packets
from stompkit.spark.eventstore import SparkEventStore
from stompkit.spark.jobs import JobName, Pipeline, PipelineError, dead_letters, load
from stompkit.spark.jobs.status import look
from stompkit.spool import Record, SpoolError, SpoolReader
from stompkit.spool.readers import forget, register
from stompkit.spool.retention import retain
from stompkit.testing import RunningBroker
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.plugin import BrokerFactory
from stompkit.testing.proxy import Proxy
from tests.effort import effort, in_matrix
from tests.ports import free_ports
from tests.replication.broker.place import Dead
from tests.replication.brokers import Address, connect
from tests.spark.messages import BEGIN, fill, plain, records_of

LONG_S = 400.0
PROGRAM = (
    "import sys; from stompkit._commands.pipeline.command import main; sys.exit(main(sys.argv[1:]))"
)
SIMPLE = "CREATE TABLE orders (id INT NOT NULL PRIMARY KEY, state VARCHAR(20), seen INT)"
#: Number of rows: each changeset overwrites one of them.
ROWS = 40


def order(number: int, columns: dict[str, Any] | None = None) -> Changeset:
    """Return the changeset of a number, which overwrites a row."""
    key = {"id": number % ROWS}
    after = {"state": f"s{number}", "seen": number} if columns is None else columns
    change = RowChange(table="orders", action="write", key=key, after={**key, **after})
    source = Source(kind="postgresql", position=f"0/{number:X}", transaction=f"t-{number}")
    return make_changeset("shop", number, [change], source, id=f"c-{number}", timestamp=BEGIN)


def orders(first: int, end: int) -> list[Record]:
    return list(records_of(order(number) for number in range(first, end)))


def expected(count: int) -> list[tuple[int, str, int]]:
    """Return the table after this many changesets."""
    last = {number % ROWS: number for number in range(count)}
    return sorted((key, f"s{number}", number) for key, number in last.items())


def dead_letter_tables(broker: RunningBroker, queue: str, *addresses: Address) -> str:
    """Return the tables of a pipeline file that send dead letters, perhaps to another address."""
    [address] = addresses or [broker]
    options: dict[str, Any] = {
        "hosts": f"{address.host}:{address.port}",
        "virtualHost": broker.vhost,
        "destination": queue,
        "receipts": "receipt" in broker.capabilities,
    }
    if broker.login is not None:
        options |= {"login": broker.login, "passcode": broker.passcode or ""}
    told = "\n".join(f"{name} = {json.dumps(value)}" for name, value in options.items())
    return f'[apply]\non-problem = "dead-letter"\n[dead-letter]\n{told}\n'


class Shop:
    """A pipeline, its file, and its targets."""

    def __init__(self, folder: Path) -> None:
        """Create the replica's table."""
        self.folder = folder
        self.file = folder / "shop.toml"
        self.copy = folder / "copy.sqlite"
        self.events = folder / "events"
        self.execute(SIMPLE)

    def describe(self, source: dict[str, Any], more: str = "") -> None:
        """Write the file; ``more`` is TOML."""
        options = "\n".join(f"{name} = {json.dumps(value)}" for name, value in source.items())
        self.file.write_text(
            f"""name = "shop"
state-dir = "{self.folder}/state"
trigger = "50ms"

[source]
{options}

[target]
url = "sqlite:///{self.copy}"

[events]
path = "{self.events}"
history = true
ttl = "forever"

[spark]
master = "local[2]"
config = {{"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}}

{more}
"""
        )

    def run(self, spark: SparkSession, job: JobName) -> Pipeline:
        """Run a job here, until it has processed all messages."""
        pipeline = Pipeline(load(self.file), job, once=True, spark=spark)
        pipeline.run()
        return pipeline

    @contextmanager
    def running(self, job: JobName, *options: str) -> Iterator[subprocess.Popen[str]]:
        """Run a job in a child process."""
        command = [sys.executable, "-c", PROGRAM, "run", job, "--config", str(self.file), *options]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def done(self, job: JobName) -> int:
        """Return the number of messages that the target has."""
        try:
            return sum(place.next for place in look(load(self.file), job).places)
        except SpoolError:
            return 0  # it is being created

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Query or change the replica."""
        with closing(sqlite3.connect(self.copy, timeout=30)) as connection, connection:
            return connection.execute(statement).fetchall()

    def check(self, job: JobName, count: int) -> None:
        """Check that the target is as after this many changesets, without a duplicate event."""
        if job == "replicate":
            assert self.execute("SELECT id, state, seen FROM orders ORDER BY id") == expected(count)
            return
        store = SparkEventStore(self.events, history=True)
        found = [changeset.id for _, changeset in store.events()]
        assert sorted(found) == sorted(f"c-{number}" for number in range(count))
        assert len(store.replay("orders_write")) == min(count, ROWS)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def source_of(broker: RunningBroker, folder: Path, destination: str) -> dict[str, Any]:
    """Return the options with which a job receives by itself, by the broker's capabilities."""
    source: dict[str, Any] = {
        "spool": str(folder / "spool"),
        "hosts": f"{broker.host}:{broker.port}",
        "virtualHost": broker.vhost,
        "destination": destination,
    }
    if broker.login is not None:
        source |= {"login": broker.login, "passcode": broker.passcode or ""}
    if "ack" not in broker.capabilities:
        source["ack"] = "auto"
    if "receipt" not in broker.capabilities:
        source["receipts"] = False
    return source


def publish(broker: RunningBroker, destination: str, first: int, end: int) -> None:
    with connect(broker, receipts="receipt" in broker.capabilities) as link:
        made = [packet for number in range(first, end) for packet in packets(order(number))]
        link.send(destination, made).result(LONG_S)


# tests/integration/replication/test_pipeline.py kills both each time, in another session.
@pytest.mark.matrix
@pytest.mark.parametrize("job", effort(["replicate"], ["replicate", "events"]))
def test_a_job_goes_on_where_it_was_killed(
    spark: SparkSession, shop: Shop, stomp_broker: RunningBroker, job: JobName
) -> None:
    if "ack" not in stomp_broker.capabilities:
        pytest.skip(f"{stomp_broker.name} forgets what a receiver that is killed has not kept")
    queue = stomp_broker.queue("changes")
    source = source_of(stomp_broker, shop.folder, queue)
    shop.describe({**source, "maxRecordsPerTrigger": 100})
    publish(stomp_broker, queue, 0, 100)
    pipeline = shop.run(spark, job)
    progress = pipeline.progress()
    assert (progress.phase, progress.changes, progress.lag) == ("ended", 100, 0)
    shop.check(job, 100)
    # Now kill one in the middle of its work, with JVM and receiver.
    publish(stomp_broker, queue, 100, 3000)
    with shop.running(job, "--trigger", "0s") as process:
        assert wait_until(lambda: shop.done(job) > 300, LONG_S)
        process.kill()
        process.wait(LONG_S)
    publish(stomp_broker, queue, 3000, 3050)

    def has_all() -> bool:
        shop.run(spark, job)
        return shop.done(job) == 3050

    # The broker may take a while to notice the end of the receiver.
    assert wait_until(has_all, LONG_S)
    shop.check(job, 3050)


@pytest.mark.parametrize(
    "other",
    [
        in_matrix({"name": "activemq"}),
        in_matrix({"name": "rabbitmq"}),
        {"name": "stompkit", "quirks": "morbidq"},
    ],
    ids=lambda other: other.get("quirks", other["name"]),
)
def test_jobs_do_the_same_with_brokers_of_others(
    spark: SparkSession,
    shop: Shop,
    stomp_broker_factory: BrokerFactory,
    other: dict[str, str],
) -> None:
    """Two receivers of one spool: the second one reads the messages of the first one."""
    broker = stomp_broker_factory(**other)
    queue = broker.queue("changes")
    shop.describe(source_of(broker, shop.folder, queue))
    jobs = [Pipeline(load(shop.file), job, spark=spark) for job in ("replicate", "events")]
    threads = [threading.Thread(target=job.run) for job in jobs]
    for thread in threads:
        thread.start()

    def both_have(count: int) -> bool:
        assert all(thread.is_alive() for thread in threads)
        return [job.progress().changes for job in jobs] == [count, count]

    try:
        publish(broker, queue, 0, 200)
        assert wait_until(lambda: both_have(200), LONG_S)
        if "persistence" in broker.capabilities:
            broker.restart(kill=True)
        publish(broker, queue, 200, 300)
        assert wait_until(lambda: both_have(300), LONG_S)
    finally:
        for job, thread in zip(jobs, threads, strict=True):
            job.stop()
            thread.join(LONG_S)
    shop.check("replicate", 300)
    shop.check("events", 300)


def test_a_job_writes_nothing_into_what_all_streams_share(spark: SparkSession, shop: Shop) -> None:
    """Two concurrent starts would sometimes corrupt it."""

    def shared() -> dict[str, str]:
        session: Any = spark.newSession()._jsparkSession
        source = session.sessionState().dataSourceManager().lookupDataSource("stomp")
        return dict(source.dataSourceCls().envVars())

    before = shared()
    shop.describe({"spool": str(fill(shop.folder / "spool", orders(0, 50)))})
    assert shop.run(spark, "replicate").progress().changes == 50
    assert shared() == before


@pytest.mark.matrix
def test_a_signal_ends_a_job_after_the_batch_under_way(shop: Shop) -> None:
    spool = fill(shop.folder / "spool", *(orders(n, n + 100) for n in range(0, 3000, 100)))
    shop.describe({"spool": str(spool), "maxRecordsPerTrigger": 100, "reader": ""})
    with shop.running("replicate") as process:
        assert wait_until(lambda: shop.done("replicate") > 0, LONG_S)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=LONG_S)[1]
    assert process.returncode == 0
    assert "ended  batch" in errors
    assert "Traceback" not in errors
    done = shop.done("replicate")
    shop.check("replicate", done)
    # Processed batches are in the checkpoint: nothing is repeated.
    commits = shop.folder / "state/shop/replicate/checkpoint/commits"
    assert done == 100 * len([path for path in commits.iterdir() if path.name.isdecimal()])


def test_a_lost_checkpoint_changes_nothing(spark: SparkSession, shop: Shop) -> None:
    spool = fill(shop.folder / "spool", orders(0, 50))
    for state in ("one", "two"):
        shop.describe({"spool": str(spool)})
        text = shop.file.read_text().replace(f"{shop.folder}/state", f"{shop.folder}/{state}")
        shop.file.write_text(text)
        pipeline = shop.run(spark, "events")
        assert pipeline.progress().changes == (50 if state == "one" else 0)
    shop.check("events", 50)


@pytest.mark.parametrize(
    "damaged",
    [
        "offsets",
        pytest.param("commits", marks=pytest.mark.matrix),
        pytest.param("metadata", marks=pytest.mark.matrix),
    ],
)
def test_damaged_checkpoint_is_said_to_be_no_loss(
    spark: SparkSession, shop: Shop, damaged: str
) -> None:
    spool = fill(shop.folder / "spool", orders(0, 50))
    shop.describe({"spool": str(spool)})
    shop.run(spark, "replicate")
    fill(shop.folder / "spool", orders(50, 60))
    checkpoint = shop.folder / "state/shop/replicate/checkpoint"
    for path in (checkpoint / damaged, *(checkpoint / damaged).glob("*")):
        if path.is_file():
            path.write_text("{")
            (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    with pytest.raises(PipelineError, match=r"replicate/checkpoint is damaged, remove it\. How"):
        shop.run(spark, "replicate")
    shutil.rmtree(checkpoint)
    assert shop.run(spark, "replicate").progress().changes == 10
    shop.check("replicate", 60)


def test_what_a_target_lacks_is_told_in_the_words_of_the_file(
    spark: SparkSession, shop: Shop
) -> None:
    spool = fill(shop.folder / "spool", orders(0, 50))
    shop.describe({"spool": str(spool)})
    shop.execute("DROP TABLE orders")
    with pytest.raises(PipelineError, match=r"set create = true in \[target\]"):
        shop.run(spark, "replicate")
    text = shop.file.read_text().replace("[target]\n", "[target]\ncreate = true\n")
    shop.file.write_text(text)
    shop.run(spark, "replicate")
    shop.check("replicate", 50)


def test_what_no_second_try_can_help_is_not_tried_again(spark: SparkSession, shop: Shop) -> None:
    spool = fill(shop.folder / "spool", orders(0, 5))
    shop.describe({"spool": str(spool)})
    shop.file.write_text(shop.file.read_text().replace("copy.sqlite", "missing/copy.sqlite"))
    pipeline = Pipeline(load(shop.file), "replicate", once=True, spark=spark)
    with pytest.raises(PipelineError, match=r"there is no folder .*/missing: make it"):
        pipeline.run()
    assert pipeline.progress().retries == 0


def test_a_change_that_can_not_be_applied_stops_or_is_a_dead_letter(
    spark: SparkSession,
    shop: Shop,
    stomp_broker: RunningBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad = records_of([order(50, {"state": "s50", "seen": "never"})])
    spool = fill(shop.folder / "spool", orders(0, 50), [*plain(0, 1), *bad])
    shop.describe({"spool": str(spool)})
    with pytest.raises(PipelineError, match=r'message 50 .*on-problem = "dead-letter"'):
        shop.run(spark, "replicate")
    queue = stomp_broker.queue("letters")

    def describe(*addresses: Address) -> None:
        more = dead_letter_tables(stomp_broker, queue, *addresses)
        shop.describe({"spool": str(spool)}, more)
        shop.file.write_text('retry-for = "100ms"\n' + shop.file.read_text())

    # They are counted when they are recorded, even if they cannot be sent.
    with free_ports() as (port,), monkeypatch.context() as patch:
        describe(Dead("127.0.0.1", port))
        pipeline = Pipeline(load(shop.file), "replicate", once=True, spark=spark)
        patch.setattr(dead_letters, "_CONNECT_S", 0.5)
        with pytest.raises(PipelineError, match="dead letters cannot be sent"):
            pipeline.run()
    assert pipeline.progress().dead_letters == 2
    shop.check("replicate", 50)
    describe()
    assert shop.run(spark, "replicate").progress().dead_letters == 0
    letters = "SELECT ordinal, operation FROM stompkit_pipeline_dead_letters ORDER BY ordinal"
    assert shop.execute(letters) == [(50, "unreadable"), (51, "write")]
    with connect(stomp_broker, receipts="receipt" in stomp_broker.capabilities) as link:
        inbox = link.subscribe(queue)
        frames = [inbox.get(LONG_S) for _ in range(2)]
    bodies = [json.loads(frame.body) for frame in frames if frame is not None]
    assert [(each["ordinal"], each["table"]) for each in bodies] == [(50, ""), (51, "orders")]


def test_a_problem_that_has_passed_is_not_shown_any_more(
    spark: SparkSession,
    shop: Shop,
    stomp_broker: RunningBroker,
    stomp_proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dead_letters, "_CONNECT_S", 0.5)
    spool = fill(shop.folder / "spool", plain(0, 1))
    queue = stomp_broker.queue("letters")
    shop.describe({"spool": str(spool)}, dead_letter_tables(stomp_broker, queue, stomp_proxy))
    job = Pipeline(load(shop.file), "replicate", spark=spark)
    thread = threading.Thread(target=job.run)
    with stomp_proxy.refuse():
        thread.start()
        assert wait_until(lambda: "letters cannot be sent" in job.progress().problem, LONG_S)
    try:
        assert wait_until(lambda: not job.progress().problem, LONG_S)
        assert thread.is_alive()
    finally:
        job.stop()
        thread.join(LONG_S)


def test_a_job_runs_once_at_a_time_and_is_stopped_from_another_thread(
    spark: SparkSession, shop: Shop
) -> None:
    spool = fill(shop.folder / "spool", orders(0, 50))
    shop.describe({"spool": str(spool)})
    first = Pipeline(load(shop.file), "replicate", spark=spark)
    thread = threading.Thread(target=first.run)
    thread.start()
    try:
        assert wait_until(lambda: first.progress().changes == 50, LONG_S)
        assert look(load(shop.file), "replicate").is_running
        with pytest.raises(PipelineError, match="is running already"):
            shop.run(spark, "replicate")
    finally:
        first.stop()
        thread.join(LONG_S)
    assert first.progress().phase == "ended"
    assert not look(load(shop.file), "replicate").is_running
    # Retention considers the job without a setting.
    assert "shop.replicate" in [path.stem for path in (spool / "readers").iterdir()]


def test_spool_keeps_messages_for_each_job_of_a_file(
    spark: SparkSession, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    spool = shop.folder / "spool"
    shop.describe({"spool": str(spool), "reader": "shop"})
    fill(spool, *([each] for each in orders(0, 9)), segment_bytes=1 << 8)
    register(spool, "shop", [3])
    shop.run(spark, "events")
    shop.run(spark, "replicate")
    assert f"stompkit spool readers {spool} --forget shop" in caplog.text
    assert forget(spool, "shop")
    fill(spool, *([each] for each in orders(9, 20)), segment_bytes=1 << 8)
    shop.run(spark, "events")
    retain(spool, max_bytes=1)
    shop.run(spark, "replicate")
    shop.check("replicate", 20)
    shop.check("events", 20)


def test_a_spool_that_was_made_anew_is_refused(spark: SparkSession, shop: Shop) -> None:
    spool = fill(shop.folder / "spool", orders(0, 10))
    shop.describe({"spool": str(spool)})
    shop.run(spark, "replicate")
    spool.rename(shop.folder / "old")
    fill(spool, orders(0, 20))
    with pytest.raises(PipelineError, match="begin with a new checkpoint"):
        shop.run(spark, "replicate")
    assert SpoolReader(spool).head() == (20,)
