"""Sealed segments."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stompkit.spool import (
    BrokenSpoolError,
    Record,
    SpoolInUseError,
    SpoolReader,
    SpoolWriter,
    readers,
)
from stompkit.spool.retention import retain
from tests.spool.made import BEGIN_S, between, contents, fill, logs, numbers, record, several

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
sealing = pytest.importorskip("stompkit.spool.sealing")

FORMS = pytest.mark.parametrize("form", ["arrow", "parquet"])


def odd(number: int) -> Record:
    """Return a message that differs from the one before in everything."""
    return record(
        number,
        destination="/queue/ä" * (number % 3),
        event_id="" if number % 2 else f"événement {number}",
        headers=tuple((f"k{i}", "\N{SNOWMAN}" * i) for i in range(number % 4)),
        body=bytes(range(number)) * (number % 5),
    )


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A spool with messages 0 to 79 in segments of 20."""
    with SpoolWriter(tmp_path, segment_s=19.5, sync=False) as writer:
        for start in range(0, 80, 4):
            writer.append([odd(number) for number in range(start, start + 4)])
    assert [int(path.stem) for path in logs(tmp_path)] == [0, 20, 40, 60]
    return tmp_path


def seal_all(folder: Path, form: str) -> list[Path]:
    return [
        sealing.seal(folder, partition, first, form=form)
        for partition, first in sealing.unsealed(folder)
    ]


@FORMS
def test_sealed_segments_have_the_same_messages(spool: Path, form: str) -> None:
    reader = SpoolReader(spool)
    made = between(reader, 0, 80)
    paths = seal_all(spool, form)
    assert [path.name for path in paths] == [f"{first:020}.{form}" for first in (0, 20, 40)]
    assert [int(path.stem) for path in logs(spool)] == [60]
    assert made == [odd(number) for number in range(80)]
    # Both for a reader that has read before, and for a new one.
    assert between(reader, 0, 80) == made
    assert between(SpoolReader(spool), 33, 77) == made[33:77]


@FORMS
def test_other_programs_read_sealed_segments(spool: Path, form: str) -> None:
    path = seal_all(spool, form)[1]
    if form == "arrow":
        table = pa.ipc.open_file(path).read_all()
    else:
        table = pq.read_table(path)
    row = table.slice(7, 1).to_pylist()[0]
    expected = odd(27)
    assert row.pop("received").timestamp() == BEGIN_S + 27
    assert row == {
        "ordinal": 27,
        "destination": expected.destination,
        "message_id": expected.message_id,
        "event_id": expected.event_id,
        "content_type": expected.content_type,
        "headers": list(expected.headers),
        "body": expected.body,
    }


@FORMS
def test_sealed_segments_are_searched_and_split_like_others(spool: Path, form: str) -> None:
    seal_all(spool, form)
    for index in (spool / "p0").glob(f"*.{form}.idx"):
        index.unlink()
        break
    reader = SpoolReader(spool)
    assert [reader.position_at(BEGIN_S + second) for second in (-1, 0, 33, 61, 99)] == [
        (0,),
        (0,),
        (33,),
        (61,),
        (80,),
    ]
    assert reader.split((0,), (80,), 4)[0] == (0, 0, 20)
    assert reader.bytes_limit((5,), 1) == (20,)
    assert reader.size(0, 0, 80) > 4 * sum(len(odd(number).body) for number in range(20))


@FORMS
def test_sealed_segments_are_removed_like_others(spool: Path, form: str) -> None:
    seal_all(spool, form)
    readers.register(spool, "a", (45,))
    removed = retain(spool, max_age_s=0)
    assert (removed.segments, removed.kept_for) == (2, {"a": 1})
    assert SpoolReader(spool).floor() == (40,)
    assert numbers(contents(spool)) == list(range(40, 80))
    assert len(list((spool / "p0").iterdir())) == 4


def test_a_writer_knows_again_what_is_in_sealed_segments(spool: Path) -> None:
    seal_all(spool, "arrow")
    with SpoolWriter(spool) as writer:
        assert writer.append([odd(3), odd(30), odd(70), odd(80)]) == 1


def test_sealing_again_changes_nothing(spool: Path) -> None:
    path = sealing.seal(spool, 0, 20)
    content = path.read_bytes()
    assert sealing.unsealed(spool) == [(0, 0), (0, 40)]
    assert sealing.seal(spool, 0, 20, form="parquet") == path
    assert path.read_bytes() == content


