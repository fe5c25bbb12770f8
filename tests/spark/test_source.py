"""The format ``stomp`` in Spark: the source, and the sink."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from stompkit.client.blocking import BrokerUrl, Delivery, Link
from stompkit.spark.stream.batch import BatchReader
from stompkit.spark.stream.options import SourceOptions
from stompkit.spool import SpoolReader, SpoolWriter, readers
from stompkit.spool.retention import retain
from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.spark.messages import BEGIN, changeset, fill, plain, records_of

_PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with launch(LaunchConfig()) as running:
        yield running


@pytest.fixture
def link(broker: RunningBroker) -> Iterator[Link]:
    with BrokerUrl(hosts=(f"127.0.0.1:{broker.port}",)).link() as made:
        yield made


Stream = Callable[..., list[list[Row]]]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    """A function that runs a stream until it has read everything, with one checkpoint."""

    def run(spool: Path, **options: str) -> list[list[Row]]:
        batches: list[list[Row]] = []

        def take(frame: DataFrame, number: int) -> None:
            batches.append(frame.collect())

        source = spark.readStream.format("stomp").option("spool", str(spool)).options(**options)
        query = (
            source.load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(int(_PATIENCE_S))
        return batches

    return run


def batch(spark: SparkSession, spool: Path, **options: str) -> DataFrame:
    return spark.read.format("stomp").option("spool", str(spool)).options(**options).load()


def ordinals(rows: list[Row]) -> list[int]:
    return sorted(row["_ordinal"] for row in rows)


def test_a_stream_goes_on_where_its_checkpoint_is(stream: Stream, tmp_path: Path) -> None:
    spool = fill(tmp_path / "spool", plain(0, 15), plain(15, 25))
    batches = stream(spool, maxRecordsPerTrigger="10")
    assert [ordinals(rows) for rows in batches] == [
        list(range(0, 10)),
        list(range(10, 20)),
        list(range(20, 25)),
    ]
    row = batches[0][3].asDict()
    assert row["headers"] == {"priority": "3", "stompkit-origin": "origin-3"}
    assert (row["destination"], row["message_id"], row["event_id"], bytes(row["body"])) == (
        "/queue/orders",
        "m-3",
        "e-3",
        b"body 3",
    )
    assert stream(spool) == []
    fill(spool, plain(25, 30))
    assert [ordinals(rows) for rows in stream(spool)] == [list(range(25, 30))]


def test_a_stream_of_changes_has_each_of_them_once(stream: Stream, tmp_path: Path) -> None:
    sets = [changeset(n, changes=1 + 7 * (n % 3)) for n in range(12)]
    records = list(records_of(sets, max_body_bytes=900))
    assert len(records) > 20
    spool = fill(tmp_path / "spool", records[:11], records[11:])
    # Batches and their tasks end within changesets.
    batches = stream(spool, payload="changeset", maxRecordsPerTrigger="7", minPartitions="2")
    assert len(batches) > 2
    rows = sorted((row for rows in batches for row in rows), key=lambda row: row["_ordinal"])
    assert all(row["problem"] is None for row in rows)
    assert sorted((row["sequence"], row["change"]) for row in rows) == [
        (each.sequence, n) for each in sets for n in range(len(each.changes))
    ]
    assert {row["operation"] for row in rows} == {"update"}
    assert {row["committed"].timestamp() for row in rows} == {BEGIN.timestamp()}
    assert json.loads(rows[-1]["after"]) == {"state": "paid", "note": "größer"}


def test_a_stream_of_a_named_reader_tells_retention_how_far_it_is(
    stream: Stream, tmp_path: Path
) -> None:
    spool = fill(tmp_path / "spool", plain(0, 25))
    stream(spool, reader="replica", maxRecordsPerTrigger="10")
    # Spark confirms a batch when it plans the next one, and asks again after the last.
    assert readers.listed(spool)["replica"].positions == (25,)


def test_a_checkpoint_of_another_spool_ends_the_stream(stream: Stream, tmp_path: Path) -> None:
    stream(fill(tmp_path / "spool", plain(0, 5)))
    other = fill(tmp_path / "other", plain(0, 9))
    with pytest.raises(PySparkException, match="new checkpoint"):
        stream(other)


def test_a_batch_is_between_its_bounds(spark: SparkSession, tmp_path: Path) -> None:
    spool = fill(tmp_path, plain(0, 6), plain(6, 10))
    assert ordinals(batch(spark, spool).collect()) == list(range(10))
    bounds = {"startingOffsets": '{"0": 3}', "endingOffsets": '{"0": 8}'}
    assert ordinals(batch(spark, spool, **bounds).collect()) == [3, 4, 5, 6, 7]
    from_time = {"startingTimestamp": BEGIN.replace(second=7).isoformat()}
    assert ordinals(batch(spark, spool, **from_time).collect()) == [7, 8, 9]
    nothing = {"startingOffsets": "latest"}
    assert batch(spark, spool, **nothing).collect() == []


def test_a_batch_has_all_partitions_in_as_many_tasks_as_are_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    spool = fill(tmp_path, plain(0, 40), plain(40, 60), partitions=3)
    frame = batch(spark, spool, minPartitions="7")
    assert frame.rdd.getNumPartitions() >= 7
    rows = frame.collect()
    assert {(row["_partition"], row["_ordinal"]) for row in rows} == {
        (partition, ordinal)
        for partition, head in enumerate(SpoolReader(spool).head())
        for ordinal in range(head)
    }
    assert sorted(row["event_id"] for row in rows) == sorted(f"e-{n}" for n in range(60))


def test_filters_give_the_same_rows_whether_they_are_pushed_down_or_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    spool = fill(tmp_path, plain(0, 20))
    wanted = "_ordinal >= 5 and _ordinal < 9 and destination = '/queue/orders'"
    assert ordinals(batch(spark, spool).where(wanted).collect()) == [5, 6, 7, 8]
    conf = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(conf, "true")
    try:
        pushed = batch(spark, spool, pushFilters="true").where(wanted)
        assert ordinals(pushed.collect()) == [5, 6, 7, 8]
    finally:
        spark.conf.unset(conf)


def test_what_retention_has_removed_is_an_error_unless_that_is_wanted(
    spark: SparkSession, tmp_path: Path
) -> None:
    groups = [plain(n, n + 1, size=500) for n in range(10)]
    spool = fill(tmp_path, *groups, segment_bytes=1500)
    retain(spool, max_bytes=2000)
    (floor,) = SpoolReader(spool).floor()
    assert floor > 0
    first = {"startingOffsets": '{"0": 0}'}
    with pytest.raises(PySparkException, match="failOnDataLoss"):
        batch(spark, spool, **first).collect()
    rows = batch(spark, spool, **first, failOnDataLoss="false").collect()
    assert ordinals(rows) == list(range(floor, 10))


def test_an_option_that_is_misspelled_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match=r"did you mean payload\?"):
        batch(spark, tmp_path, paylod="raw")


class Text:
    """The contents of a frame."""

    def __init__(self, number: int) -> None:
        """Return a message that differs in its number only."""
        self.headers = {"event-id": f"sent-{number}"}
        self.body = f"body {number}".encode()


def test_a_stream_receives_from_brokers_by_itself(
    stream: Stream, link: Link, broker: RunningBroker, tmp_path: Path
) -> None:
    options = {"hosts": f"127.0.0.1:{broker.port}", "destinations": "/queue/by-itself"}
    link.send("/queue/by-itself", [Text(n) for n in range(20)]).result(_PATIENCE_S)
    spool = tmp_path / "spool"
    rows = [row for rows in stream(spool, **options) for row in rows]
    assert [row["event_id"] for row in rows] == [f"sent-{n}" for n in range(20)]
    link.send("/queue/by-itself", [Text(n) for n in range(20, 30)]).result(_PATIENCE_S)
    rows = [row for rows in stream(spool, **options) for row in rows]
    assert [row["event_id"] for row in rows] == [f"sent-{n}" for n in range(20, 30)]
    assert [bytes(row["body"]) for row in rows] == [b"body %d" % n for n in range(20, 30)]


def test_batch_receives_what_the_broker_has(
    spark: SparkSession, link: Link, broker: RunningBroker, tmp_path: Path
) -> None:
    options = {"hosts": f"127.0.0.1:{broker.port}", "destinations": "/queue/one-batch"}
    for first in (0, 20):
        texts = [Text(n) for n in range(first, first + 20)]
        link.send("/queue/one-batch", texts).result(_PATIENCE_S)
        found = batch(spark, tmp_path / "spool", **options).collect()
        rows = sorted(found, key=lambda row: row["_ordinal"])
        assert [row["event_id"] for row in rows] == [f"sent-{n}" for n in range(first + 20)]


def test_only_what_a_selector_takes_is_received(
    link: Link, broker: RunningBroker, tmp_path: Path
) -> None:
    asked = {"hosts": f"127.0.0.1:{broker.port}", "destinations": "/queue/selected"}
    link.send("/queue/selected", [Text(n) for n in range(20)]).result(_PATIENCE_S)
    selector = "\"event-id\" = 'sent-7'"
    options = {"spool": str(tmp_path / "spool"), "selector": selector, **asked}
    reader = BatchReader(SourceOptions.parse(options))
    found = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert [body for batch in found for body in batch.column("body").to_pylist()] == [b"body 7"]


def test_batch_reads_a_spool_that_somebody_else_fills(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    options = {"hosts": f"127.0.0.1:{broker.port}", "destinations": "/queue/of-another"}
    with SpoolWriter(tmp_path / "spool", sync=False) as writer:
        writer.append(plain(0, 5))
        assert ordinals(batch(spark, tmp_path / "spool", **options).collect()) == list(range(5))


def test_first_of_headers_with_one_name_counts(tmp_path: Path) -> None:
    headers = [
        (("a", "1"), ("b", "2"), ("a", "3")),
        (),
        (("b", "4"), ("b", "5")),
        (("c", "6"), ("a", "7")),
    ]
    records = [
        record._replace(headers=each) for record, each in zip(plain(0, 4), headers, strict=True)
    ]
    fill(tmp_path / "spool", records)
    for start in (0, 2):
        options = {"spool": str(tmp_path / "spool"), "startingOffsets": f'{{"0": {start}}}'}
        reader = BatchReader(SourceOptions.parse(options))
        found = [batch for part in reader.partitions() for batch in reader.read(part)]
        maps = [each for batch in found for each in batch.column("headers").to_pylist()]
        first = [[("a", "1"), ("b", "2")], [], [("b", "4")], [("c", "6"), ("a", "7")]]
        assert maps == first[start:]


def received(link: Link, queue: str, count: int) -> list[Delivery]:
    inbox = link.subscribe(queue)
    found = []
    for _ in range(count):
        delivery = inbox.get(_PATIENCE_S)
        assert delivery is not None
        delivery.ack()
        found.append(delivery)
    inbox.close()
    return found


def test_equal_rows_of_two_writes_have_event_ids_of_their_own(
    spark: SparkSession, link: Link, broker: RunningBroker
) -> None:
    frame = spark.range(4, numPartitions=2).select(
        f.concat(f.lit("text "), f.col("id").cast("string")).alias("value"),
        f.create_map(f.lit("kind"), f.lit("test")).alias("headers"),
    )
    for _ in range(2):
        frame.write.format("stomp").option("hosts", f"127.0.0.1:{broker.port}").option(
            "destination", "/queue/sink"
        ).mode("append").save()
    found = received(link, "/queue/sink", 8)
    by_body: dict[bytes, set[str]] = {}
    for each in found:
        assert each.headers["kind"] == "test"
        assert each.headers["content-type"] == "text/plain"
        by_body.setdefault(each.body, set()).add(each.headers["event-id"])
    assert by_body.keys() == {b"text 0", b"text 1", b"text 2", b"text 3"}
    assert len(set.union(*by_body.values())) == 8


def test_a_stream_from_a_spool_to_a_broker_and_back(
    spark: SparkSession, link: Link, broker: RunningBroker, tmp_path: Path
) -> None:
    spool = fill(tmp_path / "spool", plain(0, 30))
    source = spark.readStream.format("stomp").option("spool", str(spool)).load()
    query = (
        source.drop("event_id")
        .withColumn("destination", f.lit("/queue/forwarded"))
        .writeStream.format("stomp")
        .option("hosts", f"127.0.0.1:{broker.port}")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(int(_PATIENCE_S))
    found = received(link, "/queue/forwarded", 30)
    assert [each.body for each in found] == [b"body %d" % n for n in range(30)]
    assert [each.headers["stompkit-origin"] for each in found] == [
        f"origin-{n % 7}" for n in range(30)
    ]
    assert [each.headers["event-id"].rpartition("-")[0] for each in found] == [
        f"{query.id}-0-0-{n}" for n in range(30)
    ]


def test_rows_of_a_batch_of_a_query_have_other_event_ids_unless_it_is_repeated(
    spark: SparkSession, link: Link, broker: RunningBroker
) -> None:
    """A function of ``foreachBatch`` writes some rows, and then others."""
    context = spark.sparkContext
    names = {"sql.streaming.queryId": "query", "streaming.sql.batchId": "7"}
    try:
        for name, value in names.items():
            context.setLocalProperty(name, value)
        # A task of a repeated batch may have its rows in another order.
        for bodies in ("a b", "c d", "a b", "b a"):
            rows = spark.createDataFrame([(body,) for body in bodies.split()], ["body"])
            rows.coalesce(1).write.format("stomp").option(
                "hosts", f"127.0.0.1:{broker.port}"
            ).option("destination", "/queue/again").mode("append").save()
    finally:
        for name in names:
            context.setLocalProperty(name, "")
    ids = [each.headers["event-id"] for each in received(link, "/queue/again", 8)]
    assert ids[4:6] == ids[:2]
    assert len(set(ids)) == 6


def test_columns_that_can_not_be_sent_are_refused(spark: SparkSession) -> None:
    rows = spark.range(1)
    with pytest.raises(PySparkException, match="no use for the column id"):
        rows.write.format("stomp").option("hosts", "mq").mode("append").save()
