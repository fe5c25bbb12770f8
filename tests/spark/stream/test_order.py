"""Changesets in the order of their origins, whatever the order of a spool; without Spark."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompkit.spark.stream.changes import change_batches
from stompkit.spark.stream.options import SourceOptions
from stompkit.spark.stream.partitions import read
from stompkit.spark.stream.ranges import batches_of
from stompkit.spark.stream.reader import StreamReader
from stompkit.spool import Record, SpoolError, SpoolReader, readers
from stompkit.spool.retention import retain
from tests.effort import drawn
from tests.spark.messages import changeset, fill, records_of

Row = tuple[str, int, int, int]


class Query:
    """A query as Spark runs it: with a stored offset, and partitions read elsewhere."""

    def __init__(self, folder: Path, *, once: bool = False, **options: str) -> None:
        """Read a spool; with ``once`` its present contents only."""
        given = {"spool": str(folder), "payload": "changeset", "beginningWait": "600", **options}
        self._options = SourceOptions.parse(given)
        self._once = once
        self._offset: dict[str, Any] | None = None
        #: Origin, sequence, number of the change, and ordinal.
        self.rows: list[Row] = []

    def run(self) -> list[Row]:
        """Read all available rows; return the new ones."""
        before = len(self.rows)
        while self._batch():
            pass
        return self.rows[before:]

    def _batch(self) -> bool:
        reader = StreamReader(self._options)
        if self._once:
            reader.prepareForTriggerAvailableNow()
        start = self._offset or reader.initialOffset()
        end = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
        self._offset = start
        if end == start:
            return False
        # As after a crash: planned by another process.
        for part in StreamReader(self._options).partitions(start, end):
            batches = read(pickle.loads(pickle.dumps(part)))
            for batch in batches_of(batches) if self._options.payload == "ranges" else batches:
                names = ("origin", "sequence", "change", "_ordinal")
                columns = [batch.column(name).to_pylist() for name in names]
                self.rows += zip(*columns, strict=True)
        self._offset = end
        return True


def messages(*sequences: int, origin: str = "shop", most: int = 1 << 20) -> list[Record]:
    """Return the messages of changesets, of three changes each."""
    made = (named(sequence, origin) for sequence in sequences)
    return list(records_of(made, max_body_bytes=most))


def named(sequence: int, origin: str) -> Any:
    """Return a changeset whose id contains its origin."""
    made = changeset(sequence, changes=3, origin=origin)
    return msgspec.structs.replace(made, id=f"{origin}-{sequence}")


def again(records: Sequence[Record]) -> list[Record]:
    """Return the messages as another broker delivers them, which the spool does not recognise."""
    return [each._replace(message_id="", event_id="") for each in records]


def sequences(rows: Sequence[Row]) -> list[int]:
    """Return the changesets, in their order."""
    return [sequence for _, sequence, change, _ in rows if not change]


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
    strict._offset = query._offset
    fill(tmp_path, messages(7))
    with pytest.raises(SpoolError, match="changeset 7 of shop came when others behind it"):
        strict.run()


def test_changeset_whose_first_parts_are_gone_is_told_with_the_way_out(tmp_path: Path) -> None:
    """Earlier versions of retention have left such spools."""
    parts = list(records_of([changeset(7, changes=20)], max_body_bytes=900))
    later = messages(8, 9)
    fill(tmp_path, *([each] for each in [*parts, *later]), segment_bytes=1)
    # The registered reader keeps the rest.
    readers.register(tmp_path, "here", (2,))
    assert retain(tmp_path, max_bytes=0, whole_changesets=False).segments == 2
    query = Query(tmp_path, once=True, startingOffsets="earliest")
    with pytest.raises(SpoolError, match=r"changeset 7 of shop is missing.*gap to skip"):
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
        most = draw(st.sampled_from([1 << 20, 600]))
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


def header(record: Record, name: str) -> str:
    return dict(record.headers)[name]
