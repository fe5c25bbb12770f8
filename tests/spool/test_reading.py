"""Reading ranges of a spool."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.spool import DataLostError, OtherSpoolError, SpoolError, SpoolReader, SpoolWriter
from stompkit.spool.retention import retain
from tests.spool.made import BEGIN_S, between, contents, fill, logs, numbers, record, several


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spool with 60 messages in blocks and segments of several sizes."""
    folder = tmp_path_factory.mktemp("spool")
    fill(folder, 1, 9, 3, 20, 2, 10, 15, segment_bytes=900)
    assert len(logs(folder)) > 2
    return folder


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spool with three partitions, in blocks of a few messages."""
    folder = tmp_path_factory.mktemp("spread")
    with SpoolWriter(folder, partitions=3, sync=False) as writer:
        for start in range(0, 300, 10):
            writer.append(several(start, start + 10))
    return folder


@given(st.integers(0, 60), st.integers(0, 60))
def test_a_range_has_exactly_its_messages(spool: Path, start: int, end: int) -> None:
    reader = SpoolReader(spool)
    assert between(reader, start, end) == several(start, end)


def test_a_slice_of_a_block_has_columns_of_its_messages_only(spool: Path) -> None:
    (block,) = SpoolReader(spool).blocks(0, 15, 18)
    assert (block.first, block.count) == (15, 3)
    assert block.received.tolist() == [one.received_us for one in several(15, 18)]
    assert block.text("destination").strings() == ["/queue/a"] * 3
    assert block.text("message_id").strings() == ["m-15", "m-16", "m-17"]
    assert block.body.octets() == [b"body 15", b"body 16", b"body 17"]
    assert len(block.headers.rows) == 4
    assert numbers(list(block.slice(16, 99).records())) == [16, 17]
    assert block.slice(3, 15).count == 0
    with pytest.raises(ValueError):
        block.text("body")


def test_a_reader_goes_to_another_process_by_its_folder(spool: Path) -> None:
    reader = SpoolReader(spool)
    between(reader, 0, 60)
    again = pickle.loads(pickle.dumps(reader))
    assert len(pickle.dumps(reader)) < 500
    assert (again.folder, again.id, again.partitions) == (spool, reader.id, 1)
    assert between(again, 0, 60) == several(0, 60)


def test_a_machine_that_does_not_see_the_folder_is_named(tmp_path: Path) -> None:
    there, away = tmp_path / "spool", tmp_path / "elsewhere"
    there.mkdir()
    fill(there, 1)
    taken_along = pickle.dumps(SpoolReader(there))
    there.rename(away)
    for _ in ("no folder", "an empty folder, where nothing is mounted"):
        with pytest.raises(SpoolError, match=rf"{there} has no spool on the machine \S+: all "):
            pickle.loads(taken_along)
        there.mkdir(exist_ok=True)


def test_a_folder_without_spool_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SpoolError, match=r"stompkit spool run"):
        SpoolReader(tmp_path / "none")


def test_another_spool_than_the_expected_one_is_told(tmp_path: Path, spool: Path) -> None:
    fill(tmp_path, 1)
    SpoolReader(tmp_path, expect_id=SpoolReader(tmp_path).id)
    with pytest.raises(OtherSpoolError, match=SpoolReader(spool).id):
        SpoolReader(tmp_path, expect_id=SpoolReader(spool).id)


def test_a_spool_of_a_later_format_is_not_guessed_at(tmp_path: Path) -> None:
    fill(tmp_path, 1)
    path = tmp_path / "spool.json"
    path.write_bytes(path.read_bytes().replace(b'"format":2', b'"format":3'))
    for open_it in (SpoolReader, SpoolWriter):
        with pytest.raises(SpoolError, match="format 3"):
            open_it(tmp_path)


def test_what_was_removed_is_told_with_what_is_there(tmp_path: Path) -> None:
    fill(tmp_path, *[10] * 8, segment_bytes=2000)
    reader = SpoolReader(tmp_path)
    assert numbers(between(reader, 0, 80)) == list(range(80))
    retain(tmp_path, max_bytes=0)
    floor = int(logs(tmp_path)[0].stem)
    assert reader.floor() == (floor,)
    with pytest.raises(
        DataLostError, match=f"begins with {floor}, received since 2023-11-14T"
    ) as lost:
        between(reader, 3, 80)
    assert (lost.value.partition, lost.value.asked, lost.value.there) == (0, 3, floor)
    again = pickle.loads(pickle.dumps(lost.value))
    assert (str(again), again.there) == (str(lost.value), floor)
    assert numbers(between(reader, floor, 80)) == list(range(floor, 80))
    assert reader.size(0, 0, 80) == reader.size(0, floor, 80)


def test_what_is_removed_while_it_is_read_is_told(tmp_path: Path) -> None:
    fill(tmp_path, *[10] * 8, segment_bytes=2000)
    blocks = SpoolReader(tmp_path).blocks(0, 0, 80)
    assert next(blocks).first == 0
    retain(tmp_path, max_bytes=0)
    with pytest.raises(DataLostError):
        list(blocks)


def test_what_was_never_there_is_told(spool: Path) -> None:
    with pytest.raises(DataLostError, match="restored from an older copy"):
        between(SpoolReader(spool), 50, 61)


def test_octets_can_be_bounded(spool: Path) -> None:
    reader = SpoolReader(spool)
    sizes = [reader.size(0, start, start + 1) for start in (0, 1, 10)]
    assert [block.first for block in reader.blocks(0, 0, 60, most_bytes=sum(sizes))] == [0, 1, 10]
    assert [block.first for block in reader.blocks(0, 0, 60, most_bytes=sum(sizes) - 1)] == [0, 1]
    assert [block.first for block in reader.blocks(0, 5, 60, most_bytes=0)] == [5]


def test_the_size_of_a_range_is_that_of_its_blocks(spool: Path) -> None:
    reader = SpoolReader(spool)
    assert reader.size(0, 0, 60) == sum(path.stat().st_size for path in logs(spool))
    assert reader.size(0, 13, 33) == reader.size(0, 20, 21)
    assert reader.size(0, 7, 7) == 0


@given(
    st.tuples(*[st.integers(0, 80)] * 3), st.tuples(*[st.integers(0, 80)] * 3), st.integers(1, 12)
)
def test_parts_are_the_whole_range_in_order(
    spread: Path, start: tuple[int, ...], end: tuple[int, ...], parts: int
) -> None:
    reader = SpoolReader(spread)
    end = tuple(max(pair) for pair in zip(start, end, strict=True))
    ranges = reader.split(start, end, parts)
    at = list(start)
    for partition, first, last in ranges:
        assert at[partition] == first < last
        at[partition] = last
    assert tuple(at) == end
    assert len(ranges) <= parts + 2


def test_parts_are_of_about_equal_size(spread: Path) -> None:
    reader = SpoolReader(spread)
    head = reader.head()
    whole = sum(reader.size(number, 0, end) for number, end in enumerate(head))
    ranges = reader.split((0, 0, 0), head, 8)
    assert 8 <= len(ranges) <= 10
    assert max(reader.size(*one) for one in ranges) < whole / 8 * 1.5


def test_an_end_by_octets_keeps_partitions_in_step(spread: Path) -> None:
    reader = SpoolReader(spread)
    head = reader.head()
    whole = sum(reader.size(number, 0, end) for number, end in enumerate(head))
    half = reader.bytes_limit((0, 0, 0), whole // 2)
    octets = sum(reader.size(number, 0, end) for number, end in enumerate(half))
    assert whole * 0.4 < octets <= whole // 2
    newest = [contents(spread, number)[end - 1].received_us for number, end in enumerate(half)]
    assert max(newest) - min(newest) <= 20_000_000
    assert reader.bytes_limit((0, 0, 0), whole) == head
    assert reader.bytes_limit(head, whole) == head


def test_an_end_by_octets_is_one_block_on_at_least(spread: Path) -> None:
    reader = SpoolReader(spread)
    at: tuple[int, ...] = (0, 0, 0)
    steps = 0
    while at != reader.head():
        further = reader.bytes_limit(at, 1)
        assert sum(a != b for a, b in zip(at, further, strict=True)) == 1
        at = further
        steps += 1
    assert steps == sum(len(list(reader.blocks(n, 0, reader.head()[n]))) for n in range(3))


@given(st.integers(-5, 65), st.sampled_from([0, 0.25]))
def test_a_time_is_found_within_blocks(spool: Path, second: int, more: float) -> None:
    expected = min(max(second + (more > 0), 0), 60)
    assert SpoolReader(spool).position_at(BEGIN_S + second + more) == (expected,)


def test_a_time_is_found_in_each_partition(spread: Path) -> None:
    reader = SpoolReader(spread)
    at = reader.position_at(BEGIN_S + 137)
    for number, ordinal in enumerate(at):
        found = numbers(contents(spread, number))
        assert max(found[:ordinal]) < 137 <= min(found[ordinal:])
    assert reader.position_at(time.time()) == reader.head()


def test_many_small_blocks_are_read_as_they_are(tmp_path: Path) -> None:
    bodies = [bytes([number]) * 90_000 for number in range(40)]
    with SpoolWriter(tmp_path, sync=False) as writer:
        for number, body in enumerate(bodies):
            writer.append([record(number, body=body)])
    assert [one.body for one in contents(tmp_path)] == bodies
    assert [one.body for one in contents(tmp_path, start=17)] == bodies[17:]
