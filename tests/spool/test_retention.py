"""Removal of old messages."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.spool import (
    Record,
    SpoolError,
    SpoolInUseError,
    SpoolReader,
    SpoolWriter,
    partition_of,
    readers,
)
from stompkit.spool.retention import Removed, retain
from stompkit.spool.sealing import Form, seal
from tests.spool.made import BEGIN_S, contents, fill, logs, numbers, record, several


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A spool with messages 0 to 79 in segments of 20."""
    with SpoolWriter(tmp_path, segment_s=19.5, sync=False) as writer:
        for number in range(80):
            writer.append([record(number)])
    assert [int(path.stem) for path in logs(tmp_path)] == [0, 20, 40, 60]
    return tmp_path


def octets(folder: Path) -> int:
    return sum(path.stat().st_size for path in logs(folder))


def test_nothing_is_removed_unless_it_is_asked_for(spool: Path) -> None:
    assert retain(spool) == Removed(0, 0, {})
    assert len(contents(spool)) == 80


def test_a_segment_goes_once_all_of_it_is_too_old(spool: Path) -> None:
    before = octets(spool)
    assert retain(spool, max_age_s=100, clock=lambda: BEGIN_S + 139).segments == 1
    assert retain(spool, max_age_s=100, clock=lambda: BEGIN_S + 139).segments == 0
    removed = retain(spool, max_age_s=100, clock=lambda: BEGIN_S + 139.5)
    assert removed.segments == 1
    assert removed.octets * 2 == before - octets(spool)
    assert numbers(contents(spool)) == list(range(40, 80))


@given(st.lists(st.sampled_from(["right", "1970", "ahead"]), min_size=1, max_size=8))
def test_no_time_of_a_wrong_clock_removes_or_keeps_others(clocks: list[str]) -> None:
    """Messages come once a day, while the clock is right, at its beginning, or years ahead."""
    day_s = 86_400
    with TemporaryDirectory() as name, SpoolWriter(name, segment_bytes=1, sync=False) as writer:
        for number, clock in enumerate([*clocks, "right"]):
            right_s = BEGIN_S + number * day_s
            shown_s = {"right": right_s, "1970": number, "ahead": right_s + 10**9}[clock]
            writer.append([record(number)._replace(received_us=shown_s * 1_000_000)])
        for age in range(len(clocks), -1, -1):
            now_s = BEGIN_S + len(clocks) * day_s + day_s // 2
            retain(writer, max_age_s=age * day_s, clock=partial(float, now_s))
            (floor,) = SpoolReader(name).floor()
            old = len(clocks) - age + 1
            assert floor <= old
            # A later message with a right time tells that this one is old.
            seen = [at for at in range(min(old, len(clocks))) if clocks[at] == "right"]
            assert floor >= max(seen, default=-1) + 1


def dated(folder: Path, time_s: float) -> None:
    """Date the files of a spool as if the last message came at a time."""
    for path in logs(folder):
        os.utime(path, (time_s, time_s))


@pytest.mark.parametrize("has_run", [True, False])
@pytest.mark.parametrize("is_busy", [True, False])
def test_a_clock_that_is_ahead_for_a_while_removes_nothing(
    spool: Path, *, has_run: bool, is_busy: bool
) -> None:
    dated(spool, BEGIN_S + 80)
    if has_run:
        assert retain(spool, max_age_s=86_400, clock=lambda: BEGIN_S + 80) == Removed(0, 0, {})
    readers.register(spool, "spark", (10,), clock=lambda: BEGIN_S + 80)
    retained = partial(retain, spool, max_age_s=86_400, readers_expire_s=86_400)
    ahead_s = BEGIN_S + 10 * 365 * 86_400
    for seconds in (0, 60, 3_599):
        if is_busy and has_run:
            with SpoolWriter(spool, sync=False) as writer:
                late_us = (ahead_s + seconds) * 1_000_000
                writer.append([record(80 + seconds)._replace(received_us=late_us)])
            dated(spool, ahead_s + seconds)
        assert retained(clock=partial(float, ahead_s + seconds)) == Removed(0, 0, {})
    # It is corrected, and is ahead once more.
    assert retained(clock=lambda: BEGIN_S + 3_700) == Removed(0, 0, {})
    assert retained(clock=partial(float, ahead_s + 7_200)) == Removed(0, 0, {})
    # Another machine has another wrong clock.
    assert retained(clock=partial(float, ahead_s - 86_400)) == Removed(0, 0, {})
    assert numbers(contents(spool))[:80] == list(range(80))


