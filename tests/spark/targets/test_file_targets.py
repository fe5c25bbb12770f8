"""File targets, Delta tables and Parquet: as the databases, and consistent after every crash."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stompkit.replication.model.events import Changeset
from stompkit.replication.model.values import from_json
from stompkit.replication.sinks import ApplyError
from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.replication.sql import SchemaError, TablesClashError
from stompkit.spark.states import Choice
from stompkit.spark.targets import Committed, Job, StagingLostError, open_target
from stompkit.spark.targets.files import rewrite
from stompkit.spark.targets.files import target as file_target
from stompkit.spark.targets.files.target import FileTarget
from stompkit.spark.targets.parquet import ParquetTarget, files_of
from tests.effort import effort
from tests.replication.sinks.sql_targets import Target, change, schema_change
from tests.spark.change_rows import batch_of, changes_of, row_of
from tests.spark.targets.test_targets import (
    JOB,
    TABLES,
    Pipeline,
    delete,
    histories,
    rows_of,
    update,
    within_schema,
    write,
)

deltalake = pytest.importorskip("deltalake")

LETTERS = "stompkit_pipeline_dead_letters"
#: Rows of a table; columns that no batch has contained yet are missing.
Rows = list[dict[str, Any]]


class Place:
    """An empty place for tables, accessed without the pipelines."""

    def __init__(self, kind: str, folder: Path) -> None:
        """Set its kind and folder."""
        self.kind = kind
        self.folder = folder
        self.url = f"{kind}://{folder}"
        self.made: list[Pipeline] = []

    def pipeline(self, job: Job = JOB, **options: Any) -> Pipeline:
        """Return a pipeline into this place."""
        self.made.append(Pipeline(self.url, job, **{"create": True, **options}))
        return self.made[-1]

    def rows(self, table: str = "t") -> Rows:
        """Return the rows of a table as any other program reads them, sorted."""
        if self.kind == "delta":
            if not deltalake.DeltaTable.is_deltatable(str(self.folder / table)):
                return []
            found = deltalake.DeltaTable(str(self.folder / table)).to_pyarrow_table().to_pylist()
        else:
            found = [
                row
                for path in files_of(self.folder, table)
                for row in pq.read_table(path).to_pylist()
            ]
        return sorted(found, key=lambda row: str(list(row.values())))

    def table(self, table: str = "t", names: str = "id a b") -> list[tuple[Any, ...]]:
        """Return some columns of them, with NULL for missing ones."""
        found = [tuple(row.get(name) for name in names.split()) for row in self.rows(table)]
        return sorted(found, key=str)


@pytest.fixture(params=["delta", "parquet"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place of each kind."""
    place = Place(request.param, tmp_path / "place")
    yield place
    for each in place.made:
        each.target.close()


# The tests of the databases.


def test_a_batch_is_applied_and_the_fence_moved(place: Place) -> None:
    rows = rows_of(write(1, a="x", b=1), write(2, a="y"), update(1, b=2), delete(2), write(3))
    made = place.pipeline()
    assert made.fence() == {}
    assert made.run(rows) == Committed(written=2, deleted=1)
    assert place.table() == [(1, "x", 2), (3, None, None)]
    assert made.fence() == {0: 4}
    assert place.pipeline().run(rows) == Committed()
    assert place.pipeline(replace(JOB, pipeline="other")).fence() == {}


def test_columns_that_no_change_tells_stay(place: Place) -> None:
    made = place.pipeline()
    made.run(rows_of(write(1, a="own", b=1), write(2, a="old", b=1)))
    made.run(rows_of(update(1, b=2), delete(2), write(2, b=3), first=2))
    assert place.table() == [(1, "own", 2), (2, None, 3)]


def test_partitions_have_fences_of_their_own(place: Place) -> None:
    made = place.pipeline()
    made.run([row_of(write(1), 7, partition=2)])
    made.run([row_of(write(2), 3, partition=0), row_of(write(3), 7, partition=2)])
    assert [row[0] for row in place.table()] == [1, 2]
    assert made.fence() == {0: 3, 2: 7}


def test_keys_change_and_what_is_not_told_goes_along(place: Place) -> None:
    made = place.pipeline()
    made.run(rows_of(write(1, a="one", b=1), write(2, a="two", b=2), write(3, a="three", b=3)))
    moved = change("update", {"id": 5}, after={"b": 9}, old_key={"id": 1})
    swapped = [
        row_of(change("update", {"id": 3}, after={"a": "2"}, old_key={"id": 2}), 6, 0),
        row_of(change("update", {"id": 2}, after={"a": "3"}, old_key={"id": 3}), 6, 1),
    ]
    made.run([*rows_of(moved, update(5, b=10), write(1, a="new"), first=3), *swapped])
    assert place.table() == [(1, "new", None), (2, "3", 2), (3, "2", 3), (5, "one", 10)]


