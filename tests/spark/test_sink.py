"""The sink without Spark: the messages of tasks, and their ids."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from stompkit.client.blocking import BrokerUrl
from stompkit.spark.sink import BatchWriter, StreamWriter
from stompkit.spark.source import StompDataSource
from stompkit.spool import SpoolReader, SpoolWriter
from stompkit.spool.receiver import Receiver
from stompkit.testing import RunningBroker
from tests.replication.broker.place import until

SCHEMA = StructType([StructField("body", StringType())])
ROWS = pa.RecordBatch.from_pydict({"body": ["equal", "equal"]})
Writer = BatchWriter | StreamWriter


def send(writer: Writer, batch: pa.RecordBatch = ROWS) -> None:
    """Send the messages of a task, which receives the pickled writer."""
    again: Writer = pickle.loads(pickle.dumps(writer))
    assert again.write(iter([batch])).messages == batch.num_rows


@pytest.fixture
def source(stomp_broker: RunningBroker) -> StompDataSource:
    hosts = f"{stomp_broker.host}:{stomp_broker.port}"
    return StompDataSource({"hosts": hosts, "destination": "/queue/sunk"})


@pytest.fixture
def received(stomp_broker: RunningBroker, tmp_path: Path) -> Iterator[Callable[[], int]]:
    """A function that returns the number of messages in a spool."""
    url = BrokerUrl.parse(f"stomp://{stomp_broker.host}:{stomp_broker.port}")
    with SpoolWriter(tmp_path / "spool", sync=False) as writer:
        receiver = Receiver(url, ["/queue/sunk"], writer)
        receiver.start()
        yield lambda: SpoolReader(tmp_path / "spool").head()[0]
        receiver.stop()
        receiver.join(30)


def test_equal_rows_that_are_written_again_are_other_messages(
    source: StompDataSource, received: Callable[[], int]
) -> None:
    writers: list[Writer] = [source.writer(SCHEMA, overwrite=False) for _ in range(3)]
    for each in writers:
        send(each)
    until(lambda: received() == 6)
    # A task of the first write is repeated, and a second write shows that all has arrived.
    send(writers[0])
    send(source.writer(SCHEMA, overwrite=False))
    until(lambda: received() == 8)
    # Another attempt has its rows in another order: each keeps its id.
    mixed = source.writer(SCHEMA, overwrite=False)
    send(mixed, pa.RecordBatch.from_pydict({"body": ["a", "b"]}))
    send(mixed, pa.RecordBatch.from_pydict({"body": ["b", "a"]}))
    until(lambda: received() == 12)


def test_equal_rows_of_batches_that_spark_does_not_name_are_other_messages(
    source: StompDataSource, received: Callable[[], int]
) -> None:
    writer = source.streamWriter(SCHEMA, overwrite=False)
    for _ in range(2):
        send(writer)
    until(lambda: received() == 4)
