"""Appending to a spool, and its contents afterwards."""

from __future__ import annotations

import multiprocessing
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.spool import (
    BrokenSpoolError,
    Record,
    SpoolError,
    SpoolInUseError,
    SpoolReader,
    SpoolWriter,
    partition_of,
)
from tests.spool.made import contents, fill, logs, numbers, record, several

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
RECORDS = st.builds(
    Record,
    st.integers(-(2**63), 2**63 - 1),
    TEXTS,
    TEXTS,
    TEXTS,
    TEXTS,
    st.lists(st.tuples(TEXTS, TEXTS), max_size=4).map(tuple),
    st.binary(max_size=40),
)


@contextmanager
def full_disk(octets: int) -> Iterator[None]:
    """Limit the size of files in bytes, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (octets, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@given(groups=st.lists(st.lists(RECORDS, max_size=6), max_size=5))
def test_what_is_appended_is_read_as_it_was(
    groups: list[list[Record]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    with SpoolWriter(folder, remembered=0, sync=False) as writer:
        for number, group in enumerate(groups):
            # Each has a different event id, or some would be dropped.
            named = [one._replace(event_id=f"{number} {i}") for i, one in enumerate(group)]
            groups[number] = named
            assert writer.append(named) == len(named)
    assert contents(folder) == [one for group in groups for one in group]


def test_ordinals_count_messages_without_gaps(tmp_path: Path) -> None:
    fill(tmp_path, 3, 1, 5)
    blocks = list(SpoolReader(tmp_path).blocks(0, 0, 9))
    assert [(block.first, block.count, block.end) for block in blocks] == [
        (0, 3, 3),
        (3, 1, 4),
        (4, 5, 9),
    ]


def test_a_spool_goes_on_where_it_was_closed(tmp_path: Path) -> None:
    made = fill(tmp_path, 2)
    with SpoolWriter(tmp_path) as writer:
        assert writer.head == (2,)
        writer.append(several(2, 4))
        spool_id = writer.id
    assert contents(tmp_path) == made + several(2, 4)
    assert SpoolReader(tmp_path).id == spool_id


def test_a_reader_sees_what_was_appended_while_the_writer_is_open(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path) as writer:
        reader = SpoolReader(tmp_path)
        assert reader.head() == (0,)
        for number in range(5):
            writer.append([record(number)])
            assert reader.head() == (number + 1,)
            assert [list(block.records()) for block in reader.blocks(0, number, number + 1)] == [
                [record(number)]
            ]


def test_a_reader_sees_an_empty_spool_as_soon_as_it_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer may be stopped, or slow, at any moment."""

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("stompkit.spool.log.Tail", stop)
        with pytest.raises(KeyboardInterrupt):
            SpoolWriter(tmp_path, partitions=2)
    reader = SpoolReader(tmp_path)
    assert (reader.floor(), reader.head()) == ((0, 0), (0, 0))
    with SpoolWriter(tmp_path) as spool:
        assert spool.append([record(0)]) == 1
    assert sum(reader.head()) == 1


def test_readers_never_see_half_of_a_published_head(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, partitions=2, remembered=0, sync=False) as writer:
        reader = SpoolReader(tmp_path)

        def append() -> None:
            for number in range(1500):
                writer.append([record(number)])

        with ThreadPoolExecutor() as pool:
            appending = pool.submit(append)
            before: tuple[int, ...] = (0, 0)
            while not appending.done():
                head = reader.head()
                assert all(old <= new for old, new in zip(before, head, strict=True))
                before = head
            appending.result()
        assert reader.head() == writer.head
        assert sum(writer.head) == 1500


def test_a_message_that_comes_again_is_dropped(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path) as writer:
        assert writer.append([record(0), record(1), record(0)]) == 2
        assert writer.append([record(1), record(2)]) == 1
        assert writer.append([record(1)]) == 0
    assert numbers(contents(tmp_path)) == [0, 1, 2]


def test_the_event_id_counts_before_the_message_id(tmp_path: Path) -> None:
    again = record(1, event_id="e-0")
    with SpoolWriter(tmp_path) as writer:
        assert writer.append([record(0), again]) == 1
        # An event id is not a message id, even if they are the same text.
        assert writer.append([record(2, event_id="m-3"), record(3, event_id="")]) == 2
        assert writer.append([record(3, event_id="")]) == 0


def test_one_event_in_two_destinations_is_two_messages(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path) as writer:
        assert writer.append([record(0), record(0, destination="/queue/b")]) == 2


def test_a_message_without_any_id_is_always_new(tmp_path: Path) -> None:
    nameless = record(0, event_id="")._replace(message_id="")
    with SpoolWriter(tmp_path) as writer:
        assert writer.append([nameless, nameless]) == 2
        assert writer.append([nameless]) == 1


