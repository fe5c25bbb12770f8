"""Changesets in the order of their origins, whatever the order of a spool; without Spark."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompkit.spark.stream import order, scans
from stompkit.spark.stream.changes import change_batches
from stompkit.spool import Record, SpoolError, SpoolReader, readers
from stompkit.spool.retention import retain
from tests.effort import drawn
from tests.spark.messages import changeset, fill, records_of
from tests.spark.stream.queries import Query, again, header, messages, sequences


@pytest.mark.parametrize("payload", ["changeset", "ranges"])
def test_changesets_that_came_in_another_order_are_read_in_their_own(
    tmp_path: Path, payload: str
) -> None:
    query = Query(tmp_path, payload=payload)
    fill(tmp_path, messages(4, 5))
    assert query.run() == []
    fill(tmp_path, messages(1, 2))
    assert query.run() == []
    fill(tmp_path, messages(3, 6))
    assert sequences(query.run()) == [1, 2, 3, 4, 5, 6]
    ordinals = [ordinal for *_, ordinal in query.rows]
    assert ordinals == sorted(ordinals)


def test_repeats_are_left_out(tmp_path: Path) -> None:
    query = Query(tmp_path)
    fill(tmp_path, messages(1, 2, 3), again(messages(2)), again(messages(3, 4)), again(messages(1)))
    assert sequences(query.run()) == [1, 2, 3, 4]
    fill(tmp_path, again(messages(2, 5)))
    assert sequences(query.run()) == [5]


@pytest.mark.parametrize("once", [True, False])
def test_gap_stops_with_what_is_missing(tmp_path: Path, *, once: bool) -> None:
    fill(tmp_path, messages(1, 2, 5, 6))
    query = Query(tmp_path, once=once, gapTimeout="1")
    if once:
        with pytest.raises(SpoolError, match=r"changeset 3 to 4 of shop is missing.*gap to skip"):
            query.run()
    else:
        query.run()
    assert sequences(query.rows) == [1, 2]
    fill(tmp_path, messages(4, 3))
    assert sequences(query.run()) == [3, 4, 5, 6]


def test_gap_is_passed_over_where_that_is_wanted(tmp_path: Path) -> None:
    fill(tmp_path, messages(1, 2, 5, 6, 9))
    query = Query(tmp_path, once=True, gap="skip")
    assert sequences(query.run()) == [1, 2, 5, 6, 9]
    fill(tmp_path, messages(3, 10))
    assert sequences(query.run()) == [10]
    strict = Query(tmp_path, once=True)
    strict.offset = query.offset
    fill(tmp_path, messages(7))
    with pytest.raises(SpoolError, match="changeset 7 of shop came when others behind it"):
        strict.run()


def test_any_number_of_gaps_is_passed_over_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned = 0

    def counting(*arguments: Any, **options: Any) -> order.Scan:
        nonlocal scanned
        scanned += 1
        return order.scan(*arguments, **options)

    monkeypatch.setattr(scans, "scan", counting)
    parts = list(records_of([changeset(4, changes=20)], max_body_bytes=900))
    later = messages(1, *range(7, 101, 3))
    fill(tmp_path, later[:1], parts[:2], later[1:])
    query = Query(tmp_path, once=True, gap="skip")
    assert sequences(query.run()) == [1, *range(7, 101, 3)]
    assert scanned <= 3
    # A rebuild does the same.
    scanned = 0
    reader = SpoolReader(tmp_path)
    scans.present(reader, reader.head(), "skip")
    assert scanned <= 3


def test_changeset_whose_first_parts_are_gone_is_told_with_the_way_out(tmp_path: Path) -> None:
    """Earlier versions of retention have left such spools."""
    parts = list(records_of([changeset(7, changes=20)], max_body_bytes=900))
    later = messages(8, 9)
    fill(tmp_path, *([each] for each in [*parts, *later]), segment_bytes=1)
    # The registered reader keeps the rest.
    readers.register(tmp_path, "here", (2,))
    assert retain(tmp_path, max_bytes=0, whole_changesets=False).segments == 2
    query = Query(tmp_path, once=True, startingOffsets="earliest")
    with pytest.raises(
        SpoolError,
        match=r"changeset 7 of shop, of which 2 of 4 parts are there, is"
        r" missing in the spool \(retention has removed all before 2\).*gap to skip",
    ):
        query.run()
    reader = SpoolReader(tmp_path)
    bounds = (2, len(parts))
    batches = change_batches(reader, 0, *bounds, reader.blocks(0, *bounds))
    (problem,) = [each for batch in batches for each in batch.column("problem").to_pylist()]
    assert ": 1, 2. Retention has removed all messages before 2. To go on" in problem
    skipping = Query(tmp_path, once=True, gap="skip", startingOffsets="earliest")
    assert sequences(skipping.run())[-2:] == [8, 9]


def test_origin_begins_with_the_lowest_that_is_there(tmp_path: Path) -> None:
    fill(tmp_path, messages(7, 5, 6))
    query = Query(tmp_path, once=True)
    assert sequences(query.run()) == [5, 6, 7]
    fill(tmp_path, messages(4))
    with pytest.raises(SpoolError, match="changeset 4 of shop came when"):
        query.run()


@st.composite
def arrivals(draw: st.DrawFn) -> list[list[Record]]:
    """Draw messages of two origins as brokers may deliver them, in groups."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    made: list[Record] = []
    for origin in ("shop", "mine")[: draw(st.integers(1, 2))]:
        most = draw(st.sampled_from([1 << 20, 400]))
        made += messages(*range(1, draw(st.integers(1, 9)) + 1), origin=origin, most=most)
    reach = draw(st.sampled_from([0, 2, 100]))
    keys = {number: number + chance.uniform(0, reach) for number in range(len(made))}
    made = [made[number] for number in sorted(keys, key=keys.__getitem__)]
    for _ in range(draw(st.integers(0, 5))):
        made.insert(chance.randrange(len(made) + 1), again([chance.choice(made)])[0])
    size = draw(st.integers(1, 7))
    return [made[at : at + size] for at in range(0, len(made), size)]


@settings(max_examples=drawn(20), deadline=None, derandomize=True)
@given(groups=arrivals(), most=st.integers(1, 8), other=st.integers(1, 30))
def test_each_changeset_is_read_once_and_in_its_order(
    groups: list[list[Record]], most: int, other: int
) -> None:
    with TemporaryDirectory() as folder:
        place = Path(folder)
        fill(place, [])
        query = Query(place, maxRecordsPerTrigger=str(most))
        for group in groups:
            fill(place, group)
            query.run()
        for origin in {row[0] for row in query.rows}:
            own = [row for row in query.rows if row[0] == origin]
            count = len(own) // 3
            assert [row[1:3] for row in own] == list(places(count)), origin
        # A change has the same position in any batches, on which the fence relies.
        replayed = Query(place, maxRecordsPerTrigger=str(other))
        replayed.run()
        assert sorted(replayed.rows) == sorted(query.rows)
        wanted = {header(each, "stompkit-changeset") for group in groups for each in group}
        assert {f"{row[0]}-{row[1]}" for row in query.rows} == wanted


def places(count: int) -> Iterator[tuple[int, int]]:
    """Return changesets from 1 on, and their changes."""
    return ((sequence, change) for sequence in range(1, count + 1) for change in range(3))
