"""The state of a spool after a crash, and damage that is not the result of a crash."""

from __future__ import annotations

import logging
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stompkit.spool import BrokenSpoolError, SpoolReader, SpoolWriter
from stompkit.spool.retention import retain
from stompkit.spool.sealing import Form, seal, unsealed
from tests.spool.made import BEGIN_S, contents, fill, logs, numbers, record, several

#: Appends groups from the given message on, and prints the stored ones.
APPENDING = """
import sys
from pathlib import Path
from stompkit.spool import SpoolWriter
from tests.spool.made import several

folder, start = Path(sys.argv[1]), int(sys.argv[2])
with SpoolWriter(folder, partitions=2, segment_bytes=20_000) as writer:
    while True:
        # Half of each group comes again, as after a failure of the connection.
        writer.append(several(max(start - 7, 0), start + 7))
        start += 7
        print(start, flush=True)
"""


def test_killed_writers_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    chance = random.Random(8)
    start = 0
    for _ in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", APPENDING, str(tmp_path), str(start)],
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            for _ in range(chance.randint(1, 40)):
                start = int(child.stdout.readline())
            child.send_signal(signal.SIGKILL)
            start = max([start, *(int(line) for line in child.stdout if line.endswith("\n"))])
    SpoolWriter(tmp_path).close()
    parts = [numbers(contents(tmp_path, partition)) for partition in range(2)]
    found = sorted(parts[0] + parts[1])
    assert found[:start] == list(range(start))
    # The last group may be stored although it was not reported, even in one partition only.
    assert set(found[start:]) <= set(range(start, start + 7))
    assert len(set(found)) == len(found)
    assert parts == [sorted(part) for part in parts]


@pytest.mark.parametrize("torn", [(0,), (1,), (0, 1)])
def test_a_redelivered_group_completes_what_a_crash_left_of_it(
    tmp_path: Path, torn: tuple[int, ...]
) -> None:
    """The partitions are written one after the other, and read without a common end."""
    with SpoolWriter(tmp_path, partitions=2) as writer:
        writer.append(several(0, 20))
    head = (tmp_path / "head.json").read_bytes()
    files = [logs(tmp_path, partition)[0] for partition in range(2)]
    before = [path.stat().st_size for path in files]
    with SpoolWriter(tmp_path) as writer:
        writer.append(several(20, 40))
    (tmp_path / "head.json").write_bytes(head)
    for partition in torn:
        os.truncate(files[partition], before[partition])
    with SpoolWriter(tmp_path) as writer:
        left = sum(len(contents(tmp_path, partition)) for partition in range(2))
        assert 20 <= left < 40
        assert writer.append(several(20, 40)) == 40 - left
    parts = [numbers(contents(tmp_path, partition)) for partition in range(2)]
    assert sorted(parts[0] + parts[1]) == list(range(40))
    assert parts == [sorted(part) for part in parts]


def test_a_tail_that_is_torn_anywhere_is_cut_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    fill(whole, 1, 1)
    size = logs(whole)[0].stat().st_size
    index = next((whole / "p0").glob("*.idx"))
    before = {path.relative_to(whole): path.read_bytes() for path in (whole / "head.json", index)}
    with SpoolWriter(whole) as writer:
        writer.append([record(2)])
    octets = logs(whole)[0].read_bytes()
    shutil.copytree(whole, torn)
    for end in range(size, len(octets)):
        logs(torn)[0].write_bytes(octets[:end])
        for name, content in before.items():
            (torn / name).write_bytes(content)
        caplog.clear()
        with SpoolWriter(torn, sync=False) as writer:
            assert writer.head == (2,)
            assert logs(torn)[0].stat().st_size == size
            assert [level for _, level, _ in caplog.record_tuples] == (
                [logging.WARNING] if end > size else []
            )
            # The message was never acknowledged, so it is redelivered.
            assert writer.append(several(1, 3)) == 1
        assert logs(torn)[0].read_bytes() == octets
        assert contents(torn) == several(0, 3)


