"""Damage of any single file: it is harmless, or reported with its file, and no message is wrong."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
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
    readers,
)
from stompkit.spool.retention import retain
from stompkit.spool.sealing import Form, seal, unsealed
from tests.spool.made import BEGIN_S, contents, fill, former, logs, record, several

#: Reception time after which the retention of the tests keeps messages, and that of its run.
KEPT_S = 100.0
NOW_S = BEGIN_S + 400.0


class Whole(NamedTuple):
    """An undamaged spool, an older copy of it, and another spool of the same shape."""

    ways: list[Damage]
    folder: Path
    older: Path
    other: Path
    #: The messages of each partition by ordinal.
    messages: list[dict[int, Record]]
    floor: tuple[int, ...]
    #: Segments that retention keeps.
    kept: set[Path]

    @property
    def files(self) -> list[Path]:
        """All files of the spool."""
        found = (path.relative_to(self.folder) for path in self.folder.rglob("*"))
        return sorted(path for path in found if (self.folder / path).is_file())


def make(folder: Path, forms: tuple[Form | None, ...], *, older: Path | None = None) -> None:
    """Make two partitions of the same shape, with equal first ordinals of their segments."""
    with SpoolWriter(folder, partitions=2, segment_bytes=900, sync=False) as writer:
        for start in range(0, 320, 20):
            # One message of each partition at a time keeps the ordinals of both in step.
            writer.append(balanced(start, start + 20))
            if start == 200 and older is not None:
                shutil.copytree(folder, older)
    readers.register(folder, "a", (70, 70), clock=lambda: NOW_S)
    retain(folder, max_age_s=NOW_S - BEGIN_S - 60, clock=lambda: NOW_S)
    for number, (partition, first) in enumerate(unsealed(folder)):
        form = forms[number % len(forms)]
        if form is not None:
            seal(folder, partition, first, form=form)


def balanced(start: int, end: int) -> list[Record]:
    """Return messages that go to both partitions alternately."""
    origins = "ad"
    return [
        record(number, headers=(("stompkit-origin", origins[number % 2]),))
        for number in range(start, end)
    ]


def found_in(folder: Path) -> tuple[list[dict[int, Record]], list[str]]:
    """Return the readable messages by partition and ordinal, and the errors of the others."""
    errors: list[str] = []
    found: list[dict[int, Record]] = []
    with noting(errors, folder):
        reader = SpoolReader(folder)
        floor, head = reader.floor(), reader.head()
        for partition in range(reader.partitions):
            messages: dict[int, Record] = {}
            found.append(messages)
            start = floor[partition]
            while start < head[partition]:
                try:
                    for block in reader.blocks(partition, start, head[partition]):
                        messages |= dict(enumerate(block.records(), block.first))
                        start = block.end
                except BrokenSpoolError as error:
                    assert str(folder) in str(error)
                    errors.append(str(error))
                    start = reader.after_damage(partition, start, head[partition])
    return found, errors


@contextmanager
def noting(errors: list[str], folder: Path) -> Iterator[None]:
    try:
        yield
    except SpoolError as error:
        assert str(folder) in str(error)
        errors.append(str(error))


@pytest.fixture(scope="module", params=["log", "arrow", "parquet", "former"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    forms: dict[str, tuple[Form | None, ...]] = {"arrow": ("arrow",), "parquet": ("parquet",)}
    base = tmp_path_factory.mktemp(request.param)
    folder, older, other = base / "spool", base / "older", base / "other"
    make(folder, forms.get(request.param, (None,)), older=older)
    make(other, forms.get(request.param, (None,)))
    if request.param == "former":
        for each in (folder, older, other):
            former(each)
    messages, errors = found_in(folder)
    assert not errors and sum(map(len, messages)) > 200
    kept = base / "kept"
    shutil.copytree(folder, kept)
    retain(kept, max_age_s=NOW_S - BEGIN_S - KEPT_S, clock=lambda: NOW_S)
    left = {path.relative_to(kept) for path in kept.glob("p*/*[!x]")}
    # Logs of earlier versions do not name their place, and a missing one looks like retention.
    ways: list[Damage] = [flip, cut, clear, lengthen] if request.param == "former" else WAYS
    return Whole(ways, folder, older, other, messages, SpoolReader(folder).floor(), left)


#: Ways of damage: each changes a file of a copied spool.
Damage = Callable[[Path, Whole, Path, float], None]


def flip(folder: Path, whole: Whole, name: Path, chance: float) -> None:
    octets = bytearray((folder / name).read_bytes())
    if octets:
        bit = int(chance * len(octets) * 8)
        octets[bit // 8] ^= 1 << bit % 8
        (folder / name).write_bytes(octets)


def cut(folder: Path, whole: Whole, name: Path, chance: float) -> None:
    os.truncate(folder / name, int(chance * (folder / name).stat().st_size))


def remove(folder: Path, whole: Whole, name: Path, chance: float) -> None:
    (folder / name).unlink()


def clear(folder: Path, whole: Whole, name: Path, chance: float) -> None:
    (folder / name).write_bytes(bytes((folder / name).stat().st_size))


def lengthen(folder: Path, whole: Whole, name: Path, chance: float) -> None:
    octets = (folder / name).read_bytes()
    (folder / name).write_bytes(octets + octets[int(chance * len(octets)) :])


def overwrite(folder: Path, whole: Whole, name: Path, chance: float) -> None:
    """Copy another file of the spool over a file, of the same kind if there is one."""
    alike = [each for each in whole.files if each.suffix == name.suffix and each != name]
    chosen = alike or whole.files
    shutil.copyfile(whole.folder / chosen[int(chance * len(chosen))], folder / name)


def exchange(folder: Path, whole: Whole, name: Path, chance: float) -> None:
    alike = [each for each in whole.files if each.suffix == name.suffix and each != name]
    if alike:
        with_name = alike[int(chance * len(alike))]
        first, second = ((folder / each).read_bytes() for each in (name, with_name))
        (folder / name).write_bytes(second)
        (folder / with_name).write_bytes(first)


def replace_by_other(folder: Path, whole: Whole, name: Path, chance: float) -> None:
    """Copy the file of another spool over a file."""
    if (whole.other / name).exists():
        shutil.copyfile(whole.other / name, folder / name)


def replace_by_older(folder: Path, whole: Whole, name: Path, chance: float) -> None:
    if (whole.older / name).exists():
        shutil.copyfile(whole.older / name, folder / name)


WAYS: list[Damage] = [
    flip,
    cut,
    remove,
    clear,
    lengthen,
    overwrite,
    exchange,
    replace_by_other,
    replace_by_older,
]


@given(st.data())
def test_damage_of_one_file_is_harmless_or_reported(whole: Whole, data: st.DataObject) -> None:
    way = data.draw(st.sampled_from(whole.ways), label="way")
    name = data.draw(st.sampled_from(whole.files), label="file")
    chance = data.draw(st.floats(0, 1, exclude_max=True), label="place")
    with copied(whole) as folder:
        way(folder, whole, name, chance)
        check(folder, whole, name)


@contextmanager
def copied(whole: Whole) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / "spool"
        shutil.copytree(whole.folder, folder)
        yield folder


def check(folder: Path, whole: Whole, name: Path) -> None:
    """Check that readers, retention and the next writer see no wrong message."""
    is_read = verdict(folder, whole, name)
    errors: list[str] = []
    with noting(errors, folder):
        assert readers.listed(folder).keys() <= {"a"}
        for each in readers.listed(folder).values():
            assert each.positions == (70, 70)
    with tempfile.TemporaryDirectory() as base:
        again = Path(base) / "spool"
        shutil.copytree(folder, again)
        with noting(errors, again):
            retain(again, max_age_s=NOW_S - BEGIN_S - KEPT_S, clock=lambda: NOW_S)
            missing = {each for each in whole.kept if not (again / each).exists()}
            assert missing <= {each for each in whole.kept if not (folder / each).exists()}
    with noting(errors, folder), SpoolWriter(folder, sync=False) as writer:
        more = balanced(1000, 1002)
        assert writer.append(more) == 2
        ends = [max(part) + 1 for part in whole.messages]
        assert writer.head == tuple(end + 1 for end in ends)
        verdict(folder, whole, name, more={0: more, 1: more})
    assert is_read or errors or name.name == "head.json"


def verdict(
    folder: Path, whole: Whole, name: Path, more: dict[int, list[Record]] | None = None
) -> bool:
    """Return True if everything is there; otherwise errors must report what is not."""
    found, errors = found_in(folder)
    for messages, expected in zip(found, whole.messages, strict=False):
        end = max(expected) + 1
        assert {each: messages[each] for each in messages if each < end}.items() <= expected.items()
    is_whole = len(found) == 2 and all(
        expected.items() <= messages.items()
        for messages, expected in zip(found, whole.messages, strict=True)
    )
    assert is_whole or errors or (name.name == "head.json" and more is None)
    return is_whole


@pytest.mark.parametrize("form", [None, "arrow", "parquet"])
@pytest.mark.parametrize("source", ["older spool", "other partition", "other segment"])
def test_a_segment_in_the_place_of_another_one_is_reported(
    tmp_path: Path, form: Form | None, source: str
) -> None:
    make(tmp_path / "spool", (form,))
    make(tmp_path / "older spool", (form,))
    path = logs(tmp_path / "spool")[0] if form is None else first_file(tmp_path / "spool", form)
    sources = {
        "older spool": tmp_path / "older spool" / "p0" / path.name,
        "other partition": path.parents[1] / "p1" / path.name,
        "other segment": path.with_name(f"{int(path.stem) + 10:020}{path.suffix}"),
    }
    shutil.copyfile(sources[source], path)
    with pytest.raises(BrokenSpoolError) as caught:
        contents(tmp_path / "spool", start=int(path.stem))
    assert caught.value.path == path


def first_file(folder: Path, form: Form) -> Path:
    return min((folder / "p0").glob(f"*.{form}"))


def test_a_first_segment_that_retention_has_not_removed_is_missed(tmp_path: Path) -> None:
    made = fill(tmp_path, *[10] * 8, segment_bytes=2000)
    retain(tmp_path, max_age_s=50, clock=lambda: BEGIN_S + 100)
    first, second = logs(tmp_path)[:2]
    floor = int(first.stem)
    assert floor > 0
    first.unlink()
    reader = SpoolReader(tmp_path)
    assert reader.floor() == (floor,)
    with pytest.raises(BrokenSpoolError, match=rf"segment {first.stem} .* is missing"):
        contents(tmp_path)
    begin = reader.after_damage(0, floor, 80)
    assert begin == int(second.stem)
    assert contents(tmp_path, start=begin) == made[begin:]
    # Whoever has removed it on purpose can say so.
    (tmp_path / "floor.json").unlink()
    SpoolWriter(tmp_path).close()
    assert contents(tmp_path) == made[begin:]


@pytest.mark.parametrize("content", [None, b""])
@pytest.mark.parametrize("index", ["as it was", "missing"])
def test_a_writer_without_the_head_does_not_cut_off_confirmed_messages(
    tmp_path: Path, content: bytes | None, index: str
) -> None:
    made = fill(tmp_path, 2, 3)
    path = logs(tmp_path)[0]
    octets = bytearray(path.read_bytes())
    octets[octets.index(b"STB", 1) + 30] ^= 1
    path.write_bytes(octets)
    head = tmp_path / "head.json"
    right = head.read_bytes()
    if content is None:
        head.unlink()
    else:
        head.write_bytes(content)
    if index == "missing":
        path.with_name(path.name + ".idx").unlink()
    with pytest.raises(BrokenSpoolError, match=str(path)):
        SpoolWriter(tmp_path)
    assert path.read_bytes() == octets
    octets[octets.index(b"STB", 1) + 30] ^= 1
    path.write_bytes(octets)
    head.write_bytes(right)
    SpoolWriter(tmp_path).close()
    assert contents(tmp_path) == made


def test_a_writer_without_the_head_does_not_use_ordinals_of_missing_messages_again(
    tmp_path: Path,
) -> None:
    fill(tmp_path, 2, 3)
    path = logs(tmp_path)[0]
    os.truncate(path, path.read_bytes().index(b"STB", 1))
    (tmp_path / "head.json").unlink()
    with pytest.raises(BrokenSpoolError, match=r"ends before ordinal 2, and had messages up to 5"):
        SpoolWriter(tmp_path)


def test_a_spool_of_an_earlier_version_is_read_and_continued(tmp_path: Path) -> None:
    made = fill(tmp_path, *[10] * 8, segment_bytes=2000)
    former(tmp_path)
    assert contents(tmp_path) == made
    with SpoolWriter(tmp_path) as writer:
        assert writer.append(several(70, 90)) == 10
    assert contents(tmp_path) == several(0, 90)
    assert b'"format":2' in (tmp_path / "spool.json").read_bytes()
    first = logs(tmp_path)[0]
    first.unlink()
    with pytest.raises(BrokenSpoolError, match="is missing"):
        contents(tmp_path)


def test_every_flipped_bit_of_a_readers_position_is_reported(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    made = readers.register(tmp_path, "a", (7,), clock=lambda: 1234.5)
    path = tmp_path / "readers" / "a.json"
    octets = path.read_bytes()
    for bit in range(8 * len(octets)):
        damaged = bytearray(octets)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            assert readers.listed(tmp_path) == {"a": made}
        except BrokenSpoolError as error:
            assert error.path == path


def test_other_values_in_a_parquet_segment_are_reported(tmp_path: Path) -> None:
    """The end of the file has no checksum: a wrong bit there can change the unit of times."""
    fill(tmp_path, *[10] * 8, segment_bytes=2000)
    path = seal(tmp_path, *unsealed(tmp_path)[0], form="parquet")
    table = pq.read_table(path)
    metadata = pq.read_metadata(path).metadata
    assert contents(tmp_path) == several(0, 80)
    times = pc.add(table["received"], pa.scalar(1, pa.duration("us")))
    with pq.ParquetWriter(path, table.schema) as file:
        file.write_table(table.set_column(1, table.schema.field(1), times))
        file.add_key_value_metadata(
            {name: text for name, text in metadata.items() if name.startswith(b"stompkit")}
        )
    with pytest.raises(BrokenSpoolError, match="checksum of its batch 0"):
        contents(tmp_path)


@pytest.mark.parametrize("others", [0, 1])
def test_a_writer_whose_lock_was_removed_writes_no_more(tmp_path: Path, others: int) -> None:
    """Otherwise a second writer could overwrite what this one has confirmed."""
    with SpoolWriter(tmp_path) as writer:
        writer.append(several(0, 5))
        (tmp_path / "lock").unlink()
        if others:
            with SpoolWriter(tmp_path) as other:
                other.append(several(5, 10))
        with pytest.raises(SpoolInUseError, match="lock was removed or replaced"):
            writer.append(several(10, 15))
    assert contents(tmp_path) == several(0, 10 if others else 5)
