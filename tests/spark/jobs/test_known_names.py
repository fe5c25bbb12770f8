"""Misspelt names of tables and columns in the file of a pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from stompkit._commands.pipeline.inspection import check
from stompkit.replication.model.events import RowChange, Source, make_changeset
from stompkit.spark.jobs import JobName, Pipeline, PipelineError, load
from stompkit.spark.jobs.rebuild import rebuild
from stompkit.spark.names import NamesFound, dump
from stompkit.spark.names import load as load_names
from stompkit.spool import Record, SpoolReader
from stompkit.spool.retention import retain
from tests.spark.change_rows import batch_of, row_of
from tests.spark.messages import BEGIN, fill, records_of

NO = "no change so far has a"
BY_TASKS = """
[apply]
tables = ["order", "shop.customer", "shop.orders", "cust*"]
column-list = ["status", "state"]
except-column-list = ["emial"]
"""
BY_DRIVER = """
[apply]
tables = ["shop.orders", "customers", "invoice"]
keys = {order = ["id"], customers = ["id"]}
sequence-by = "id"
"""
RIGHT = """
[apply]
tables = ["shop.orders", "customers"]
keys = {orders = ["id"], "shop.customers" = ["id"]}
except-column-list = ["email"]
"""


def messages(first: int, end: int, *tables: str) -> list[Record]:
    """Return a changeset for each number, with a row of each table."""

    def rows(number: int) -> Iterable[RowChange]:
        for table in tables:
            row = {"id": number, "state": "new", "email": "a@b"}
            yield RowChange(schema="shop", table=table, action="write", key={"id": 1}, after=row)

    return list(
        records_of(
            make_changeset(
                "shop",
                number,
                list(rows(number)),
                Source(kind="postgresql", position=f"{number}", transaction=f"t-{number}"),
                id=f"c-{number}",
                timestamp=BEGIN,
            )
            for number in range(first, end)
        )
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.toml"


def describe(file: Path, more: str, target: str = "", events: str = "") -> None:
    folder = file.parent
    file.write_text(f"""
name = "shop"
state-dir = "{folder}/state"
[source]
spool = "{folder}/spool"
[target]
url = "sqlite:///{folder}/copy.sqlite"
create = true
{target}
[events]
path = "{folder}/events"
{events}
{more}
""")


def warnings(
    file: Path, job: JobName, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> list[str]:
    """Run a job until it has read the spool; return what it warns of."""
    caplog.clear()
    Pipeline(load(file), job, once=True, spark=spark).run()
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            BY_TASKS,
            [
                f"tables in [apply]: {NO} table 'order'; did you mean orders?",
                f"tables in [apply]: {NO} table 'shop.customer'; did you mean shop.customers?",
                f"tables in [apply]: {NO} table 'cust*'; it is a name here, not a pattern",
                f"column-list in [apply]: {NO} column 'status'; did you mean state?",
                f"except-column-list in [apply], which excludes nothing: {NO} column 'emial';"
                " did you mean email?",
            ],
        ),
        (
            BY_DRIVER,
            [
                f"tables in [apply]: {NO} table 'invoice'",
                f"keys in [apply]: {NO} table 'order'; did you mean orders?",
            ],
        ),
        (RIGHT, []),
    ],
)
def test_names_without_a_change_are_reported(
    spark: SparkSession,
    file: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    more: str,
    expected: list[str],
) -> None:
    fill(file.parent / "spool", messages(1, 5, "orders"), messages(5, 9, "customers"))
    describe(file, more)
    assert warnings(file, "replicate", spark, caplog) == expected
    assert check(file) == 0
    reported = capsys.readouterr().err.splitlines()
    assert [line for line in reported if NO in line] == [
        f"{file}: replicate: {warning}" for warning in expected
    ]


def test_tables_of_an_event_store_and_mapped_names_are_reported(
    spark: SparkSession, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(file.parent / "spool", messages(1, 5, "orders"))
    describe(file, "", 'table-map = {order = "o"}\nschema-map = {shpo = "", shop = ""}')
    assert warnings(file, "replicate", spark, caplog) == [
        f"schema-map in [target]: {NO} schema 'shpo'; did you mean shop?",
        f"table-map in [target]: {NO} table 'order'; did you mean orders?",
    ]
    describe(file, "", events='tables = ["order", "shop.orders"]')
    assert warnings(file, "events", spark, caplog) == [
        f"tables in [events]: {NO} table 'order'; did you mean orders?"
    ]


def test_tables_of_former_runs_are_not_reported(
    spark: SparkSession, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A table that changes rarely is no mistake."""
    spool = fill(file.parent / "spool", messages(1, 2, "orders", "rare"))
    describe(file, '[apply]\ntables = ["orders", "rare", "none"]')
    mistake = [f"tables in [apply]: {NO} table 'none'"]
    assert warnings(file, "replicate", spark, caplog) == mistake
    fill(spool, messages(2, 9, "orders"))
    assert warnings(file, "replicate", spark, caplog) == mistake


