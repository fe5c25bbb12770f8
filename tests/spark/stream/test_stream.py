"""The calls of Spark to a stream's reader, without Spark."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from stompkit.spark import StompDataSource
from stompkit.spark.stream.batch import BatchReader, FilteringReader
from stompkit.spark.stream.options import SourceOptions
from stompkit.spark.stream.reader import StreamReader
from stompkit.spool import DataLostError, OtherSpoolError, SpoolError, SpoolReader, readers
from stompkit.spool.retention import retain
from tests.spark.messages import BEGIN, fill, plain

Streaming = Callable[..., StreamReader]


@pytest.fixture
def stream(tmp_path: Path) -> Streaming:
    """A factory of readers of the spool, with options."""

    def make(**options: str) -> StreamReader:
        return StreamReader(SourceOptions.parse({"spool": str(tmp_path), **options}))

    return make


def ordinals(offset: dict[str, Any]) -> list[int]:
    return list(offset["p"].values())


def ranges(partitions: object) -> list[tuple[int, int, int]]:
    assert isinstance(partitions, list)
    found = []
    for each in partitions:
        assert isinstance(each, InputPartition)
        found.append(each.value)
    return found


def all_batches(reader: StreamReader, limit: ReadLimit) -> list[list[int]]:
    """Yield the ends of batches until there are no more."""
    offset = reader.initialOffset()
    ends = []
    while (end := reader.latestOffset(offset, limit)) != offset:
        ends.append(ordinals(end))
        offset = end
    return ends


def test_a_batch_has_no_more_messages_than_are_asked_for(stream: Streaming, tmp_path: Path) -> None:
    fill(tmp_path, plain(0, 25))
    reader = stream(maxRecordsPerTrigger="10")
    assert all_batches(reader, reader.getDefaultReadLimit()) == [[10], [20], [25]]


def test_a_bound_of_one_message_gets_on_in_all_partitions(
    stream: Streaming, tmp_path: Path
) -> None:
    fill(tmp_path, plain(0, 14), partitions=3)
    reader = stream(maxRecordsPerTrigger="1")
    ends = all_batches(reader, reader.getDefaultReadLimit())
    assert [sum(end) for end in ends] == list(range(1, 15))
    assert ends[-1] == list(SpoolReader(tmp_path).head())


def test_a_batch_has_no_more_octets_than_are_asked_for(stream: Streaming, tmp_path: Path) -> None:
    fill(tmp_path, *(plain(n, n + 5, size=1000) for n in range(0, 20, 5)))
    reader = stream(maxBytesPerTrigger="12000")
    assert all_batches(reader, reader.getDefaultReadLimit()) == [[10], [20]]


def test_what_comes_after_its_beginning_is_not_for_a_query_that_ends(
    stream: Streaming, tmp_path: Path
) -> None:
    fill(tmp_path, plain(0, 5))
    reader = stream()
    reader.prepareForTriggerAvailableNow()
    fill(tmp_path, plain(5, 9))
    assert all_batches(reader, ReadAllAvailable()) == [[5]]
    assert ordinals(reader.reportLatestOffset()) == [9]


def test_a_stream_begins_where_it_is_told(stream: Streaming, tmp_path: Path) -> None:
    fill(tmp_path, plain(0, 5), plain(5, 9))
    assert ordinals(stream().initialOffset()) == [0]
    assert ordinals(stream(startingOffsets="latest").initialOffset()) == [9]
    assert ordinals(stream(startingOffsets='{"0": 7}').initialOffset()) == [7]
    assert ordinals(stream(startingOffsets='{"0": -1}').initialOffset()) == [9]
    time = BEGIN.replace(second=4)
    assert ordinals(stream(startingTimestamp=time.isoformat()).initialOffset()) == [4]
    with pytest.raises(SpoolError, match="no partition 3"):
        stream(startingOffsets='{"3": 7}').initialOffset()


@pytest.mark.parametrize("starts", [(12, 12), (12, 15), (3, 12)])
def test_offsets_beyond_the_end_are_no_empty_batch_and_no_damage(
    stream: Streaming, tmp_path: Path, starts: tuple[int, int]
) -> None:
    fill(tmp_path, plain(0, 9))
    start, end = (
        {"v": 1, "spool": SpoolReader(tmp_path).id, "p": {"0": ordinal}} for ordinal in starts
    )
    with pytest.raises(SpoolError, match="older copy"):
        stream().partitions(start, end)
    both = {"startingOffsets": json.dumps(start), "endingOffsets": json.dumps(end)}
    with pytest.raises(SpoolError, match="older copy"):
        BatchReader(SourceOptions.parse({"spool": str(tmp_path), **both})).partitions()


def test_a_batch_does_not_begin_beyond_the_end(tmp_path: Path) -> None:
    fill(tmp_path, plain(0, 9))
    spool = {"spool": str(tmp_path)}
    at_end = SourceOptions.parse({**spool, "startingOffsets": '{"0": 9}'})
    assert BatchReader(at_end).partitions() == []
    beyond = SourceOptions.parse({**spool, "startingOffsets": '{"0": 10}'})
    with pytest.raises(SpoolError, match="older copy"):
        BatchReader(beyond).partitions()


def test_bounds_from_a_checkpoint_of_another_spool_are_refused(
    stream: Streaming, tmp_path: Path
) -> None:
    fill(tmp_path, plain(0, 9))
    own, other = (
        json.dumps({"v": 1, "spool": spool, "p": {"0": 7}})
        for spool in (SpoolReader(tmp_path).id, "x")
    )
    assert ordinals(stream(startingOffsets=own).initialOffset()) == [7]
    with pytest.raises(OtherSpoolError):
        stream(startingOffsets=other).initialOffset()
    for one_side in ({"startingOffsets": other}, {"endingOffsets": other}):
        options = SourceOptions.parse({"spool": str(tmp_path), **one_side})
        with pytest.raises(OtherSpoolError):
            BatchReader(options).partitions()


@pytest.mark.parametrize("latest", ["latest", '{"0": -1}'])
def test_the_start_of_a_named_reader_is_kept_while_no_batch_is_done(
    stream: Streaming, tmp_path: Path, latest: str
) -> None:
    fill(tmp_path, plain(0, 5))
    first = stream(startingOffsets=latest, reader="replica")
    start = first.initialOffset()
    first.latestOffset(start, ReadAllAvailable())
    fill(tmp_path, plain(5, 9))
    assert stream(startingOffsets=latest, reader="replica").initialOffset() == start
    assert ordinals(stream(startingOffsets=latest).initialOffset()) == [9]


def test_retention_waits_for_a_named_reader(stream: Streaming, tmp_path: Path) -> None:
    fill(tmp_path, plain(0, 9))
    reader = stream(reader="replica", maxRecordsPerTrigger="4")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert readers.listed(tmp_path)["replica"].positions == (0,)
    reader.commit(end)
    assert readers.listed(tmp_path)["replica"].positions == (4,)


def test_query_that_waits_for_messages_is_not_behind(stream: Streaming, tmp_path: Path) -> None:
    fill(tmp_path, plain(0, 9))
    reader = stream(reader="replica")
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    # The batch is done, and Spark asks for the next one.
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    assert readers.listed(tmp_path)["replica"].positions == (9,)


def without_the_first(folder: Path) -> int:
    """Return a spool without its first segments, and its first ordinal."""
    fill(folder, *(plain(n, n + 1, size=500) for n in range(10)), segment_bytes=1500)
    retain(folder, max_bytes=2000)
    (floor,) = SpoolReader(folder).floor()
    assert 0 < floor < 10
    return floor


def test_what_retention_has_removed_is_an_error(stream: Streaming, tmp_path: Path) -> None:
    without_the_first(tmp_path)
    reader = stream(startingOffsets='{"0": 0}')
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLostError, match=r"messages 0 to .* failOnDataLoss"):
        reader.partitions(start, end)


def test_what_retention_has_removed_is_left_out_where_that_is_wanted(
    stream: Streaming, tmp_path: Path
) -> None:
    floor = without_the_first(tmp_path)
    reader = stream(startingOffsets='{"0": 0}', failOnDataLoss="false", maxRecordsPerTrigger="1")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert ranges(reader.partitions(start, end)) == [(0, floor, floor + 1)]


def test_a_checkpoint_of_another_spool_is_refused(
    stream: Streaming, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fill(tmp_path, plain(0, 5))
    other = fill(tmp_path_factory.mktemp("other"), plain(0, 5))
    start = StreamReader(SourceOptions.parse({"spool": str(other)})).initialOffset()
    with pytest.raises(OtherSpoolError, match="new checkpoint"):
        stream().latestOffset(start, ReadAllAvailable())


def test_a_spool_that_ends_before_the_checkpoint_is_refused(
    stream: Streaming, tmp_path: Path
) -> None:
    fill(tmp_path, plain(0, 5))
    reader = stream()
    start = reader.initialOffset()
    with pytest.raises(SpoolError, match="older copy"):
        reader.latestOffset(start | {"p": {"0": 6}}, ReadAllAvailable())


@pytest.mark.parametrize("more", [3, 5, 50])
def test_an_older_copy_of_the_spool_that_has_grown_is_refused(
    stream: Streaming, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, more: int
) -> None:
    fill(tmp_path, plain(0, 5))
    copy = tmp_path_factory.mktemp("copies") / "copy"
    shutil.copytree(tmp_path, copy)
    fill(tmp_path, plain(5, 8))
    begin = stream().initialOffset()
    end = stream().latestOffset(begin, ReadAllAvailable())
    stream().partitions(begin, end)
    shutil.rmtree(tmp_path)
    shutil.copytree(copy, tmp_path)
    fill(tmp_path, plain(8, 8 + more))
    with pytest.raises(OtherSpoolError, match="older copy"):
        stream().latestOffset(end, ReadAllAvailable())
    with pytest.raises(OtherSpoolError, match="older copy"):
        stream().partitions(begin, end)
    bound = SourceOptions.parse({"spool": str(tmp_path), "startingOffsets": json.dumps(end)})
    with pytest.raises(OtherSpoolError, match="older copy"):
        StreamReader(bound).initialOffset()
    assert stream().latestOffset(begin, ReadAllAvailable())["p"] == {"0": 5 + more}


def test_an_offset_of_a_newer_format_is_refused(stream: Streaming, tmp_path: Path) -> None:
    fill(tmp_path, plain(0, 5))
    start = stream().initialOffset()
    with pytest.raises(SpoolError, match="format 2"):
        stream().latestOffset(start | {"v": 2}, ReadAllAvailable())


def test_a_spool_that_is_not_there_is_told(stream: Streaming) -> None:
    with pytest.raises(SpoolError):
        stream().initialOffset()


def test_tasks_are_as_many_as_are_asked_for(stream: Streaming, tmp_path: Path) -> None:
    fill(tmp_path, plain(0, 9))
    reader = stream(minPartitions="4")
    start = reader.initialOffset()
    found = ranges(reader.partitions(start, reader.latestOffset(start, ReadAllAvailable())))
    assert len(found) == 4
    assert [n for _, first, end in found for n in range(first, end)] == list(range(9))


def test_what_a_task_reads_is_told_in_few_octets(stream: Streaming, tmp_path: Path) -> None:
    fill(tmp_path, plain(0, 9, size=10_000))
    reader = stream()
    start = reader.initialOffset()
    (task,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    sent = pickle.dumps(task)
    assert len(sent) < 2000
    (batch,) = stream().read(pickle.loads(sent))
    assert batch.num_rows == 9


@pytest.mark.parametrize(
    ("wanted", "read"),
    [
        (GreaterThan(("_ordinal",), 6), (6, 10)),
        (GreaterThanOrEqual(("_ordinal",), 6), (6, 10)),
        (LessThan(("_ordinal",), 6), (0, 7)),
        (LessThanOrEqual(("_ordinal",), 6), (0, 7)),
        (EqualTo(("_ordinal",), 6), (6, 7)),
        (GreaterThanOrEqual(("_received",), BEGIN.replace(second=4)), (4, 10)),
        (LessThan(("_received",), BEGIN.replace(second=4)), (0, 10)),
        (EqualTo(("_partition",), 0), (0, 10)),
        (EqualTo(("destination",), "/queue/orders"), (0, 10)),
    ],
)
def test_a_batch_reads_less_where_places_are_bounded(
    tmp_path: Path, wanted: Filter, read: tuple[int, int]
) -> None:
    fill(tmp_path, plain(0, 10))
    source = StompDataSource({"spool": str(tmp_path), "pushFilters": "true"})
    reader = source.reader(source.schema())
    assert isinstance(reader, FilteringReader)
    # Spark filters again, so the reader may return extra rows, but must not omit any.
    assert list(reader.pushFilters([wanted])) == [wanted]
    assert ranges(reader.partitions()) == [(0, *read)]


@pytest.mark.parametrize("order", [1, -1])
def test_every_filter_of_a_batch_bounds_what_it_reads(tmp_path: Path, order: int) -> None:
    fill(tmp_path, plain(0, 10))
    source = StompDataSource({"spool": str(tmp_path), "pushFilters": "true"})
    reader = source.reader(source.schema())
    assert isinstance(reader, FilteringReader)
    reader.pushFilters([EqualTo(("_partition",), 0), LessThan(("_ordinal",), 6)][::order])
    assert ranges(reader.partitions()) == [(0, 0, 7)]


def test_a_batch_reads_nothing_of_other_partitions(tmp_path: Path) -> None:
    fill(tmp_path, plain(0, 20), partitions=2)
    source = StompDataSource({"spool": str(tmp_path), "pushFilters": "true"})
    reader = source.reader(source.schema())
    assert isinstance(reader, FilteringReader)
    reader.pushFilters([EqualTo(("_partition",), 1)])
    assert {partition for partition, _, _ in ranges(reader.partitions())} == {1}
