"""Partitions: each row's changes stay in order, and no number is missing in any partition."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack, closing

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.sinks.forwarders.stomp import partition_of, partitioned
from tests.replication.broker.place import Place, changeset, until, write
from tests.replication.broker.sqlite_sink import SqliteSink, applied, rows
from tests.replication.made import changesets

PARTITIONS = 3


def moved(before: int, after: int) -> RowChange:
    """Return an update that changes the key, and does not contain all columns."""
    return RowChange(
        table="t",
        action="update",
        key={"id": after},
        old_key={"id": before},
        before={"id": before, "text": "kept", "n": 0},
        after={"id": after, "n": 1},
    )


@settings(deadline=None)
@given(changesets, st.integers(1, 5))
def test_each_partition_has_every_number_and_its_own_origin(
    whole: Changeset, partitions: int
) -> None:
    parts = partitioned(whole, partitions)
    assert [part.sequence for part in parts] == [whole.sequence] * partitions
    assert [part.origin for part in parts] == [f"{whole.origin}/{n}" for n in range(partitions)]
    assert len({part.id for part in parts}) == partitions
    assert all(part.source == whole.source for part in parts)
    rows = [each for each in whole.changes if each.action not in ("truncate", "schema")]
    plain = [each for each in rows if each.old_key is None]
    for number, part in enumerate(parts):
        found = [each for each in part.changes if each in plain]
        assert found == [each for each in plain if partition_of(each, partitions) == number]


def test_the_partition_of_a_row_is_the_same_everywhere() -> None:
    """It is independent of machine, process and release; else messages would be reordered."""
    for number in range(20):
        digest = hashlib.blake2b(b'["","t",{"id":%d}]' % number, digest_size=8).digest()
        expected = int.from_bytes(digest, "big") % 8
        assert partition_of(write(number), 8) == expected
        assert partition_of(write(number, "another text"), 8) == expected


def test_a_key_that_changes_moves_the_row_with_all_that_is_known_of_it() -> None:
    numbers = range(100)
    home = {number: partition_of(write(number), PARTITIONS) for number in numbers}
    other = next(number for number in numbers if home[number] != home[0])
    same = next(number for number in numbers if number and home[number] == home[0])
    parts = partitioned(changeset(1, moved(0, other), moved(0, same)), PARTITIONS)
    gone, stays = parts[home[0]].changes
    (comes,) = parts[home[other]].changes
    assert stays == moved(0, same)
    assert (gone.action, gone.key, gone.old_key, gone.after) == ("delete", {"id": 0}, None, None)
    assert (comes.action, comes.key, comes.old_key) == ("write", {"id": other}, None)
    assert comes.after == {"id": other, "text": "kept", "n": 1}
    # The old key does not return if the update contains the new one as the key only.
    short = msgspec.structs.replace(moved(0, other), after={"n": 1})
    (comes,) = partitioned(changeset(1, short), PARTITIONS)[home[other]].changes
    assert comes.after == {"id": other, "text": "kept", "n": 1}


def test_truncate_and_schema_are_in_every_partition() -> None:
    whole = changeset(
        1,
        RowChange(table="t", action="truncate", key={}),
        RowChange(table="t", action="schema", key={}, after={"columns": []}),
    )
    for part in partitioned(whole, PARTITIONS):
        assert part.changes == whole.changes


def test_partitions_are_applied_side_by_side_and_come_to_the_same(place: Place) -> None:
    queue = place.queue("parts")
    origins = [f"o/{number}" for number in range(PARTITIONS)]
    made = []
    for sequence in range(1, 61):
        number = sequence % 7
        match sequence % 4:
            case 0:
                there, back = moved(number, number + 10), moved(number + 10, number)
                row = {"text": f"row {sequence}"}
                changes = [
                    msgspec.structs.replace(each, before=None, after=row) for each in (there, back)
                ]
            case 1:
                changes = [RowChange(table="t", action="delete", key={"id": number})]
            case _:
                changes = [write(number, f"row {sequence}"), write(sequence + 100)]
        made.append(changeset(sequence, *changes))
    place.publish(queue, made, partitions=PARTITIONS)
    with ExitStack() as stack:
        for number in range(PARTITIONS):
            part = stack.enter_context(closing(SqliteSink(place.store)))
            stack.enter_context(place.consuming(f"{queue}.{number}", part))
        until(lambda: all(len(applied(place.store, each)) >= 60 for each in origins))
    assert all(applied(place.store, each) == list(range(1, 61)) for each in origins)
    alone = SqliteSink(place.directory / "alone.sqlite")
    alone.apply(made)
    alone.close()
    assert rows(place.store) == rows(place.directory / "alone.sqlite")


def test_an_empty_changeset_stays_one() -> None:
    whole = msgspec.structs.replace(changeset(1), changes=())
    assert [part.changes for part in partitioned(whole, 2)] == [(), ()]
