"""Changesets in several messages: their parts in any order, in any batches; without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompkit.spool import Record, SpoolError
from tests.effort import drawn
from tests.spark.messages import fill, records_of
from tests.spark.stream.queries import Query, Row, again, header, messages, named, sequences

#: Sizes in bytes by which a changeset of three changes has three parts, two, or one.
_THREE, _TWO, _ONE = 400, 500, 1 << 20


def parts(sequence: int, most: int, *, origin: str = "shop") -> list[Record]:
    """Return the messages of one changeset."""
    return list(records_of([named(sequence, origin)], max_body_bytes=most))


def whole(*sequences: int, origin: str = "shop") -> list[tuple[str, int, int]]:
    """Return the rows of changesets without their positions."""
    return [(origin, sequence, change) for sequence in sequences for change in range(3)]


def unplaced(rows: Sequence[Row]) -> list[tuple[str, int, int]]:
    return [row[:3] for row in rows]


def test_sizes_give_so_many_parts() -> None:
    assert [len(parts(1, most)) for most in (_THREE, _TWO, _ONE)] == [3, 2, 1]


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
@pytest.mark.parametrize("most", [1, 2, 3])
def test_changeset_is_read_once_its_parts_are_there_in_any_order(
    tmp_path: Path, order: tuple[int, ...], most: int
) -> None:
    three = parts(1, _THREE)
    fill(tmp_path, [three[number] for number in order], messages(2))
    query = Query(tmp_path, once=True, maxRecordsPerTrigger=str(most))
    assert unplaced(query.run()) == whole(1, 2)
    assert {row[3] for row in query.rows} == {2, 3}


def test_part_that_arrives_later_completes_a_changeset(tmp_path: Path) -> None:
    three = parts(1, _THREE)
    query = Query(tmp_path)
    for record in (three[2], three[0], again(three[2:])[0]):
        fill(tmp_path, [record])
        assert query.run() == []
    fill(tmp_path, [three[1]])
    assert unplaced(query.run()) == whole(1)


def test_parts_are_found_however_many_messages_are_between_them(tmp_path: Path) -> None:
    """A broker that was away for hours delivers its part then."""
    three = parts(1, _THREE)
    others = messages(*range(1, 3001), origin="mine")
    fill(tmp_path, three[2:], three[:1], others, three[1:2])
    query = Query(tmp_path, once=True, maxRecordsPerTrigger="1000")
    rows = query.run()
    assert unplaced(rows[-3:]) == whole(1)
    assert unplaced(rows[:-3]) == whole(*range(1, 3001), origin="mine")


def test_changeset_that_was_split_in_another_way_is_read_once(tmp_path: Path) -> None:
    """A publisher is killed amid a changeset, and continues with another limit."""
    old, new = parts(1, _THREE), parts(1, _TWO)
    fill(tmp_path, old[:2], new, again(old[2:]), parts(2, _ONE))
    assert unplaced(Query(tmp_path, once=True).run()) == whole(1, 2)


def test_origin_that_was_joined_amid_a_changeset_begins_with_the_next(tmp_path: Path) -> None:
    """As a consumer does: its first part went to earlier subscribers of the topic."""
    fill(tmp_path, parts(7, _THREE)[1:])
    query = Query(tmp_path, once=True)
    assert query.run() == []
    fill(tmp_path, messages(8, 9))
    assert unplaced(query.run()) == whole(8, 9)


def test_query_that_begins_amid_a_changeset_reads_all_of_it(tmp_path: Path) -> None:
    three = parts(7, _THREE)
    fill(tmp_path, messages(6), three[:2])
    query = Query(tmp_path, startingOffsets="latest", beginningWait="1", once=True)
    assert query.run() == []
    fill(tmp_path, three[2:], messages(8))
    assert unplaced(query.run()) == whole(7, 8)


def test_incomplete_changeset_at_the_end_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, messages(1), parts(2, _THREE)[1:])
    assert unplaced(Query(tmp_path, once=True).run()) == whole(1)
    assert "changeset 2 of shop, of which 2 of 3 parts are there, is incomplete" in caplog.text


def test_part_that_is_no_changeset_is_one_unreadable_row(tmp_path: Path) -> None:
    three = parts(1, _THREE)
    fill(tmp_path, [three[0], three[1]._replace(body=b"{}"), three[2]], messages(2))
    query = Query(tmp_path, once=True, maxRecordsPerTrigger="1")
    rows = query.run()
    assert [row[:3] for row in rows if row[0]] == whole(2)
    assert [row[3] for row in rows if not row[0]] == [2]


def test_offsets_of_an_earlier_version_go_on(tmp_path: Path) -> None:
    """They have the numbers of the parts that were read, and not where these are."""
    three = parts(1, _THREE)
    fill(tmp_path, three[:2])
    query = Query(tmp_path)
    query.run()
    assert query.offset is not None
    known = query.offset["o"]["origins"]
    assert known["shop"][2] == [[3, 0, [[1, 2]]]]
    known["shop"][2] = [[1, 2]]
    fill(tmp_path, again(three[1:2]), three[2:], messages(2))
    assert unplaced(query.run()) == whole(1, 2)


@st.composite
def deliveries(draw: st.DrawFn) -> list[list[Record]]:
    """Draw messages of two origins in any order, some of them twice, in groups."""
    made: list[Record] = []
    for origin in ("shop", "mine")[: draw(st.integers(1, 2))]:
        for sequence in range(1, draw(st.integers(1, 4)) + 1):
            most = draw(st.sampled_from([_THREE, _TWO, _ONE]))
            made += parts(sequence, most, origin=origin)
            if draw(st.booleans()):
                # Another publisher process had sent some parts before it was killed.
                former = parts(sequence, draw(st.sampled_from([_THREE, _TWO])), origin=origin)
                made += again(draw(st.lists(st.sampled_from(former), max_size=2)))
    made += again(draw(st.lists(st.sampled_from(made), max_size=4)))
    made = draw(st.permutations(made))
    size = draw(st.integers(1, 7))
    return [made[at : at + size] for at in range(0, len(made), size)]


@settings(max_examples=drawn(40), deadline=None, derandomize=True)
@given(groups=deliveries(), most=st.integers(1, 8), other=st.integers(1, 40))
def test_changesets_are_read_once_and_in_order_whatever_parts_come_when(
    groups: list[list[Record]], most: int, other: int
) -> None:
    with TemporaryDirectory() as folder:
        place = Path(folder)
        fill(place, [])
        query = Query(place, maxRecordsPerTrigger=str(most))
        for group in groups:
            fill(place, group)
            query.run()
        records = [each for group in groups for each in group]
        for origin in {header(each, "stompkit-origin") for each in records}:
            own = [row for row in query.rows if row[0] == origin]
            count = max(
                int(header(each, "stompkit-sequence"))
                for each in records
                if header(each, "stompkit-origin") == origin
            )
            assert unplaced(own) == whole(*range(1, count + 1), origin=origin)
        assert all(row[0] for row in query.rows), "no row is unreadable"
        # A change has the same position in any batches, on which the fence relies.
        replayed = Query(place, maxRecordsPerTrigger=str(other))
        replayed.run()
        assert sorted(replayed.rows) == sorted(query.rows)


@settings(max_examples=drawn(30), deadline=None, derandomize=True)
@given(data=st.data())
def test_query_that_begins_anywhere_reads_what_is_completed_later(data: st.DataObject) -> None:
    records: list[Record] = []
    for sequence in range(1, 5):
        own = parts(sequence, data.draw(st.sampled_from([_THREE, _TWO, _ONE])))
        records += data.draw(st.permutations(own))
    start = data.draw(st.integers(0, len(records)))
    with TemporaryDirectory() as folder:
        fill(Path(folder), records)
        full = Query(Path(folder), once=True)
        full.run()
        some = Query(Path(folder), once=True, startingOffsets=f'{{"0": {start}}}')
        assert some.run() == [row for row in full.rows if row[3] >= start]


def test_changeset_that_came_when_it_was_passed_over_is_refused(tmp_path: Path) -> None:
    three = parts(1, _THREE)
    fill(tmp_path, three[:2], messages(2))
    query = Query(tmp_path, once=True, gap="skip")
    assert unplaced(query.run()) == whole(2)
    fill(tmp_path, three[2:])
    strict: Any = Query(tmp_path, once=True)
    strict.offset = query.offset
    with pytest.raises(SpoolError, match="changeset 1 of shop came when others behind it"):
        strict.run()
    assert sequences(query.run()) == []