@pytest.mark.parametrize("opens_again", [False, True])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, False),
        ({"headers": (("redelivered", "true"),)}, False),
        ({"body": b"another"}, True),
        ({"body": b"another", "destination": "/queue/b"}, False),
        ({"body": b"another", "event_id": "e-9"}, False),
    ],
)
def test_a_message_that_comes_again_with_another_body_is_told(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    change: dict[str, Any],
    *,
    told: bool,
    opens_again: bool,
) -> None:
    first, again = record(0), record(0)._replace(**change)
    with SpoolWriter(tmp_path) as writer:
        writer.append([first] if opens_again else [first, again])
    if opens_again:
        with SpoolWriter(tmp_path) as writer:
            # The warning is not repeated for each message.
            writer.append([again])
            writer.append([again])
    warnings = [each.getMessage() for each in caplog.records]
    assert len(warnings) == told
    assert all("e-0" in each and "another body" in each for each in warnings)


@pytest.mark.parametrize("opens_again", [False, True])
def test_a_key_that_is_used_again_is_among_the_last_ones(
    tmp_path: Path, *, opens_again: bool
) -> None:
    """A broker may use an id for another message, which is not marked as redelivered."""
    with SpoolWriter(tmp_path, remembered=2) as writer:
        for number in (0, 1, 0, 2):
            assert writer.append([record(number)], redelivered=[False]) == 1
        if not opens_again:
            assert writer.append([record(0)], redelivered=[True]) == 0
    with SpoolWriter(tmp_path, remembered=2) as writer:
        assert writer.append([record(0)], redelivered=[True]) == 0


def test_each_message_needs_a_mark(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path) as writer:
        with pytest.raises(ValueError, match="shorter"):
            writer.append(several(0, 2), redelivered=[True])
        assert writer.head == (0,)
        assert writer.append(several(0, 2), redelivered=[True, False]) == 2


def test_messages_are_known_again_after_opening(tmp_path: Path) -> None:
    fill(tmp_path, 5, 5)
    with SpoolWriter(tmp_path) as writer:
        assert writer.append(several(0, 12)) == 2


def test_as_many_are_remembered_as_was_said(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, remembered=3) as writer:
        writer.append(several(0, 5))
        assert writer.append([record(2)]) == 0
        assert writer.append([record(1)]) == 1
    with SpoolWriter(tmp_path, remembered=3) as writer:
        # The last ones are 3, 4 and 1 now.
        assert writer.append([record(3), record(4), record(1)]) == 0
        assert writer.append([record(2)]) == 1


def test_a_segment_ends_when_it_has_its_size(tmp_path: Path) -> None:
    made = fill(tmp_path, *[10] * 8, segment_bytes=2000)
    assert len(logs(tmp_path)) > 2
    assert int(logs(tmp_path)[1].stem) % 10 == 0
    assert all(path.stat().st_size >= 2000 for path in logs(tmp_path)[:-1])
    assert contents(tmp_path) == made


def test_a_segment_ends_when_it_has_its_age(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, segment_s=100) as writer:
        writer.append([record(0)])
        writer.append([record(100)])
        writer.append([record(101)])
    assert [int(path.stem) for path in logs(tmp_path)] == [0, 2]
    assert numbers(contents(tmp_path)) == [0, 100, 101]


def test_many_octets_are_cut_into_blocks(tmp_path: Path) -> None:
    made = [record(number, body=bytes([number]) * (5 << 20)) for number in range(8)]
    with SpoolWriter(tmp_path, sync=False) as writer:
        assert writer.append(made) == 8
    assert [block.count for block in SpoolReader(tmp_path).blocks(0, 0, 8)] == [3, 3, 2]
    assert contents(tmp_path) == made


def test_changes_of_one_origin_stay_in_one_partition_and_in_order(tmp_path: Path) -> None:
    made = [
        record(number, headers=(("a", "b"), ("stompkit-origin", f"node-{number % 7}")))
        for number in range(70)
    ]
    with SpoolWriter(tmp_path, partitions=3) as writer:
        for start in range(0, 70, 10):
            writer.append(made[start : start + 10])
    parts = [contents(tmp_path, partition) for partition in range(3)]
    assert sorted(one for part in parts for one in part) == made
    for origin in range(7):
        having = [
            [n for n in numbers(part) if n % 7 == origin]
            for part in parts
            if any(n % 7 == origin for n in numbers(part))
        ]
        assert having == [list(range(origin, 70, 7))]


def test_messages_without_origin_are_spread_by_event(tmp_path: Path) -> None:
    found = [partition_of(record(number), 4) for number in range(1000)]
    assert {min(found), max(found)} == {0, 3}
    assert all(200 < found.count(partition) < 300 for partition in range(4))
    assert found == [partition_of(record(number, body=b"else"), 4) for number in range(1000)]
    assert partition_of(record(0), 1) == 0


def test_a_second_writer_is_told_who_has_the_spool(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path):
        with pytest.raises(SpoolInUseError, match=f"process {os.getpid()} on"):
            SpoolWriter(tmp_path)
        assert SpoolReader(tmp_path).head() == (0,)
    SpoolWriter(tmp_path).close()