def test_a_spool_without_new_messages_is_emptied_by_age(spool: Path) -> None:
    dated(spool, BEGIN_S + 80)
    later_s = BEGIN_S + 100 * 86_400
    assert retain(spool, max_age_s=86_400, clock=partial(float, later_s)).segments == 0
    assert retain(spool, max_age_s=86_400, clock=partial(float, later_s + 3_600)).segments == 3


def test_the_newest_segment_stays(spool: Path) -> None:
    assert retain(spool, max_age_s=0, max_bytes=0).segments == 3
    assert numbers(contents(spool)) == list(range(60, 80))
    assert SpoolReader(spool).floor() == (60,)


def test_as_much_goes_as_is_over_the_bound(spool: Path) -> None:
    whole = octets(spool)
    oldest = logs(spool)[0].stat().st_size
    assert retain(spool, max_bytes=whole).segments == 0
    assert retain(spool, max_bytes=whole - oldest) == Removed(1, oldest, {})
    assert retain(spool, max_bytes=whole - oldest - 1).segments == 1
    assert octets(spool) < whole - oldest - 1


def test_what_is_too_old_counts_for_the_bound(spool: Path) -> None:
    whole = octets(spool)
    oldest = logs(spool)[0].stat().st_size
    now_s = BEGIN_S + 100
    removed = retain(spool, max_age_s=80, max_bytes=whole - oldest, clock=lambda: now_s)
    assert removed.segments == 1


def test_nothing_goes_that_a_registered_reader_needs(spool: Path) -> None:
    readers.register(spool, "slow", (39,))
    readers.register(spool, "fast", (60,))
    removed = retain(spool, max_bytes=0)
    assert (removed.segments, removed.kept_for) == (1, {"slow": 2})
    assert SpoolReader(spool).floor() == (20,)
    readers.progress(spool, "slow", (40,))
    assert retain(spool, max_bytes=0).kept_for == {"slow": 1}
    readers.forget(spool, "slow")
    assert retain(spool, max_bytes=0).segments == 1


def test_a_reader_who_is_silent_for_long_holds_nothing_up(spool: Path) -> None:
    readers.register(spool, "silent", (0,), clock=lambda: 1000.0)
    kept = retain(spool, max_bytes=0, readers_expire_s=100, clock=lambda: 1100.0)
    assert kept == Removed(0, 0, {"silent": 3})
    assert retain(spool, max_bytes=0, readers_expire_s=100, clock=lambda: 1100.1).segments == 3