def test_a_tail_of_zeros_is_cut_off(tmp_path: Path) -> None:
    made = fill(tmp_path, 2)
    with logs(tmp_path)[0].open("ab") as file:
        file.write(bytes(5000))
    assert contents(tmp_path) == made
    with SpoolWriter(tmp_path) as writer:
        assert writer.append(several(1, 3)) == 1
    assert contents(tmp_path) == several(0, 3)


def test_what_was_synced_but_not_published_is_there_after_opening(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    head = (tmp_path / "head.json").read_bytes()
    with SpoolWriter(tmp_path) as writer:
        writer.append(several(2, 4))
    (tmp_path / "head.json").write_bytes(head)
    assert contents(tmp_path) == several(0, 2)
    with SpoolWriter(tmp_path) as writer:
        assert writer.head == (4,)
        assert writer.append(several(2, 5)) == 1
    assert contents(tmp_path) == several(0, 5)


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"p": 1}'])
def test_a_writer_finds_the_head_again(tmp_path: Path, content: bytes | None) -> None:
    made = fill(tmp_path, 2, 3)
    if content is None:
        (tmp_path / "head.json").unlink()
    else:
        (tmp_path / "head.json").write_bytes(content)
    with pytest.raises(BrokenSpoolError, match=r"head\.json.*for writing recreates it"):
        SpoolReader(tmp_path).head()
    SpoolWriter(tmp_path).close()
    assert contents(tmp_path) == made


def test_every_flipped_bit_of_what_was_published_is_told_with_its_place(tmp_path: Path) -> None:
    fill(tmp_path, 1, 1, 1)
    path = logs(tmp_path)[0]
    octets = path.read_bytes()
    begin = octets.index(b"STB2", 1)
    end = octets.index(b"STB2", begin + 1)
    chance = random.Random(8)
    for place in range(begin, end):
        damaged = bytearray(octets)
        damaged[place] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        for open_it in (lambda: contents(tmp_path), lambda: SpoolWriter(tmp_path)):
            with pytest.raises(BrokenSpoolError, match=f"damaged at octet {begin}:") as caught:
                open_it()
            assert (caught.value.path, caught.value.offset) == (path, begin)
        assert contents(tmp_path, start=2) == [record(2)]
    path.write_bytes(octets)
    assert contents(tmp_path) == several(0, 3)


def test_a_published_end_that_is_missing_is_no_torn_tail(tmp_path: Path) -> None:
    fill(tmp_path, 2, 2)
    path = logs(tmp_path)[0]
    octets = path.read_bytes()
    end = octets.index(b"STB2", 1)
    path.write_bytes(octets[:end])
    for open_it in (lambda: SpoolWriter(tmp_path), lambda: contents(tmp_path)):
        with pytest.raises(BrokenSpoolError, match=f"damaged at octet {end}"):
            open_it()
    path.unlink()
    with pytest.raises(BrokenSpoolError, match="no segment"):
        SpoolWriter(tmp_path)


def test_a_segment_that_is_missing_in_the_middle_is_told(tmp_path: Path) -> None:
    fill(tmp_path, *[10] * 8, segment_bytes=2000)
    missing = logs(tmp_path)[1]
    missing.unlink()
    first = int(missing.stem)
    with pytest.raises(BrokenSpoolError, match=f"ordinal {first} .* segment .*{missing.stem}"):
        contents(tmp_path)


@pytest.mark.parametrize("partitions", [1, 2, 4])
def test_another_number_of_partitions_hides_no_message(tmp_path: Path, partitions: int) -> None:
    with SpoolWriter(tmp_path, partitions=3) as writer:
        writer.append(several(0, 30))
    head = SpoolReader(tmp_path).head()
    path = tmp_path / "spool.json"
    right = path.read_bytes()
    path.write_bytes(right.replace(b'"partitions":3', b'"partitions":%d' % partitions))
    assert path.read_bytes() != right
    with pytest.raises(BrokenSpoolError, match=f"3 partitions, and spool.json is for {partitions}"):
        SpoolReader(tmp_path).head()
    with pytest.raises(BrokenSpoolError, match="Bring back the one that is wrong"):
        SpoolWriter(tmp_path)
    path.write_bytes(right)
    with SpoolWriter(tmp_path) as writer:
        assert writer.head == head


