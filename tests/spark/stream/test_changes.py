"""Messages as rows, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from stompkit.replication.model.events import encode
from stompkit.spark.stream.changes import UNREADABLE, change_batches
from stompkit.spark.stream.columns import CHANGES, RAW, Columns, raw_batches
from stompkit.spool import Record, SpoolReader, SpoolWriter
from tests.spark.messages import BEGIN, changeset, fill, plain, records_of


def changes_of(reader: SpoolReader, start: int = 0, end: int | None = None) -> list[dict[str, Any]]:
    end = reader.head()[0] if end is None else end
    batches = change_batches(reader, 0, start, end, reader.blocks(0, start, end))
    return [row for batch in batches for row in batch.to_pylist()]


def in_blocks(records: Sequence[Record], size: int) -> list[Sequence[Record]]:
    return [records[at : at + size] for at in range(0, len(records), size)]


@pytest.mark.parametrize("columns", [RAW, CHANGES])
def test_columns_are_to_arrow_what_spark_makes_of_them(columns: Columns) -> None:
    assert to_arrow_schema(columns.spark, timezone="UTC").equals(columns.arrow)


def test_messages_are_rows_as_they_were_received(tmp_path: Path) -> None:
    reader = SpoolReader(fill(tmp_path, plain(0, 3), plain(3, 5)))
    (batch,) = raw_batches(reader, 0, 1, 5)
    assert batch.schema == RAW.arrow
    rows = batch.to_pylist()
    assert [row["_ordinal"] for row in rows] == [1, 2, 3, 4]
    assert rows[2] == {
        "_partition": 0,
        "_ordinal": 3,
        "_received": rows[2]["_received"],
        "destination": "/queue/orders",
        "message_id": "m-3",
        "event_id": "e-3",
        "content_type": "text/plain",
        "headers": [("priority", "3"), ("stompkit-origin", "origin-3")],
        "body": b"body 3",
    }
    assert (rows[2]["_received"] - BEGIN).total_seconds() == 3


def test_a_change_is_a_row_with_its_values_as_they_were_sent(tmp_path: Path) -> None:
    reader = SpoolReader(fill(tmp_path, list(records_of([changeset(1), changeset(2, changes=2)]))))
    rows = changes_of(reader)
    assert [(row["_ordinal"], row["change"], row["changes"]) for row in rows] == [
        (0, 0, 1),
        (1, 0, 2),
        (1, 1, 2),
    ]
    values = {name: rows[2].pop(name) for name in ("key", "before", "after")}
    assert {name: json.loads(text) for name, text in values.items()} == {
        "key": {"id": 201},
        "before": {"state": "new"},
        "after": {"state": "paid", "note": "größer"},
    }
    assert rows[2] == {
        "_partition": 0,
        "_ordinal": 1,
        "_received": BEGIN,
        "changeset_id": "changeset-2",
        "origin": "shop",
        "sequence": 2,
        "change": 1,
        "changes": 2,
        "operation": "update",
        "schema": "public",
        "table": "orders",
        "old_key": None,
        "source_kind": "postgresql",
        "source_position": "0/2",
        "transaction": "t-2",
        "is_snapshot": False,
        "committed": BEGIN,
        "problem": None,
    }


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "this is no changeset"),
        (b"not JSON", "this is no changeset"),
        (b'{"format": 9}', "format 9"),
        (b'{"format": 1}', "this is no changeset"),
        (encode(changeset(1)).replace(b'{"id":100}', b"5"), "no object"),
        (encode(changeset(1)).replace(b'{"id":100}', b"null"), "no object"),
        (encode(changeset(1)).replace(b'"paid"', b'"\xff"'), "utf-8"),
        (encode(changeset(1)).replace(b'"2026-11-21T12', b'"2026-13-21T12'), "month"),
        (encode(changeset(1)).replace(b'"update"', b'"upsert"'), "this is no changeset"),
        (encode(changeset(1)).replace(b'"sequence":1', b'"sequence":%d' % 2**63), "no changeset"),
    ],
)
def test_what_is_no_changeset_is_a_row_that_says_so(tmp_path: Path, body: bytes, told: str) -> None:
    poison = plain(0, 1)[0]._replace(body=body)
    good = list(records_of([changeset(1), changeset(2)]))
    rows = changes_of(SpoolReader(fill(tmp_path, [good[0], poison, good[1]])))
    assert [row["operation"] for row in rows] == ["update", UNREADABLE, "update"]
    assert [row["problem"] is None for row in rows] == [True, False, True]
    assert told in rows[1]["problem"]
    assert (rows[1]["_ordinal"], rows[1]["after"], rows[1]["key"]) == (1, None, None)


def test_messages_that_are_changesets_only_together_are_not_taken_for_any(tmp_path: Path) -> None:
    # A changeset and a half, and its rest: two documents in two messages between braces.
    first, second = (record.body for record in records_of([changeset(1), changeset(2)]))
    second = second.replace(b'"paid"', b'"}{"')
    cut = second.index(b"}{") + 1
    halves = [
        record._replace(body=body)
        for record, body in zip(plain(0, 2), [first + second[:cut], second[cut:]], strict=True)
    ]
    rows = changes_of(SpoolReader(fill(tmp_path, halves)))
    assert [row["operation"] for row in rows] == [UNREADABLE, UNREADABLE]


@pytest.mark.parametrize(
    "text", [b"2026-11-21T13:00:00+01:00", b"2026-11-21T12:00:00.0000000Z", b"2026-11-21T12:00:00"]
)
def test_a_time_is_the_same_in_whatever_form_it_was_sent(tmp_path: Path, text: bytes) -> None:
    (record,) = records_of([changeset(1)])
    body = record.body.replace(b"2026-11-21T12:00:00Z", text)
    assert text in body
    rows = changes_of(SpoolReader(fill(tmp_path, [record._replace(body=body)])))
    assert [row["committed"] for row in rows] == [BEGIN]


def test_a_changeset_in_parts_is_one_at_its_last_part(tmp_path: Path) -> None:
    parts = list(records_of([changeset(1, changes=20)], max_body_bytes=900))
    assert len(parts) > 3
    others = list(records_of([changeset(2), changeset(3)]))
    reader = SpoolReader(fill(tmp_path, [others[0], *parts, others[1]]))
    rows = changes_of(reader)
    assert [row["_ordinal"] for row in rows] == [0, *[len(parts)] * 20, len(parts) + 1]
    whole = rows[1:21]
    assert [json.loads(row["key"])["id"] for row in whole] == list(range(100, 120))
    assert [(row["change"], row["changes"]) for row in whole] == [(n, 20) for n in range(20)]


@pytest.mark.parametrize("most_whole", [32 << 20, 1])
@given(data=st.data())
def test_each_change_is_read_once_however_a_partition_is_divided(
    most_whole: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sets = [changeset(n, changes=data.draw(st.integers(1, 12))) for n in range(4)]
    records = list(records_of(sets, max_body_bytes=800))
    if data.draw(st.booleans()):
        # After a lost connection, unacknowledged messages are redelivered in another order.
        at = data.draw(st.integers(0, len(records)))
        records[at : at + 5] = data.draw(st.permutations(records[at : at + 5]))
    blocks = in_blocks(records, data.draw(st.integers(1, 5)))
    reader = SpoolReader(fill(tmp_path_factory.mktemp("spool"), *blocks))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=4)))
    bounds = [0, *cuts, len(records)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stompkit.spark.stream.parts._MOST_WHOLE", most_whole)
        rows = [row for start, end in pairwise(bounds) for row in changes_of(reader, start, end)]
    rows = [row for row in rows if row["problem"] is None]
    assert all(row["changes"] == len(sets[row["sequence"]].changes) for row in rows)
    read = sorted((row["sequence"], row["change"]) for row in rows)
    assert read == [(each.sequence, n) for each in sets for n in range(len(each.changes))]


def test_parts_that_are_not_there_are_told_with_the_last_one(tmp_path: Path) -> None:
    parts = list(records_of([changeset(1, changes=20)], max_body_bytes=900))
    rows = changes_of(SpoolReader(fill(tmp_path, [*parts[:1], *parts[2:]])))
    assert [(row["_ordinal"], row["operation"]) for row in rows] == [(len(parts) - 2, UNREADABLE)]
    assert "changeset-1" in rows[0]["problem"]
    assert rows[0]["problem"].endswith(": 2")


def large_changeset(folder: Path, parts: int, *, note: str) -> SpoolReader:
    """Return a spool with a changeset of one change in each part."""
    with SpoolWriter(folder, segment_bytes=64 << 20, sync=False) as writer:
        for number in range(1, parts + 1):
            (record,) = records_of([changeset(1)])
            body = record.body.replace(b'{"id":100}', b'{"id":%d}' % number)
            body = body.replace("größer".encode(), note.encode())
            labels = {"stompkit-part": str(number), "stompkit-parts": str(parts)}
            headers = tuple({**dict(record.headers), **labels}.items())
            name = f"changeset-1.{number}"
            writer.append([record._replace(headers=headers, body=body, event_id=name)])
    return SpoolReader(folder)


def test_a_changeset_is_read_in_parts_however_large_it_is(tmp_path: Path) -> None:
    reader = large_changeset(tmp_path, 270, note="x" * (1 << 20))
    # All parts are of one task, or the last of several tasks has the last parts only.
    for start in (0, 260):
        batches = list(change_batches(reader, 0, start, 270, reader.blocks(0, start, 270)))
        numbers = [n for batch in batches for n in batch.column("change").to_pylist()]
        assert numbers == list(range(270))
        assert all(set(batch.column("changes").to_pylist()) == {270} for batch in batches)
        assert max(batch.nbytes for batch in batches) < 8 << 20
    before = change_batches(reader, 0, 250, 260, reader.blocks(0, 250, 260))
    assert sum(batch.num_rows for batch in before) == 0


def test_a_large_changeset_with_an_invalid_part_is_one_unreadable_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompkit.spark.stream.parts._MOST_WHOLE", 1)
    parts = list(records_of([changeset(1, changes=20)], max_body_bytes=900))
    broken = parts[1]._replace(body=parts[1].body.replace(b'"key":{', b'"key":5,"x":{', 1))
    rows = changes_of(SpoolReader(fill(tmp_path, [parts[0], broken, *parts[2:]])), len(parts) - 1)
    assert [(row["_ordinal"], row["operation"]) for row in rows] == [(len(parts) - 1, UNREADABLE)]


def test_a_part_with_an_impossible_number_is_told(tmp_path: Path) -> None:
    part = next(records_of([changeset(1, changes=20)], max_body_bytes=900))
    headers = tuple((k, "x" if k == "stompkit-part" else v) for k, v in part.headers)
    rows = changes_of(SpoolReader(fill(tmp_path, [part._replace(headers=headers)])))
    assert [row["operation"] for row in rows] == [UNREADABLE]


def test_many_changes_come_in_batches_of_bounded_size(tmp_path: Path) -> None:
    large = changeset(1, changes=45_000)
    reader = SpoolReader(fill(tmp_path, list(records_of([large], max_body_bytes=1 << 30))))
    batches = list(change_batches(reader, 0, 0, 1, reader.blocks(0, 0, 1)))
    assert sum(batch.num_rows for batch in batches) == 45_000
    assert max(batch.num_rows for batch in batches) <= 20_000
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