def test_a_fork_does_not_keep_a_spool_that_was_closed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writer = SpoolWriter(tmp_path)
    done = context.Event()
    child = context.Process(target=done.wait)
    child.start()
    try:
        writer.close()
        SpoolWriter(tmp_path).close()
    finally:
        done.set()
        child.join()


def test_the_number_of_partitions_never_changes(tmp_path: Path) -> None:
    SpoolWriter(tmp_path, partitions=2).close()
    with pytest.raises(ValueError, match="has 2 partitions, not 3"):
        SpoolWriter(tmp_path, partitions=3)
    with SpoolWriter(tmp_path) as writer:
        assert writer.partitions == 2
        assert writer.head == (0, 0)
    with pytest.raises(ValueError, match="one partition at least"):
        SpoolWriter(tmp_path / "b", partitions=0)


def test_what_does_not_fit_on_the_disk_is_not_there_and_can_be_tried_again(tmp_path: Path) -> None:
    made = several(0, 20)
    with SpoolWriter(tmp_path) as writer:
        writer.append(made[:10])
        size = logs(tmp_path)[0].stat().st_size
        with full_disk(size + 100), pytest.raises(OSError):
            writer.append(made[10:])
        assert logs(tmp_path)[0].stat().st_size == size
        assert writer.head == (10,)
        assert contents(tmp_path) == made[:10]
        assert writer.append(made[10:]) == 10
    assert contents(tmp_path) == made


def test_what_fits_in_one_partition_alone_is_in_none(tmp_path: Path) -> None:
    first = [record(number) for number in range(200) if partition_of(record(number), 2) == 0]
    second = [record(number) for number in range(200) if partition_of(record(number), 2) == 1]
    with SpoolWriter(tmp_path, partitions=2) as writer:
        writer.append(second)
        size = logs(tmp_path, 1)[0].stat().st_size
        more = [one._replace(event_id="") for one in second[:1]]
        assert partition_of(more[0], 2) in (0, 1)
        group = [first[0], *[record(1000 + n) for n in range(500)]]
        with full_disk(size), pytest.raises(OSError):
            writer.append(group)
        assert writer.head == (0, len(second))
        assert [path.stat().st_size for path in (*logs(tmp_path), *logs(tmp_path, 1))] == [0, size]
        assert writer.append(group) == len(group)
    assert len(contents(tmp_path) + contents(tmp_path, 1)) == len(second) + len(group)


def test_a_message_that_can_not_be_encoded_is_refused_with_its_group(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path) as writer:
        with pytest.raises(ValueError):
            writer.append([record(0), record(1)._replace(content_type="\ud800")])
        assert writer.head == (0,)
        assert writer.append([record(0)]) == 1


def test_nothing_is_appended_to_a_closed_spool(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path)
    writer.close()
    writer.close()
    with pytest.raises(SpoolError, match="closed"):
        writer.append([record(0)])
    assert writer.head == SpoolReader(tmp_path).head() == (0,)


def test_no_new_spool_is_made_where_messages_are(tmp_path: Path) -> None:
    fill(tmp_path, 1)
    (tmp_path / "spool.json").unlink()
    with pytest.raises(BrokenSpoolError, match=r"spool\.json"):
        SpoolWriter(tmp_path)


def test_blocks_that_no_writer_has_made_are_damaged(tmp_path: Path) -> None:
    """Any number in one may differ, with a valid checksum."""
    fill(tmp_path, 3)
    [segment] = logs(tmp_path)
    octets = segment.read_bytes()
    told = 0
    for at in range(20, len(octets) - 4, 4):
        for number in (0xFFFF_FFFF, 7, 0xC3C3_C3C3):
            rest = octets[12:at] + number.to_bytes(4, "little") + octets[at + 4 :]
            segment.write_bytes(octets[:8] + crc32(rest).to_bytes(4, "little") + rest)
            try:
                with SpoolWriter(tmp_path, sync=False):
                    pass
            except BrokenSpoolError as problem:
                told += str(tmp_path) in str(problem)
    assert told > 50


@pytest.mark.parametrize("length", [4, 12, 20, 28])
def test_a_block_that_has_no_room_for_what_it_says_is_damaged(tmp_path: Path, length: int) -> None:
    fill(tmp_path, 3)
    [segment] = logs(tmp_path)
    octets = bytearray(segment.read_bytes())
    octets[4:8] = length.to_bytes(4, "little")
    octets[12:16] = (1).to_bytes(4, "little")
    segment.write_bytes(octets[: 12 + length])
    with pytest.raises(BrokenSpoolError), SpoolWriter(tmp_path, sync=False):
        pass
    reader = SpoolReader(tmp_path)
    with pytest.raises(BrokenSpoolError):
        list(reader.blocks(0, 0, 1))


def test_others_on_the_machine_can_not_read_messages(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    fill(folder, 1)
    for path in (folder, *folder.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0


def test_importing_the_spool_needs_no_extra() -> None:
    program = "import sys, stompkit.spool; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