def test_what_a_crash_has_left_is_sealed_again(spool: Path) -> None:
    log = logs(spool)[0]
    octets = log.read_bytes()
    sealing.seal(spool, 0, 0)
    log.write_bytes(octets)
    log.with_suffix(".tmp.arrow").write_bytes(b"half")
    assert sealing.unsealed(spool)[0] == (0, 0)
    assert len(contents(spool)) == 80
    sealing.seal(spool, 0, 0)
    assert not log.exists()
    assert not log.with_suffix(".tmp.arrow").exists()
    assert len(contents(spool)) == 80


def test_the_newest_segment_is_not_sealed(spool: Path) -> None:
    with pytest.raises(ValueError, match="it is the newest"):
        sealing.seal(spool, 0, 60)
    with pytest.raises(ValueError, match="begins with 21"):
        sealing.seal(spool, 0, 21)


def test_the_process_that_writes_seals(spool: Path) -> None:
    with SpoolWriter(spool) as writer:
        with pytest.raises(SpoolInUseError):
            sealing.seal(spool, 0, 0)
        sealing.seal(writer, 0, 0)
        writer.append([odd(80)])
    assert contents(spool) == [odd(number) for number in range(81)]


@FORMS
def test_a_damaged_log_is_not_sealed(spool: Path, form: str) -> None:
    log = logs(spool)[1]
    octets = bytearray(log.read_bytes())
    octets[len(octets) // 2] ^= 4
    log.write_bytes(octets)
    with pytest.raises(BrokenSpoolError):
        sealing.seal(spool, 0, 20, form=form)
    assert log.exists()
    assert sorted(path.suffix for path in (spool / "p0").iterdir()) == [".idx"] * 4 + [".log"] * 4


@FORMS
def test_damage_of_messages_in_a_sealed_segment_is_told(tmp_path: Path, form: str) -> None:
    body = b"a body that is found again"
    with SpoolWriter(tmp_path, segment_bytes=1, sync=False) as writer:
        writer.append([record(0, body=body)])
        writer.append([record(1)])
    path = sealing.seal(tmp_path, 0, 0, form=form)
    octets = bytearray(path.read_bytes())
    # Short pages are not compressed, or at least not smaller.
    place = octets.index(b"found")
    octets[place] ^= 1
    path.write_bytes(octets)
    with pytest.raises(BrokenSpoolError, match=path.name):
        contents(tmp_path)
    path.write_bytes(octets[: place + 4])
    with pytest.raises(BrokenSpoolError, match=path.name):
        contents(tmp_path)


@FORMS
def test_readers_see_all_while_segments_are_sealed(tmp_path: Path, form: str) -> None:
    made = fill(tmp_path, *[3] * 60, segment_bytes=400)
    assert len(sealing.unsealed(tmp_path)) > 20
    reader = SpoolReader(tmp_path)
    with ThreadPoolExecutor() as pool:
        sealed = pool.submit(seal_all, tmp_path, form)
        while not sealed.done():
            assert reader.floor() == (0,)
            assert between(reader, 0, 180) == made
            assert reader.size(0, 0, 180) > 0
        assert len(sealed.result()) > 20
    assert between(reader, 0, 180) == made


def test_batches_have_a_range_and_as_many_rows_as_asked_for(spool: Path) -> None:
    seal_all(spool, "arrow")
    batches = list(sealing.arrow_batches(SpoolReader(spool), 0, 3, 78, rows=30))
    assert all(batch.schema == sealing.SCHEMA for batch in batches)
    assert [batch.num_rows for batch in batches] == [17, 20, 28, 10]
    table = pa.Table.from_batches(batches)
    table.validate(full=True)
    assert table["ordinal"].to_pylist() == list(range(3, 78))
    assert table["body"].to_pylist() == [odd(number).body for number in range(3, 78)]
    assert table["headers"].to_pylist() == [list(odd(number).headers) for number in range(3, 78)]


def test_a_spool_with_sealed_segments_says_what_reading_them_needs(tmp_path: Path) -> None:
    fill(tmp_path, *[10] * 8, segment_bytes=2000)
    seal_all(tmp_path, "arrow")
    program = """
import sys
sys.modules["pyarrow"] = None
from stompkit.spool import SpoolError, SpoolReader
from tests.spool.made import between
reader = SpoolReader(sys.argv[1])
newest = int(sys.argv[2])
assert len(between(reader, newest, 80)) == 80 - newest
assert len(reader.split((0,), (80,), 3)) == 3
try:
    between(reader, 0, 80)
except SpoolError as problem:
    print(problem)
"""
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), logs(tmp_path)[-1].stem],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pip install stompkit[spark]" in run.stdout
    assert contents(tmp_path) == several(0, 80)
