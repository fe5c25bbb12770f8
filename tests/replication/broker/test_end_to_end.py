"""From a publisher over a broker into a store: everything, once, in order, and unchanged."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest

from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import Value
from stompkit.replication.sources.publication import Publication
from tests.ports import free_ports
from tests.replication.broker.place import LONG_S, Dead, Place, changeset, until, write, writes
from tests.replication.broker.sqlite_sink import SqliteSink, applied, rows

VALUES: list[Value] = [
    None,
    True,
    0,
    -(2**63),
    2**70,
    1.5,
    float("inf"),
    Decimal("10.500"),
    "",
    " a text: with\\escapes,\r\na line's end, and \u20ac\U0001f600 ",
    b"",
    bytes(range(256)),
    date(2026, 11, 21),
    time(12, 0, 0, 250_000),
    datetime(2026, 11, 21, 12, 0, 0, 1),
    datetime(2026, 11, 21, 12, 0, tzinfo=UTC),
    datetime(2026, 11, 21, 12, 0, tzinfo=timezone(timedelta(hours=5, minutes=45))),
    timedelta(days=-1, microseconds=1),
    UUID("0f8fad5b-d9cb-469f-a165-708655000000"),
    frozenset({"b", "a"}),
    {"a": [1, None, {"b": "\u0000"}]},
    [1, "x", {}],
]


def test_what_a_publisher_publishes_is_applied_in_order(place: Place, sink: SqliteSink) -> None:
    queue = place.queue()
    with place.sub(queue), place.consuming(queue, sink) as running:
        publication = Publication(kind="test")
        for number in range(1, 201):
            publication.publish([write(number)], position=str(number))
        publication.flush(LONG_S)
        assert publication.confirmed_position == "200"
        until(lambda: len(applied(place.store, publication.origin)) >= 200)
        assert applied(place.store, publication.origin) == list(range(1, 201))
        assert len(rows(place.store)) == 200
    status = running.consumer.status()
    assert (status.applied, status.changes, status.dead_letters) == (200, 200, 0)
    assert status.last == {publication.origin: 200}
    assert status.lag_s is not None
    assert status.held_back == 0


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_each_kind_of_value_arrives_as_it_was(place: Place, sink: SqliteSink, value: Value) -> None:
    queue = place.queue()
    change = RowChange(table="t", action="write", key={"id": 1}, after={"value": value, "n": 1})
    place.publish(queue, [changeset(1, change)])
    with place.consuming(queue, sink):
        until(lambda: applied(place.store))
    ((key, row),) = rows(place.store)
    assert (key, row) == ({"id": 1}, {"value": value, "n": 1})
    assert type(row["value"]) is type(value)


def test_keys_arrive_whole_whatever_they_are(place: Place, sink: SqliteSink) -> None:
    """Composite keys, texts with spaces, zero and the empty text caused faults earlier."""
    queue = place.queue()
    keys: list[dict[str, Value]] = [
        {"a": 2, "b": 3},
        {"id": "hello world"},
        {"id": 0},
        {"id": ""},
        {"id": "(2, 3)"},
        {"id": b"\x00 \n"},
    ]
    changes = [RowChange(table="t", action="write", key=key, after=dict(key)) for key in keys]
    place.publish(queue, [changeset(1, *changes)])
    with place.consuming(queue, sink):
        until(lambda: applied(place.store))
    found = [key for key, _ in rows(place.store)]
    assert len(found) == len(keys)
    assert all(key in found for key in keys)


def test_a_row_with_another_key_leaves_nothing_behind(place: Place, sink: SqliteSink) -> None:
    queue = place.queue()
    moved = RowChange(
        table="t", action="update", key={"id": 2}, old_key={"id": 1}, after={"text": "moved"}
    )
    place.publish(queue, [changeset(1, write(1)), changeset(2, moved)])
    with place.consuming(queue, sink):
        until(lambda: len(applied(place.store)) == 2)
    assert rows(place.store) == [({"id": 2}, {"text": "moved"})]


def test_tables_with_names_that_begin_alike_and_schemas_are_told_apart(
    place: Place, sink: SqliteSink
) -> None:
    queue = place.queue()
    names = [("", "user"), ("", "user2"), ("one", "user"), ("two", "user")]
    changes = [
        RowChange(schema=schema, table=table, action="write", key={"id": 1}, after={"n": number})
        for number, (schema, table) in enumerate(names)
    ]
    place.publish(queue, [changeset(1, *changes)], tables=["user"])
    with place.consuming(queue, sink):
        until(lambda: applied(place.store))
    for number, name in enumerate(("user", "user2", "one.user", "two.user")):
        expected = [] if name == "user2" else [({"id": 1}, {"n": number})]
        assert rows(place.store, name) == expected


def test_split_changesets_are_applied_whole(place: Place, sink: SqliteSink) -> None:
    queue = place.queue()
    made = list(writes(1, 20, rows=30, size=50))
    place.publish(queue, made, max_body_bytes=1000)
    with place.consuming(queue, sink) as running:
        until(lambda: len(applied(place.store)) == 20)
        until(lambda: running.consumer.status().changes == 600)
    assert applied(place.store) == list(range(1, 21))
    assert len(rows(place.store)) == 600


def test_a_changeset_of_megabytes_arrives(place: Place, sink: SqliteSink) -> None:
    queue = place.queue()
    (large,) = writes(1, 1, rows=400, size=8_000)
    place.publish(queue, [large, changeset(2)], max_body_bytes=64 * 1024)
    with place.consuming(queue, sink):
        until(lambda: applied(place.store) == [1, 2])
    assert len(rows(place.store)) == 401


def test_what_is_published_twice_is_applied_once(place: Place, sink: SqliteSink) -> None:
    queue = place.queue()
    made = list(writes(1, 30, rows=3, size=200))
    again = [*made[:20], *made[10:]]
    place.publish(queue, again, max_body_bytes=500)
    with place.consuming(queue, sink) as running:
        until(lambda: len(applied(place.store)) >= 30)
        until(lambda: running.consumer.status().repeats >= 10)
    assert applied(place.store) == list(range(1, 31))


def test_a_publisher_that_splits_otherwise_after_a_restart_doubles_nothing(
    place: Place, sink: SqliteSink
) -> None:
    queue = place.queue()
    made = list(writes(1, 3, rows=20, size=50))
    place.publish(queue, made[:2], max_body_bytes=600)
    place.publish(queue, made, max_body_bytes=900)
    with place.consuming(queue, sink):
        until(lambda: len(applied(place.store)) >= 3)
    assert applied(place.store) == [1, 2, 3]
    assert len(rows(place.store)) == 60


def test_several_changesets_are_applied_in_one_transaction(place: Place, sink: SqliteSink) -> None:
    queue = place.queue()
    place.publish(queue, writes(1, 50))
    with place.consuming(queue, sink, batch=20, batch_wait_s=LONG_S) as running:
        until(lambda: len(sink.batches) >= 2)
        assert sink.batches[:2] == [20, 20]
        # The rest waits for missing changesets, and is applied at the end.
        until(lambda: running.consumer.status().held_back == 10)
    assert applied(place.store) == list(range(1, 51))


def test_a_consumer_goes_on_where_another_has_ended(place: Place, sink: SqliteSink) -> None:
    queue = place.queue()
    place.publish(queue, writes(1, 10))
    with place.consuming(queue, sink):
        until(lambda: len(applied(place.store)) == 10)
    place.publish(queue, writes(11, 20))
    with place.consuming(queue, sink):
        until(lambda: len(applied(place.store)) >= 20)
    assert applied(place.store) == list(range(1, 21))


def test_callbacks_that_fail_stop_nothing(place: Place, sink: SqliteSink) -> None:
    queue = place.queue()
    seen: list[int] = []

    def fail(changesets: object) -> None:
        seen.append(1)
        raise ValueError("a mistake of the user's")

    place.publish(queue, writes(1, 5))
    with place.consuming(queue, sink, on_applied=fail, batch=1):
        until(lambda: len(applied(place.store)) == 5)
        until(lambda: len(seen) == 5)


def test_the_first_host_may_be_dead(place: Place, sink: SqliteSink) -> None:
    queue = place.queue()
    with free_ports() as (port,):
        dead = Dead("127.0.0.1", port)
        place.publish(queue, writes(1, 5), addresses=(dead, place.broker))
        with (
            place.link(dead, place.broker) as link,
            place.consuming(queue, sink, link=link),
        ):
            until(lambda: applied(place.store) == [1, 2, 3, 4, 5])