@pytest.mark.parametrize("job", ["replicate", "events"])
def test_table_that_is_selected_later_stops_the_job_until_that_is_decided(
    spark: SparkSession, file: Path, job: JobName
) -> None:
    def run(*tables: str) -> None:
        chosen = f"tables = {json.dumps(tables)}"
        is_store = job == "events"
        describe(file, f"[apply]\n{'' if is_store else chosen}", events=chosen if is_store else "")
        Pipeline(load(file), job, once=True, spark=spark).run()

    spool = fill(file.parent / "spool", messages(1, 5, "orders", "customers"))
    run("orders")
    with pytest.raises(
        PipelineError, match=r"left out .* 'shop.customers' so far.* remove /"
    ) as no:
        run("orders", "customers")
    # A table without changes so far lacks none.
    run("orders", "lines")
    fill(spool, messages(5, 9, "orders", "customers", "lines"))
    run("orders", "lines")
    Path(str(no.value).rpartition("remove ")[2]).unlink()
    run("orders", "customers")


def test_table_that_is_selected_later_is_whole_after_a_rebuild(
    spark: SparkSession, file: Path
) -> None:
    spool = fill(file.parent / "spool", messages(1, 5, "orders", "customers"))
    describe(file, '[apply]\ntables = ["orders"]')
    Pipeline(load(file), "replicate", once=True, spark=spark).run()
    describe(file, "")
    with pytest.raises(PipelineError, match="run the job rebuild with --replace"):
        Pipeline(load(file), "replicate", once=True, spark=spark).run()
    assert rebuild(load(file), replace=True).rows == {"shop.customers": 1, "shop.orders": 1}
    fill(spool, messages(5, 6, "orders", "customers"))
    Pipeline(load(file), "replicate", once=True, spark=spark).run()


def test_table_that_a_rebuild_has_left_out_is_not_selected_unnoticed(
    spark: SparkSession, file: Path
) -> None:
    fill(file.parent / "spool", messages(1, 5, "orders", "customers", "lines"))
    describe(file, '[apply]\ntables = ["orders"]')
    Pipeline(load(file), "replicate", once=True, spark=spark).run()
    assert rebuild(load(file), replace=True).rows == {"shop.orders": 1}
    describe(file, "")
    with pytest.raises(PipelineError, match=r"left out .* 'shop.customers' and 1 other so far"):
        Pipeline(load(file), "replicate", once=True, spark=spark).run()


def test_tables_that_only_the_history_has_are_known_as_read(
    spark: SparkSession, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = ([each] for each in messages(1, 9, "orders", "customers", "lines"))
    spool = fill(file.parent / "spool", *first, segment_bytes=1 << 8)
    describe(file, '[apply]\ntables = ["orders", "lines"]', events="history = true")
    Pipeline(load(file), "events", once=True, spark=spark).run()
    fill(spool, *([each] for each in messages(9, 14, "orders")), segment_bytes=1 << 8)
    Pipeline(load(file), "events", once=True, spark=spark).run()
    retain(spool, max_bytes=1)
    assert min(SpoolReader(spool).floor()) >= 8
    assert rebuild(load(file), create=True).rows == {"shop.lines": 1, "shop.orders": 1}
    assert warnings(file, "replicate", spark, caplog) == []
    describe(file, "", events="history = true")
    with pytest.raises(PipelineError, match=r"left out .* 'shop.customers' so far"):
        Pipeline(load(file), "replicate", once=True, spark=spark).run()


def test_names_in_batches_are_those_of_rows() -> None:
    row = RowChange(
        table="t", action="update", key={"id": 1}, before={"was": 1}, after={"id": 1, "a": 2}
    )
    rows = [
        row_of(RowChange(table="t", action="truncate", key={}), 1),
        row_of(RowChange(table="empty", action="truncate", key={}), 2),
        row_of(row, 3),
    ]
    found = NamesFound()
    batch = batch_of(rows)
    assert [each.num_rows for each in found.watch([batch, batch])] == [3, 3]
    assert found.names == {("", "t"): {"id", "was", "a"}, ("", "empty"): set()}
    assert load_names(dump(found.names)) == found.names
    assert json.loads(dump(found.names)) == [["", "empty", []], ["", "t", ["a", "id", "was"]]]
    broken = pa.RecordBatch.from_pylist(
        [{**rows[2], "after": "{", "key": None, "before": None}], schema=batch.schema
    )
    found.add(broken)
    assert found.names["", "t"] == {"id", "was", "a"}
