"""A table of the target belongs to one table of the source, also for a new sink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import create_engine, inspect

from stompkit.replication.model.events import RowChange
from stompkit.replication.sinks import ApplyError
from stompkit.replication.sinks.sql import SqlSink
from tests.replication.sinks.sql_targets import (
    Target,
    change,
    changeset,
    database_url,
    schema_change,
    target,
)
from tests.servers import MariaDb, mariadb, postgresql

__all__ = ["database_url", "mariadb", "postgresql", "target"]

KEYED = "CREATE TABLE t (id INT NOT NULL PRIMARY KEY)"
OLD_OFFSETS = (
    "CREATE TABLE stompkit_offsets (origin VARCHAR(255) NOT NULL PRIMARY KEY, sequence BIGINT,"
    " changeset TEXT, hash VARCHAR(64), applied_at TIMESTAMP NULL)"
)


class FoldingMariaDb(MariaDb):
    """A server that stores all names of tables in lower case, as on Windows."""

    def _options(self) -> list[str]:
        return [*super()._options(), "--lower-case-table-names=1"]


@pytest.fixture(scope="module")
def folding() -> Iterator[MariaDb]:
    server = FoldingMariaDb()
    server.start()
    yield server
    server.remove()


@contextmanager
def opened(url: str, **settings: Any) -> Iterator[SqlSink]:
    sink = SqlSink(url, **settings)
    try:
        yield sink
    finally:
        sink.close()


def _row(table: str, key: int, schema: str = "") -> RowChange:
    return change("write", {"id": key}, table, after={"id": key}, schema=schema)


def _made(table: str, key: int) -> list[RowChange]:
    told = {"name": "id", "type": "int", "key": True, "nullable": False}
    return [schema_change(told, table=table), _row(table, key)]


def _refused(sink: SqlSink, number: int, *changes: RowChange, names: Sequence[str]) -> None:
    """Check that a changeset is refused with the names of both tables."""
    text = f"the tables {names[0]} and {names[1]} would both be the target's table "
    with pytest.raises(ApplyError, match=text):
        sink.apply([changeset(number, *changes)])


def test_a_second_table_is_refused_in_a_later_run(target: Target) -> None:
    target.execute(KEYED)
    with opened(target.url) as sink:
        sink.apply([changeset(1, _row("t", 1, "a"))])
    with opened(target.url) as sink:
        _refused(sink, 2, _row("t", 2, "b"), names=("a.t", "b.t"))
        sink.skip(changeset(2))
    with opened(target.url) as sink:
        sink.apply([changeset(3, _row("t", 3, "a"))])
        _refused(sink, 4, _row("T", 4, "a"), names=("a.t", "a.T"))
    assert target.table() == [(1,), (3,)]


def test_a_second_table_is_refused_in_a_later_run_one_row_at_a_time(target: Target) -> None:
    target.execute(KEYED)
    refused: list[str] = []
    with opened(target.url) as sink:
        sink.apply_rows(changeset(1, _row("t", 1)), lambda _: None)
    for number in (2, 3):
        with opened(target.url) as sink:
            both = changeset(number, _row("T", 10 * number), _row("t", number))
            sink.apply_rows(both, lambda found: refused.extend(each.reason for each in found))
    assert target.table() == [(1,), (2,), (3,)]
    assert len(refused) == 2
    assert all("the tables t and T would both be" in reason for reason in refused)


def test_a_table_that_was_refused_owns_nothing(target: Target) -> None:
    target.execute(KEYED)
    with opened(target.url) as sink:
        wrong = change("write", {"id": 1}, "T", after={"id": 1, "x": 1})
        sink.apply_rows(changeset(1, wrong), lambda _: None)
    with opened(target.url) as sink:
        sink.apply([changeset(2, _row("t", 2))])
    assert target.table() == [(2,)]


def test_names_that_differ_by_case_are_made_apart_in_a_later_run(target: Target) -> None:
    with opened(target.url, create=True) as sink:
        sink.apply([changeset(1, *_made("t", 1))])
    with opened(target.url, create=True) as sink:
        if target.kind == "sqlite":
            _refused(sink, 2, *_made("T", 2), names=("t", "T"))
            return
        sink.apply([changeset(2, *_made("T", 2))])
    quoted = '"T"' if target.kind == "postgresql" else "T"
    assert (target.table(), target.table(quoted)) == ([(1,)], [(2,)])


def test_a_map_may_say_that_several_are_one_but_not_by_case(target: Target) -> None:
    target.execute(KEYED)
    with opened(target.url, table_map={"T": "t"}) as sink:
        sink.apply([changeset(1, _row("T", 1))])
    with opened(target.url, table_map={"T": "t"}) as sink:
        sink.apply([changeset(2, _row("t", 2)), changeset(3, _row("T", 3))])
    schema = {"postgresql": "public", "sqlite": "main"}.get(target.kind, target.engine.url.database)
    with opened(target.url, schema_map={"a": schema or "", "b": schema or ""}) as sink:
        sink.apply([changeset(4, _row("t", 4, "a")), changeset(5, _row("t", 5, "b"))])
        _refused(sink, 6, _row("T", 6, "b"), names=("a.t", "b.T"))
    with opened(target.url, table_map={"x": "t", "y": "T"}) as sink:
        # As after a renaming in the source.
        sink.apply([changeset(6, _row("x", 6))])
        _refused(sink, 7, _row("y", 7), names=("T", "y"))
    assert target.table() == [(1,), (2,), (3,), (4,), (5,), (6,)]


def test_origins_own_tables_each_by_itself(target: Target) -> None:
    target.execute(KEYED)
    for number, schema in enumerate(("a", "b", "a")):
        with opened(target.url) as sink:
            sink.apply([changeset(number, _row("t", number, schema), origin=schema)])
    assert target.table() == [(0,), (1,), (2,)]


def test_a_target_of_an_older_version_is_taken_over(target: Target) -> None:
    target.execute(KEYED, OLD_OFFSETS)
    target.execute("INSERT INTO stompkit_offsets (origin, sequence) VALUES ('origin', 5)")
    with opened(target.url) as sink:
        assert sink.last("origin") == 5
        sink.apply([changeset(5, _row("T", 5)), changeset(6, _row("T", 6))])
    with opened(target.url) as sink:
        _refused(sink, 7, _row("t", 7), names=("T", "t"))
    assert target.table() == [(6,)]


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
def test_who_may_not_change_an_old_table_knows_owners_in_its_run(target: Target) -> None:
    target.execute(
        KEYED,
        OLD_OFFSETS,
        "CREATE ROLE writer_of_rows LOGIN",
        "GRANT USAGE ON SCHEMA public TO writer_of_rows",
        "GRANT SELECT, INSERT, UPDATE ON t, stompkit_offsets TO writer_of_rows",
    )
    engine = create_engine(target.engine.url.set(username="writer_of_rows"))
    try:
        sink = SqlSink(engine)
        sink.apply([changeset(1, _row("t", 1))])
        _refused(sink, 2, _row("T", 2), names=("t", "T"))
        sink.apply([changeset(3, _row("t", 3))])
    finally:
        engine.dispose()
        target.execute("DROP OWNED BY writer_of_rows", "DROP ROLE writer_of_rows")
    assert target.table() == [(1,), (3,)]
    assert "tables" not in [
        column["name"] for column in inspect(target.engine).get_columns("stompkit_offsets")
    ]


def test_a_server_that_has_all_names_in_small_letters(folding: MariaDb) -> None:
    name = folding.new_database()
    target = Target("mariadb", folding.url(name))
    with opened(target.url, create=True) as sink:
        sink.apply([changeset(1, *_made("T", 1))])
        _refused(sink, 2, *_made("t", 2), names=("T", "t"))
    with opened(target.url, create=True) as sink:
        _refused(sink, 2, *_made("t", 2), names=("T", "t"))
        sink.apply([changeset(3, _row("T", 3))])
    with opened(target.url, schema_map={"s": name.upper()}) as sink:
        sink.apply([changeset(4, _row("t", 4, "s"))])
    assert target.table() == [(1,), (3,), (4,)]
    target.engine.dispose()