@pytest.mark.parametrize("content", [b"", b"x" * 999, bytes(4000)])
def test_an_index_is_a_help_only(tmp_path: Path, content: bytes) -> None:
    made = fill(tmp_path, *[10] * 8, segment_bytes=2000)
    for path in (tmp_path / "p0").glob("*.idx"):
        path.write_bytes(content)
    assert contents(tmp_path) == made
    for path in (tmp_path / "p0").glob("*.idx"):
        path.unlink()
    assert contents(tmp_path, start=33) == made[33:]
    with SpoolWriter(tmp_path) as writer:
        writer.append([record(80)])
    assert contents(tmp_path) == [*made, record(80)]


def seen(folder: Path) -> object:
    """Return everything that an index tells: messages, times and sizes."""
    reader = SpoolReader(folder)
    places = [reader.position_at(BEGIN_S + second) for second in range(0, 85, 5)]
    return contents(folder), places, reader.split((0,), (80,), 5), reader.size(0, 7, 71)


@pytest.mark.parametrize("form", [None, "arrow", "parquet"])
def test_every_damaged_octet_of_an_index_is_noticed(tmp_path: Path, form: Form | None) -> None:
    fill(tmp_path, *[10] * 8, segment_bytes=2000)
    if form is not None:
        for partition, first in unsealed(tmp_path):
            seal(tmp_path, partition, first, form=form)
    path = min((tmp_path / "p0").glob(f"*.{form or 'log'}.idx"))
    octets, expected = path.read_bytes(), seen(tmp_path)
    for place in range(len(octets)):
        damaged = bytearray(octets)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        assert seen(tmp_path) == expected, place
    SpoolWriter(tmp_path).close()


def test_a_damaged_index_makes_no_message_old(tmp_path: Path) -> None:
    fill(tmp_path, *[10] * 8, segment_bytes=2000)
    path = min((tmp_path / "p0").glob("*.idx"))
    octets = path.read_bytes()
    for place in range(len(octets)):
        damaged = bytearray(octets)
        damaged[place] ^= 0x40
        path.write_bytes(damaged)
        assert retain(tmp_path, max_age_s=79, clock=lambda: BEGIN_S + 80).segments == 0, place


def test_indexes_of_earlier_versions_are_read(tmp_path: Path) -> None:
    made = fill(tmp_path, *[10] * 8, segment_bytes=2000)
    expected = seen(tmp_path)
    for path in (tmp_path / "p0").glob("*.idx"):
        octets = path.read_bytes()[8:]
        path.write_bytes(b"".join(octets[at : at + 40] for at in range(0, len(octets), 44)))
    # A time that only the index has proves that it is read.
    path = min((tmp_path / "p0").glob("*.idx"))
    assert seen(tmp_path) == expected
    later = (BEGIN_S + 1000) * 1_000_000
    octets = path.read_bytes()
    path.write_bytes(octets[:32] + later.to_bytes(8, "little") + octets[40:])
    assert SpoolReader(tmp_path).position_at(BEGIN_S + 900) == (10,)
    with SpoolWriter(tmp_path) as writer:
        writer.append([record(80)])
    assert contents(tmp_path) == [*made, record(80)]


def test_what_is_wrong_can_be_told_to_another_process(tmp_path: Path) -> None:
    problem = BrokenSpoolError(tmp_path, 7, "so")
    again = pickle.loads(pickle.dumps(problem))
    assert (str(again), again.path, again.offset) == (str(problem), tmp_path, 7)