def test_partitions_give_way_in_the_order_of_reception(tmp_path: Path) -> None:
    made = [
        record(number, headers=(("stompkit-origin", "ad"[number >= 50]),)) for number in range(100)
    ]
    assert [partition_of(one, 2) for one in (made[0], made[50])] in ([0, 1], [1, 0])
    with SpoolWriter(tmp_path, partitions=2, segment_s=9.5, sync=False) as writer:
        for one in made:
            writer.append([one])
        sizes = [sum(path.stat().st_size for path in logs(tmp_path, part)) for part in (0, 1)]
        assert all(sizes)
        # Most segments of the earlier origin must be removed, and none of the other's.
        removed = retain(writer, max_bytes=sum(sizes) - max(sizes) // 2)
    assert removed.segments == 3
    left = sorted(numbers(contents(tmp_path, 0) + contents(tmp_path, 1)))
    assert left == list(range(30, 100))


def test_the_writer_goes_on_while_its_process_removes(spool: Path) -> None:
    with SpoolWriter(spool) as writer:
        assert retain(writer, max_bytes=0).segments == 3
        assert writer.append(several(79, 90)) == 10
    assert numbers(contents(spool)) == list(range(60, 90))
    # Only registered readers that have read removed messages remember them.
    with SpoolWriter(spool) as writer:
        assert writer.append(several(58, 62)) == 2


def test_nobody_removes_what_another_process_writes_to(spool: Path) -> None:
    with SpoolWriter(spool), pytest.raises(SpoolInUseError):
        retain(spool, max_bytes=0)


def test_a_folder_without_spool_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(SpoolError):
        retain(tmp_path, max_bytes=0)
    assert list(tmp_path.iterdir()) == []


def test_segments_without_index_are_removed_as_well(tmp_path: Path) -> None:
    fill(tmp_path, *[10] * 8, segment_bytes=2000)
    for path in (tmp_path / "p0").glob("*.idx"):
        path.unlink()
    assert retain(tmp_path, max_bytes=0).segments > 1
    assert len(list((tmp_path / "p0").iterdir())) == 1


# Changesets in several messages.

Changeset = tuple[str, int]


def part(changeset: Changeset, number: int, of: int, *, at_s: int = 0) -> Record:
    """Return one of the messages of a split changeset."""
    origin, sequence = changeset
    headers = (
        ("stompkit-changeset", f"{origin}.{sequence}"),
        ("stompkit-origin", origin),
        ("stompkit-sequence", str(sequence)),
        ("stompkit-part", str(number)),
        ("stompkit-parts", str(of)),
    )
    return record(at_s, event_id=f"{origin}.{sequence}.{number}/{of}", headers=headers)


def changeset_of(one: Record) -> Changeset:
    headers = dict(one.headers)
    return headers["stompkit-origin"], int(headers["stompkit-sequence"])


@st.composite
def streams(draw: st.DrawFn) -> list[Record]:
    """Draw messages of one to three origins: changesets in order, in one part or in several."""
    sent = []
    for origin in "abc"[: draw(st.integers(1, 3))]:
        sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=8))
        sent.append(
            [((origin, at), n, of) for at, of in enumerate(sizes) for n in range(1, of + 1)]
        )
    made: list[Record] = []
    while sent:
        one = draw(st.sampled_from(sent))
        made.append(part(*one.pop(0), at_s=len(made)))
        sent = [each for each in sent if each]
    if draw(st.booleans()):
        # Messages redelivered after a lost connection arrived in another order.
        at = draw(st.integers(0, len(made)))
        made[at : at + 4] = draw(st.permutations(made[at : at + 4]))
    return made


def uncut_floor(kept: Sequence[Record], starts: Sequence[int], written: Sequence[Record]) -> int:
    """Return the last start of a segment that splits no changeset."""
    total = defaultdict(int)
    for one in written:
        total[changeset_of(one)] = int(dict(one.headers)["stompkit-parts"])
    found = starts[0]
    for start in starts[1:]:
        before: dict[Changeset, int] = defaultdict(int)
        for one in kept[: start - starts[0]]:
            before[changeset_of(one)] += 1
        if all(count == total[name] for name, count in before.items()):
            found = start
    return found