@pytest.mark.parametrize("is_alone", [False, True])
def test_rows_that_exchange_keys_are_all_there_whatever_they_tell(
    place: Place, *, is_alone: bool
) -> None:
    made = place.pipeline(replace(JOB, dead_letters=True))
    made.run(rows_of(write(2, a="two", b=2), write(3, a="three", b=3)))
    one = change("update", {"id": 3}, after={"a": "two", "b": 2}, old_key={"id": 2})
    other = change("update", {"id": 2}, after={"a": "three"}, old_key={"id": 3})
    rows = [row_of(one, 6, 0), row_of(other, 6, 1)]
    if is_alone:
        # An inapplicable change makes the driver apply all changes one by one.
        rows.append(row_of(write(9, b="many"), 7))
    assert made.run(rows).dead_letters == int(is_alone)
    assert place.table() == [(2, "three", 2), (3, "two", 2)]
    rows = [
        row_of(one, 8, 0),
        row_of(change("update", {"id": 2}, after={"b": "?"}, old_key={"id": 3}), 8, 1),
    ]
    assert made.run(rows).dead_letters == 2
    assert place.table() == [(2, "three", 2), (3, "two", 2)]


def test_all_rows_go_at_once(place: Place) -> None:
    made = place.pipeline()
    made.run(rows_of(write(1, a="x", b=1), write(2)))
    made.run(rows_of(write(3), change("truncate", {}), update(1, b=2), first=2))
    assert place.table() == [(1, None, 2)]


@settings(
    max_examples=effort(4, 200),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(histories(), st.data())
@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_tables_end_as_those_of_a_database(
    kind: str,
    tmp_path_factory: pytest.TempPathFactory,
    changesets: list[Changeset],
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("place")
    place = Place(kind, folder / "files")
    database = Target("sqlite", f"sqlite:///{folder / 'same.sqlite'}")
    # Files have no order of columns, and no rows without a key.
    names = {name: columns for name, columns in TABLES.items() if name != "loose"}
    database.execute(*[f"CREATE TABLE {name} ({names[name]})" for name in names])
    job = replace(JOB, choice=Choice(tables=frozenset(names)))
    made, same = place.pipeline(job), Pipeline(database.url, job)
    at = 0
    while at < len(changesets):
        # Some of it repeated, some of it new.
        begin = data.draw(st.integers(0, at), label="begin")
        end = data.draw(st.integers(at + 1, len(changesets)), label="end")
        for each in (made, same):
            each.run(changes_of(changesets[begin:end]), data.draw(st.integers(1, 3), label="tasks"))
        at = end
    for name in names:
        columns = "x y a b" if name == "pairs" else "id a b"
        assert place.table(name, columns) == sorted(database.table(name), key=str)
    same.target.close()
    database.engine.dispose()


def test_values_are_stored_as_what_they_are(place: Place) -> None:
    told: dict[str, Any] = {
        "n": {"$decimal": "12345678.90123"},
        "d": {"$date": "2026-11-22"},
        "w": {"$datetime": "2026-11-22T10:20:30.123456"},
        "z": {"$datetime": "2026-11-22T10:20:30+01:00"},
        "o": {"$bytes": "AAH/"},
        "j": {"$json": {"a": [1, None]}},
        "f": 0.25,
        "y": True,
        "u": {"$uuid": "0f8fad5b-d9cb-469f-a165-70867728950e"},
    }
    values = {name: from_json(each) for name, each in told.items()}
    made = place.pipeline()
    made.run(rows_of(write(1, **values), write(2, **dict.fromkeys(told))))
    made.run(rows_of(write(2, more=1), first=2))
    (row, other) = place.rows()
    assert row["n"] == Decimal("12345678.90123")
    assert (row["d"], row["w"]) == (date(2026, 11, 22), datetime(2026, 11, 22, 10, 20, 30, 123456))
    assert row["z"] == datetime(2026, 11, 22, 9, 20, 30, tzinfo=UTC)
    assert (row["o"], row["j"], row["f"], row["y"]) == (b"\0\1\xff", '{"a":[1,null]}', 0.25, True)
    assert row["u"] == "0f8fad5b-d9cb-469f-a165-70867728950e"
    assert {name: value for name, value in other.items() if value is not None} == {
        "id": 2,
        "more": 1,
    }


def test_many_rows_and_many_batches_are_few_files(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "MOST_ROWS", 100)
    made = place.pipeline()
    made.run(rows_of(*[write(each, b=each) for each in range(250)]))
    for batch in range(12):
        first = 250 + 3 * batch
        new = [write(number, b=0) for number in range(first, first + 3)]
        made.run(rows_of(*new, first=first))
    before = files_in(place)
    made.run(rows_of(update(10, b=-1), first=300))
    assert [row[2] for row in place.table() if row[0] == 10] == [-1]
    assert len(place.table()) == 250 + 36
    # Only the file with the row is replaced.
    assert len(before & files_in(place)) == len(before) - 1
    assert len(before) < 12


def files_in(place: Place) -> set[str]:
    if place.kind == "delta":
        return set(deltalake.DeltaTable(str(place.folder / "t")).file_uris())
    return set(files_of(place.folder, "t"))


# Missing tables and columns of the target.


def test_columns_that_changes_bring_are_added(place: Place) -> None:
    made = place.pipeline()
    told = schema_change({"name": "id", "type": "int", "key": True}, {"name": "a", "type": "text"})
    made.run(rows_of(told, write(1, a="x")))
    when = datetime(2026, 11, 22, 10)
    made.run(rows_of(write(2, b=2, w=when), first=2))
    assert place.table("t", "id a b w") == [(1, "x", None, None), (2, None, 2, when)]
    with pytest.raises(SchemaError, match=r"lacks c \(int\)\. To go on, open .*evolve=True"):
        place.pipeline(evolve=False).run(rows_of(write(1, c=1), first=3))


def test_tables_are_made_of_the_types_that_the_source_tells(place: Place) -> None:
    told = schema_change(
        {"name": "id", "type": "int", "key": True},
        {"name": "price", "type": "decimal", "precision": 12, "scale": 2},
        {"name": "at", "type": "datetimez"},
    )
    made = place.pipeline()
    made.run(rows_of(told))
    assert isinstance(made.target, FileTarget)
    held = made.target._open("t")
    assert held is not None
    found = {each.name: each.type for each in held.schema}
    expected = (pa.int64(), pa.decimal128(12, 2), pa.timestamp("us", "UTC"))
    assert tuple(found[name] for name in ("id", "price", "at")) == expected
    made.run(rows_of(write(1, price=7), first=1))
    assert place.table("t", "id price at") == [(1, Decimal(7), None)]


def test_a_table_that_is_missing_is_made_on_demand_only(place: Place) -> None:
    with pytest.raises(SchemaError, match=r"no table 't'\. To go on"):
        place.pipeline(create=False).run(rows_of(write(1)))


def test_a_table_that_is_gone_is_made_again_for_all_of_its_rows_only(tmp_path: Path) -> None:
    place = Place("delta", tmp_path)
    place.pipeline().run(rows_of(write(1, a="x"), write(1, "other")))
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(SchemaError, match="has lost the table 't'"):
        place.pipeline().run(rows_of(write(2, "other"), write(2, a="y"), first=2))
    assert place.rows("t") == []
    assert len(place.rows("other")) == 1
    place.pipeline().run(rows_of(change("truncate", {}), write(2, a="y"), first=2))
    assert place.rows() == [{"id": 2, "a": "y"}]


def test_a_second_table_of_a_name_is_refused_at_once_and_in_a_later_run(place: Place) -> None:
    one, other = (within_schema(name, write(1, a=name)) for name in ("crm", "shop"))
    clash = "the tables crm.t and shop.t would both be"
    with pytest.raises(TablesClashError, match=clash):
        place.pipeline().run(rows_of(one, other))
    place.pipeline().run(rows_of(one))
    for job in (JOB, replace(JOB, spool="another"), replace(JOB, dead_letters=True)):
        with pytest.raises(TablesClashError, match=clash):
            place.pipeline(job).run(rows_of(other, first=1))
    chosen = replace(JOB, choice=Choice(tables=frozenset({"crm.t"})))
    later = within_schema("crm", update(1, b=5))
    place.pipeline(chosen).run(rows_of(other, later, first=1))
    assert place.table() == [(1, "crm", 5)]
    place.pipeline(table_map={"shop.t": "t"}).run(rows_of(other, first=3))
    assert place.table() == [(1, "shop", 5)]


def test_a_table_whose_changes_are_refused_owns_nothing(place: Place) -> None:
    place.pipeline().run(rows_of(schema_change({"name": "id", "type": "int", "key": True})))
    wrong = within_schema("crm", change("write", {"id": "x"}))
    place.pipeline(replace(JOB, dead_letters=True)).run(rows_of(wrong, first=1))
    place.pipeline().run(rows_of(within_schema("shop", write(1)), first=2))
    assert [row["id"] for row in place.rows()] == [1]


def test_what_files_are_no_good_for_is_refused(place: Place) -> None:
    for job in (replace(JOB, scd_type=2), replace(JOB, sequence_by="sequence")):
        with pytest.raises(ApplyError, match="To go on, leave these out"):
            place.pipeline(job).run(rows_of(write(1)))
    made = place.pipeline()
    made.run(rows_of(write(1, a="x", b=1)))
    loose = change("delete", {}, before={"a": "x"})
    with pytest.raises(ApplyError, match="name the key in `keys`"):
        made.run(rows_of(loose, first=1))
    with pytest.raises(ApplyError, match=r"message 1 .*column 'b'"):
        made.run(rows_of(write(2, b="many"), first=1))
    with pytest.raises(ApplyError, match=r"column 'b'.*int64"):
        made.run(rows_of(write(2, b=2**63), first=1))
    assert made.fence() == {0: 0}


def test_change_is_named_whose_new_row_lacks_what_a_table_of_others_demands(
    tmp_path: Path,
) -> None:
    place = Place("delta", tmp_path / "place")
    fields = [pa.field("id", pa.int64()), pa.field("a", pa.string(), nullable=False)]
    there = pa.Table.from_pylist([{"id": 1, "a": "x"}], pa.schema([*fields, ("b", pa.int64())]))
    deltalake.write_deltalake(str(place.folder / "t"), there)
    made = place.pipeline()
    try:
        with pytest.raises(ApplyError, match=r'message 0 .*{"id":2}.*column \'a\', which is never'):
            made.run(rows_of(write(2, b=7)))
        lenient = place.pipeline(replace(JOB, dead_letters=True))
        rows = [
            *(write(2, b=7), update(1, b=8), write(2, a="y"), update(2, b=9), delete(1)),
            *(update(1, b=3), write(3, a="z"), change("truncate", {}), update(3, b=1)),
            change("update", {"id": 5}, after={"b": 1}, old_key={"id": 4}),
            write(4, a="four"),
            change("update", {"id": 5}, after={"b": 2}, old_key={"id": 4}),
        ]
        assert lenient.run(rows_of(*rows)).dead_letters == 4
        assert isinstance(lenient.target, FileTarget)
        letters = lenient.target.dead_letters("p", "s")
        assert [row["ordinal"] for row in letters] == [0, 5, 8, 9]
        assert place.table() == [(5, "four", 2)]
    finally:
        for each in place.made:
            each.target.close()


def test_dead_letters_are_a_table_too(place: Place) -> None:
    made = place.pipeline(replace(JOB, dead_letters=True))
    unreadable = {**row_of(write(9), 3), "operation": "unreadable", "table": None, "problem": "?"}
    made.run(rows_of(write(1, a="x", b=1)))
    done = made.run([*rows_of(write(2, b="many"), update(1, b=2), first=1), unreadable])
    assert (done.written, done.dead_letters) == (1, 2)
    assert place.table() == [(1, "x", 2)]
    assert isinstance(made.target, FileTarget)
    letters = made.target.dead_letters("p", "s")
    assert letters == place.rows(LETTERS)
    assert [(row["ordinal"], row["table_name"]) for row in letters] == [(1, "t"), (3, "")]
    assert "column 'b'" in letters[0]["problem"]
    assert made.fence() == {0: 3}


def test_a_change_that_is_refused_again_is_one_dead_letter(tmp_path: Path) -> None:
    place = Place("parquet", tmp_path)
    job = replace(JOB, dead_letters=True)
    place.pipeline(job).run(rows_of(write(1)))
    rows = rows_of(change("write", {"id": "x"}, after={"id": "x"}), first=1)
    place.pipeline(job).run(rows)
    letters = place.rows(LETTERS)
    manifest = tmp_path / "manifest.json"
    told = msgspec.json.decode(manifest.read_bytes())
    manifest.write_bytes(msgspec.json.encode({**told, "fences": {}}))
    place.pipeline(job).run(rows)
    assert len(letters) == 1
    assert place.rows(LETTERS) == letters


def test_other_urls_are_refused() -> None:
    for url in ("delta://", "delta:///", "parquet://", "parquet:folder", "delta://folder"):
        with pytest.raises(ValueError, match="has to be like"):
            open_target(url)
    open_target("delta+s3://bucket/path", storage_options={"AWS_REGION": "eu-central-1"})


def test_delta_tables_that_others_have_to_write_to_are_left_alone(tmp_path: Path) -> None:
    place = Place("delta", tmp_path)
    schema = deltalake.Schema.from_arrow(pa.schema([("id", pa.int64()), ("a", pa.string())]))
    kinds: tuple[dict[str, Any], ...] = (
        {"configuration": {"delta.enableChangeDataFeed": "true"}},
        {"configuration": {"delta.appendOnly": "true"}},
        {"partition_by": ["a"]},
    )
    for number, options in enumerate(kinds):
        table = f"t{number}"
        deltalake.DeltaTable.create(str(tmp_path / table), schema, **options)
        with pytest.raises(SchemaError, match="To go on, make a table without that"):
            place.pipeline().run(rows_of(write(1, table, a="x")))


def test_delta_tables_of_others_are_written_to(tmp_path: Path) -> None:
    place = Place("delta", tmp_path)
    old = pa.table({"id": pa.array([1, 2], pa.int32()), "a": ["x", "y"]})
    deltalake.write_deltalake(str(tmp_path / "t"), old)
    made = place.pipeline()
    made.run(rows_of(update(2, a="z"), write(3, b=1)))
    assert place.table() == [(1, "x", None), (2, "z", None), (3, None, 1)]
    with pytest.raises(ApplyError, match="does not fit into int32"):
        made.run(rows_of(write(2**31), first=2))


def test_times_of_any_year_that_spark_writes_by_default_stay(tmp_path: Path) -> None:
    """Spark's usual timestamps have 96 bits, and reach further than nanoseconds of 64."""
    place = Place("delta", tmp_path)
    far = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    old = pa.table({"id": [1, 2], "at": pa.array([far, far], pa.timestamp("us", "UTC"))})
    deltalake.write_deltalake(str(tmp_path / "t"), old)
    [file] = deltalake.DeltaTable(str(tmp_path / "t")).file_uris()
    pq.write_table(old, file, use_deprecated_int96_timestamps=True)
    place.pipeline().run(rows_of(update(2, a="z")))
    assert place.table("t", "id a at") == [(1, None, far), (2, "z", far)]


def test_numbers_of_single_precision_are_taken_as_a_source_tells_them(tmp_path: Path) -> None:
    place = Place("delta", tmp_path)
    schema = pa.schema([("id", pa.int64()), ("f", pa.float32())])
    deltalake.DeltaTable.create(str(tmp_path / "t"), deltalake.Schema.from_arrow(schema))
    made = place.pipeline()
    # PostgreSQL and MariaDB write 0.1 for the nearest REAL.
    made.run(rows_of(write(1, f=0.1), write(2, f=1.5)))
    assert [row["f"] for row in place.rows()] == [pytest.approx(0.1), 1.5]
    with pytest.raises(ApplyError, match="more digits than it holds"):
        made.run(rows_of(write(3, f=0.123456789012345), first=2))


def test_number_of_any_length_in_json_is_refused_alone(place: Place) -> None:
    made = place.pipeline(replace(JOB, dead_letters=True))
    made.run(rows_of(write(1, b=1)))
    row = {**row_of(write(2, b=7), 1), "after": '{"id":2,"b":9223372036854775808}'}
    done = made.run([row, row_of(write(3, b=3), 2)])
    assert (done.written, done.dead_letters) == (1, 1)
    assert place.table() == [(1, None, 1), (3, None, 3)]


@pytest.mark.parametrize("name", ["ж" * 60, "a" * 255])
def test_tables_have_names_of_any_length(name: str, place: Place) -> None:
    for number in range(2):
        made = place.pipeline()
        made.run(rows_of(write(number, name, b=1), first=number))
    if place.kind == "delta":
        [folder] = place.folder.glob("[=a]*")
        assert len(folder.name) <= 255
        assert len(deltalake.DeltaTable(str(folder)).to_pyarrow_table()) == 2
    else:
        assert [row[0] for row in place.table(name)] == [0, 1]


def test_delta_tables_list_the_features_that_they_have(tmp_path: Path) -> None:
    """Spark's Delta refuses others; earlier versions have made such tables."""
    place = Place("delta", tmp_path / "place")
    when = datetime(2026, 11, 22, 10)

    def features(table: str) -> set[str]:
        found = deltalake.DeltaTable(str(place.folder / table)).protocol()
        return set(found.writer_features or ())

    field = deltalake.Field(
        "id", "timestamp_ntz", nullable=False, metadata={"stompkit.key": "true"}
    )
    (place.folder / "old").mkdir(parents=True)
    deltalake.DeltaTable.create(str(place.folder / "old"), deltalake.Schema([field]))
    assert features("old") == {"timestampNtz"}
    made = place.pipeline()
    with closing(made.target):
        written = [
            change("write", {"id": when}, "old", after={"id": when}),
            change("write", {"id": when}, "new", after={"id": when}),
            change("write", {"id": 1}, "later", after={"id": 1}),
        ]
        made.run(rows_of(*written))
        assert features("later") == set()
        made.run(rows_of(change("write", {"id": 1}, "later", after={"id": 1, "at": when}), first=3))
    for table in ("old", "new", "later"):
        assert features(table) == {"timestampNtz", "invariants"}
        assert len(place.rows(table)) == 1


def test_delta_files_are_found_whatever_others_round_in_their_statistics(tmp_path: Path) -> None:
    place = Place("delta", tmp_path)
    when = datetime(2026, 11, 22, 10, 0, 0, 999_999, tzinfo=UTC)
    old = pa.table({"w": pa.array([when], pa.timestamp("us", "UTC")), "a": ["x"]})
    deltalake.write_deltalake(str(tmp_path / "t"), old)
    place.pipeline().run(rows_of(change("update", {"w": when}, after={"a": "y"})))
    assert place.rows() == [{"w": when, "a": "y"}]


def test_keys_of_moves_may_tell_their_columns_in_any_order(place: Place) -> None:
    made = place.pipeline()
    keys: list[dict[str, Any]] = [{"x": 1, "y": 10}, {"x": 2, "y": 20}]
    made.run(rows_of(*[change("write", key, after={**key, "a": "old", "b": 0}) for key in keys]))
    one = change("update", {"x": 1, "y": 11}, after={"a": "1"}, old_key=keys[0])
    other = change("update", {"y": 21, "x": 2}, after={"a": "2"}, old_key={"y": 20, "x": 2})
    made.run(rows_of(one, other, first=2))
    expected = [(1, 11, "1", 0), (2, 21, "2", 0)]
    assert place.table("t", "x y a b") == expected
    # The same within one message.
    back = [
        row_of(change("update", keys[0], after={}, old_key={"x": 1, "y": 11}), 4, 0),
        row_of(change("update", keys[1], after={}, old_key={"y": 21, "x": 2}), 4, 1),
    ]
    made.run(back)
    assert place.table("t", "x y a b") == [(1, 10, "1", 0), (2, 20, "2", 0)]


def test_what_the_store_fails_at_may_pass(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    made = place.pipeline()
    made.run(rows_of(write(1, a="x")))
    for path in (place.folder / "t").glob("*.parquet"):
        path.rename(path.with_suffix(".away"))
    moved = change("update", {"id": 5}, after={}, old_key={"id": 1})
    with pytest.raises(SinkUnavailableError):
        made.run(rows_of(moved, first=1))
    for path in (place.folder / "t").glob("*.away"):
        path.rename(path.with_suffix(".parquet"))
    made.run(rows_of(moved, first=1))
    assert place.table() == [(5, "x", None)]

    def fail(*_: object, **__: object) -> None:
        if place.kind == "delta":
            raise deltalake.exceptions.CommitFailedError("somebody else has committed")
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        if place.kind == "delta":
            patch.setattr(deltalake.table.TableAlterer, "add_columns", fail)
            patch.setattr(deltalake.DeltaTable, "create", fail)
        else:
            patch.setattr(os, "fsync", fail)
        for row in (write(6, b=1), write(1, "u")):
            with pytest.raises(SinkUnavailableError):
                made.run(rows_of(row, first=2))
        if place.kind == "delta":
            place.folder = place.folder.with_name("other")
            place.url = f"delta://{place.folder}"
            with pytest.raises(SinkUnavailableError):
                place.pipeline()


# Crashes.


def test_a_dead_letter_that_comes_after_a_crash_is_written_too(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = replace(JOB, dead_letters=True)
    place.pipeline(job).run(rows_of(write(1, b=1), write(1, "u", b=1)))
    rows = rows_of(write(2, b="many"), write(3, b=3), write(2, "u", b="many"), first=2)
    with monkeypatch.context() as patch:
        _crash_at(patch, place, 2)
        with pytest.raises(Crash):
            place.pipeline(replace(job, choice=Choice(tables=frozenset("t")))).run(rows)
    made = place.pipeline(job)
    assert made.run(rows).dead_letters == 2
    assert [row["ordinal"] for row in place.rows(LETTERS)] == [2, 4]
    assert place.table() == [(1, None, 1), (3, None, 3)]


def test_two_drivers_commit_once(place: Place) -> None:
    place.pipeline().run(rows_of(write(0, b=0)))
    rows = rows_of(write(1, b=1), first=1)
    one, other = place.pipeline(), place.pipeline()
    jobs = [one.begin(), other.begin()]
    parts = [one.stage(rows, jobs[0]), other.stage(rows, jobs[1])]
    assert one.target.commit(parts[0], jobs[0]) is not None
    assert other.target.commit(parts[1], jobs[1]) is None
    assert one.target.apply([batch_of(rows)], jobs[0]) is None
    assert place.table() == [(0, None, 0), (1, None, 1)]


class Crash(BaseException):
    """Ends a process in the middle of an action."""


def _crash_at(monkeypatch: pytest.MonkeyPatch, place: Place, number: int) -> list[int]:
    """Crash before the step of that number; steps are the externally visible actions."""
    count = [0]

    def between(*_: object) -> None:
        count[0] += 1
        if count[0] - 1 == number:
            raise Crash

    def wrap(kind: Any, name: str) -> None:
        real = getattr(kind, name)

        def do(*args: Any, **named: Any) -> Any:
            between()
            return real(*args, **named)

        monkeypatch.setattr(kind, name, do)

    # A crash after one step equals one before the next, or at the end.
    wrap(pq.ParquetWriter, "close")
    if place.kind == "delta":
        wrap(deltalake.DeltaTable, "create_write_transaction")
    else:
        wrap(Path, "replace")
        wrap(Path, "unlink")
    return count


def test_a_crash_anywhere_loses_nothing_and_does_nothing_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = replace(JOB, dead_letters=True)
    rows = rows_of(
        write(1, "t", a="x", b=1),
        write(1, "u", b=1),
        write(2, "t", b="many"),
        update(1, "t", b=2),
        change("update", {"id": 7}, "u", after={"b": 5}, old_key={"id": 1}),
        write(3, "t", b="?"),
        delete(1, "t"),
        update(7, "u", b=6),
    )
    crashes = 0
    # Other steps are covered: every batch removes the files that the one before replaced.
    options = {"keep_s": 0.0} if place.kind == "parquet" else {}
    for step in range(100):
        place.folder = place.folder.with_name(f"place-{step}")
        place.url = f"{place.kind}://{place.folder}"
        place.pipeline(job, **options).run(rows_of(write(9, "t", b=9), write(9, "u", b=9)))
        later = [{**row, "_ordinal": row["_ordinal"] + 2} for row in rows]
        with monkeypatch.context() as patch:
            count = _crash_at(patch, place, step)
            try:
                place.pipeline(job, **options).run(later[:5])
            except Crash:
                crashes += 1
        assert count[0] > 0
        # The restarted job uses other batches: a smaller one, and one with all of it.
        place.pipeline(job, **options).run(later[:4])
        place.pipeline(job, **options).run(later)
        assert place.table("t") == [(9, None, 9)]
        assert place.table("u") == [(7, None, 6), (9, None, 9)]
        assert [row["ordinal"] for row in place.rows(LETTERS)] == [4, 7]
        if count[0] <= step:
            break
    assert crashes == step >= 5


_FOREVER = """
import sys
from stompkit.spark.targets import Job
from tests.spark.targets.test_file_targets import kill_batches
kill_batches(sys.argv[1])
"""


#: Number of messages that each batch adds.
_KILL_BATCH: Final = 5


def _kill_rows(first: int, end: int) -> Rows:
    """Return rows that are written often: to both tables, in one batch."""
    return rows_of(
        *[write(n // 2 % 7, "tu"[n % 2], b=n, a=f"a{n}") for n in range(first, end)], first=first
    )


def _kill_table(table: str, count: int) -> list[tuple[int, str, int]]:
    """Return the rows of a table after the first messages."""
    found = {n // 2 % 7: (n // 2 % 7, f"a{n}", n) for n in range(count) if "tu"[n % 2] == table}
    return sorted(found.values(), key=str)


def kill_batches(url: str) -> None:
    """Apply batches without end; print a line for each."""
    made = Pipeline(url, JOB, create=True)
    while True:
        first = made.fence().get(0, -1) + 1
        made.run(_kill_rows(max(first - 3, 0), first + _KILL_BATCH))
        print(first, flush=True)


def test_a_process_that_is_killed_leaves_whole_batches(place: Place) -> None:
    for _ in range(effort(1, 25)):
        process = subprocess.Popen(
            [sys.executable, "-c", _FOREVER, place.url],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout is not None
        for _ in range(4):
            assert process.stdout.readline()
        # Somewhere in the next batch.
        time.sleep(int.from_bytes(os.urandom(1)) / 5000)
        process.send_signal(signal.SIGKILL)
        process.stdout.close()
        process.wait(30)
        count = place.pipeline().fence()[0] + 1
        assert count % _KILL_BATCH == 0
        # The tables of a batch are committed one after the other, before the fence moves.
        for table in "tu":
            after = [_kill_table(table, count + more) for more in (0, _KILL_BATCH)]
            assert place.table(table) in after
    place.pipeline().run(_kill_rows(count - 9, count + 3))
    for table in "tu":
        assert place.table(table) == _kill_table(table, count + 3)


# Files.


def test_files_that_were_replaced_stay_for_a_while(tmp_path: Path) -> None:
    place = Place("parquet", tmp_path)
    made = place.pipeline(keep_s=3600.0)
    made.run(rows_of(write(1, b=1)))
    (old,) = files_of(tmp_path, "t")
    made.run(rows_of(update(1, b=2), first=1))
    assert pq.read_table(old).to_pylist() == [{"id": 1, "b": 1}]
    made = place.pipeline(keep_s=0.0)
    made.run(rows_of(update(1, b=3), first=2))
    assert not Path(old).exists()
    assert place.table() == [(1, None, 3)]


def test_files_that_a_crash_has_left_are_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompkit.spark.targets.parquet._SWEEP", 1)
    place = Place("parquet", tmp_path)
    made = place.pipeline()
    made.run(rows_of(write(1, b=1)))
    left = tmp_path / "t" / "left.parquet"
    left.write_bytes(b"half")
    made.run(rows_of(write(2, b=1), first=1))
    assert left.exists(), "somebody may be about to commit it"
    os.utime(left, (0, 0))
    made.run(rows_of(write(3, b=1), first=2))
    assert not left.exists()
    assert len(place.table()) == 3
    assert isinstance(made.target, ParquetTarget)


def test_rows_do_not_pass_through_spark(place: Place) -> None:
    made = place.pipeline()
    made.run(rows_of(write(1, a="x")))
    rows = rows_of(*(write(number, a=str(number) * 30_000) for number in range(10, 60)), first=1)
    job = replace(JOB, fence=made.fence())
    parts = list(made.target.stage([batch_of(rows)], job))
    assert sum(len(part.dump()) for part in parts) < 10_000
    assert made.target.commit(parts, job) == Committed(written=50)
    expected = {1: "x", **{number: str(number) * 30_000 for number in range(10, 60)}}
    assert {row[0]: row[1] for row in place.table()} == expected
    # The work is removed with its commit.
    with pytest.raises(StagingLostError, match="is lost"):
        made.target.commit(parts, replace(JOB, fence=made.fence()))


def test_batch_of_any_size_is_rewritten_in_steps(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_target, "MOST_BYTES", 1)
    made = place.pipeline()
    made.run(rows_of(*(write(number, a="old", b=1) for number in range(20))))
    before = files_in(place)
    job = replace(JOB, fence=made.fence())
    tasks = [
        rows_of(*(update(number, b=2) for number in range(10)), delete(15), first=20),
        rows_of(*(update(number, a="new") for number in range(5)), write(15, b=3), first=40),
        rows_of(*(delete(number) for number in range(3)), write(30), first=60),
    ]
    parts = [part for rows in tasks for part in made.target.stage([batch_of(rows)], job)]
    done = made.target.commit(parts, job)
    assert done == Committed(written=17, deleted=4)
    expected: dict[int, tuple[Any, ...]] = {
        number: ("old", 2 if number < 10 else 1) for number in range(3, 20)
    }
    expected |= {3: ("new", 2), 4: ("new", 2), 15: (None, 3), 30: (None, None)}
    assert {row[0]: row[1:] for row in place.table()} == expected
    assert made.fence() == {0: 63}
    # Besides the files of both batches there are none, such as those between two steps.
    there = {path.name for path in (place.folder / "t").glob("*.parquet")}
    assert there == {Path(path).name for path in before | files_in(place)}