@given(data=st.data(), stream=streams())
def test_no_changeset_loses_a_part_alone(data: st.DataObject, stream: list[Record]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        at = 0
        with SpoolWriter(folder, segment_bytes=1, sync=False) as writer:
            while at < len(stream):
                size = data.draw(st.integers(1, 5), "block")
                writer.append(stream[at : at + size])
                at += size
                if data.draw(st.booleans(), "retain"):
                    age = data.draw(st.none() | st.integers(0, 20), "age")
                    octets = data.draw(st.none() | st.integers(0, 5000), "octets")
                    clock = partial(float, BEGIN_S + min(at, len(stream)))
                    retain(writer, max_age_s=age, max_bytes=octets, clock=clock)
                    check_whole(contents(folder), stream[:at])
            kept = contents(folder)
            starts = [int(path.stem) for path in logs(folder)]
            retain(writer, max_bytes=0)
        # And as much as possible is removed.
        assert SpoolReader(folder).floor() == (uncut_floor(kept, starts, stream),)


def check_whole(kept: Sequence[Record], written: Sequence[Record]) -> None:
    there = {one.event_id for one in kept}
    for name in {changeset_of(one) for one in kept}:
        assert {one.event_id for one in written if changeset_of(one) == name} <= there


def test_an_open_changeset_stays_and_goes_when_it_is_whole(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, segment_bytes=1, sync=False) as writer:
        for number in range(1, 4):
            writer.append([part(("a", 1), number, 4)])
        readers.register(tmp_path, "ahead", (3,))
        assert retain(writer, max_bytes=0) == Removed(0, 0, {}, 2)
        writer.append([part(("a", 1), 4, 4)])
        assert retain(writer, max_bytes=0) == Removed(0, 0, {}, 3)
        writer.append([part(("a", 2), 1, 1)])
        readers.progress(tmp_path, "ahead", (4,))
        assert retain(writer, max_bytes=0).segments == 4


def test_parts_that_come_again_or_were_split_in_another_way_hold_nothing_up(tmp_path: Path) -> None:
    """The publisher was killed behind the second of three parts, and sent two larger ones then."""
    numbers = [(1, 3), (2, 3), (1, 2), (2, 2), (3, 3)]
    with SpoolWriter(tmp_path, segment_bytes=1, sync=False) as writer:
        for number, of in numbers[:3]:
            writer.append([part(("a", 1), number, of)])
        assert retain(writer, max_bytes=0) == Removed(0, 0, {}, 2)
        for number, of in numbers[3:]:
            writer.append([part(("a", 1), number, of)])
        writer.append([part(("a", 2), 1, 1)])
        assert retain(writer, max_bytes=0).segments == 5


def test_first_parts_that_are_gone_already_hold_nothing_up(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, segment_bytes=1, sync=False) as writer:
        for number in range(1, 5):
            writer.append([part(("a", 1), number, 4)])
        # As earlier versions did.
        assert retain(writer, max_bytes=0, whole_changesets=False).segments == 3
        writer.append([part(("a", 2), 1, 1)])
        assert retain(writer, max_bytes=0).segments == 1


def test_a_damaged_segment_is_removed_all_the_same(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, segment_bytes=1, sync=False) as writer:
        for number in range(1, 4):
            writer.append([part(("a", number), 1, 1)])
        first = logs(tmp_path)[0]
        first.write_bytes(first.read_bytes()[:-1] + b"x")
        assert retain(writer, max_bytes=0).segments == 2


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_a_segment_whose_sealing_was_interrupted_is_removed_in_all_forms(
    tmp_path: Path, form: Form
) -> None:
    fill(tmp_path, *[10] * 8, segment_bytes=2000)
    log, following = logs(tmp_path)[:2]
    octets = log.read_bytes()
    sealed = seal(tmp_path, 0, 0, form=form)
    # A crash leaves the log beside the new file, or the unfinished file.
    log.write_bytes(octets)
    sealed.with_suffix(f".tmp.{form}").write_bytes(octets)
    assert retain(tmp_path, max_bytes=0).segments > 0
    assert not list(log.parent.glob(f"{log.stem}.*"))
    floor = SpoolReader(tmp_path).floor()[0]
    assert floor >= int(following.stem)
    assert contents(tmp_path) == several(floor, 80)
    assert retain(tmp_path, max_bytes=0).segments == 0
