"""The sink for SQL: tables, columns and their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import Json
from stompkit.replication.sinks import ApplyError, Refused
from stompkit.replication.sinks.sql import SqlSink
from tests.replication.sinks.sql_targets import (
    Target,
    change,
    changeset,
    database_url,
    schema_change,
    target,
)
from tests.servers import mariadb, postgresql

__all__ = ["database_url", "mariadb", "postgresql", "target"]

PLAIN = "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(20))"
ID = {"name": "id", "type": "int", "key": True, "nullable": False}
A = {"name": "a", "type": "text"}


def apply(target: Target, *changes: RowChange, **settings: Any) -> None:
    sink = SqlSink(target.url, **settings)
    try:
        sink.apply([changeset((sink.last("origin") or 0) + 1, *changes)])
    finally:
        sink.close()


def row(number: int, table: str = "t", **values: Any) -> RowChange:
    return change("write", {"id": number}, table, after={"id": number, **values})


def quoted(target: Target, name: str) -> str:
    mark = target.pick(sqlite='"', postgresql='"', mariadb="`")
    name = name.replace(mark, mark * 2)
    return f"{mark}{name if target.kind == 'sqlite' else name.replace('%', '%%')}{mark}"


# New columns.


def test_a_column_that_the_source_got_is_added(target: Target) -> None:
    target.execute(PLAIN, "INSERT INTO t VALUES (1, 'x')")
    changed = schema_change(ID, A, {"name": "b", "type": "int"})
    apply(target, row(2, a="y"), changed, row(3, a="z", b=5))
    assert target.table() == [(1, "x", None), (2, "y", None), (3, "z", 5)]
    # Repeated, as after a crash between the two.
    apply(target, changed, row(3, a="z", b=6))
    assert target.table()[2] == (3, "z", 6)


def test_a_sink_that_is_at_work_sees_new_columns(target: Target) -> None:
    target.execute(PLAIN)
    one, other = SqlSink(target.url), SqlSink(target.url)
    more = schema_change(ID, A, {"name": "b", "type": "int"})
    for sink, origin in ((one, "one"), (other, "other")):
        sink.apply([changeset(1, row(1, a="x"), origin=origin)])
    for sink, origin in ((one, "one"), (other, "other")):
        sink.apply([changeset(2, more, row(1, b=2), origin=origin)])
        sink.close()
    assert target.table() == [(1, "x", 2)]


def test_a_column_that_the_source_dropped_stays(target: Target) -> None:
    target.execute(PLAIN, "INSERT INTO t VALUES (1, 'x')")
    apply(target, schema_change(ID), row(2))
    assert target.table() == [(1, "x"), (2, None)]


def test_an_unknown_column_is_a_problem_or_left_out(target: Target) -> None:
    target.execute(PLAIN)
    changes = [schema_change(ID, A, {"name": "b", "type": "int"}), row(1, a="x", b=5)]
    with pytest.raises(ApplyError, match=r"'t', key \{'id': 1\}: the target has no column 'b'"):
        apply(target, *changes, evolve=False)
    assert target.table() == []
    apply(target, *changes, evolve=False, unknown_columns="ignore")
    assert target.table() == [(1, "x")]


def test_a_column_that_somebody_adds_to_the_target_is_seen(target: Target) -> None:
    target.execute(PLAIN)
    sink = SqlSink(target.url)
    sink.apply([changeset(1, row(1, a="x"))])
    with pytest.raises(ApplyError, match="no column 'b'"):
        sink.apply([changeset(2, row(1, b=1))])
    target.execute("ALTER TABLE t ADD COLUMN b INT")
    sink.apply([changeset(2, row(1, b=1))])
    sink.close()
    assert target.table() == [(1, "x", 1)]


# New tables.

TYPES: list[tuple[dict[str, object], Any]] = [
    ({"type": "bool"}, True),
    ({"type": "int"}, -(2**63)),
    ({"type": "int", "precision": 20}, 2**64 - 1),
    ({"type": "float"}, 0.1),
    ({"type": "decimal", "precision": 30, "scale": 10}, Decimal("12345678901234567890.0123456789")),
    ({"type": "decimal"}, Decimal("12345678901234567890.0123456789")),
    ({"type": "text"}, "ü\U0001f600" * 50_000),
    ({"type": "text", "length": 5}, "ü\U0001f600"),
    ({"type": "bytes"}, b"\0\xff" * 50_000),
    ({"type": "date"}, datetime(2026, 11, 21).date()),
    ({"type": "time"}, time(12, 0, 0, 1)),
    ({"type": "datetime"}, datetime(2026, 11, 21, 12, 0, 0, 1)),
    ({"type": "datetimez"}, datetime(2026, 11, 21, 12, 0, 0, 1, UTC)),
    ({"type": "interval"}, timedelta(days=-1, microseconds=1)),
    ({"type": "uuid"}, UUID("0f8fad5b-d9cb-469f-a165-70867728950e")),
    ({"type": "json"}, {"a": [1, "ü"]}),
    ({"type": "set"}, frozenset(["a", "b"])),
    ({"type": "int", "precision": 20, "unsigned": True}, 2**64 - 1),
    ({"type": "decimal", "precision": 3, "scale": -2}, Decimal(12300)),
    ({"type": "decimal", "precision": 2, "scale": 5}, Decimal("0.00012")),
    ({"type": "decimal", "precision": 900, "scale": 50}, Decimal("1." + "0" * 49 + "1")),
    ({"type": "decimal"}, Decimal("1" + "0" * 80)),
    ({"type": "interval", "native": "time"}, timedelta(hours=-800, microseconds=-1)),
    ({"type": "interval", "native": "interval"}, timedelta(hours=24)),
    ({"type": "time", "native": "timetz"}, time(12, tzinfo=timezone(timedelta(hours=5.75)))),
    ({"type": "json", "native": "json"}, Json("true")),
    ({"type": "json", "native": "json"}, Json('{"a":1,"a":2}')),
    ({"type": "json", "native": "jsonb"}, Json("1.50")),
    ({"type": "text", "native": "inet"}, "10.0.0.1"),
    ({"type": "text", "native": "int4[]"}, "{1,NULL,3}"),
    ({"type": "text", "native": "interval[]"}, '{24:00:00,"1 day"}'),
    ({"type": "text", "native": "int4range"}, "[1,5)"),
    ({"type": "text", "native": "varbit"}, "1010"),
    ({"type": "text", "native": "tsvector"}, "'a':1 'cat':3"),
]


def test_a_table_is_made_that_holds_values_of_all_types(target: Target) -> None:
    columns = [{"name": f"c{at}", **made} for at, (made, _) in enumerate(TYPES)]
    values: dict[str, Any] = {f"c{at}": value for at, (_, value) in enumerate(TYPES)}
    nothing: dict[str, Any] = dict.fromkeys(values)
    apply(target, schema_change(ID, *columns), row(1, **values), row(2, **nothing), create=True)
    found = {1: values, 2: nothing}
    # Every value is found by itself, as in a table without a key.
    settings: dict[str, Any] = {"table_map": {"u": "t"}}
    for number, before in found.items():
        image = {"id": number, **before}
        apply(target, change("delete", {}, "u", before=image), **settings)
    assert target.table() == []


def test_columns_of_all_types_are_added(target: Target) -> None:
    target.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY)")
    columns = [{"name": f"c{at}", **made} for at, (made, _) in enumerate(TYPES)]
    values: dict[str, Any] = {f"c{at}": value for at, (_, value) in enumerate(TYPES)}
    apply(target, schema_change(ID, *columns), row(1, **values))
    assert len(target.table()[0]) == 1 + len(TYPES)
    assert None not in target.table()[0]


def test_keys_of_a_table_that_was_made_differ_by_case_and_blanks(target: Target) -> None:
    key = {"name": "id", "type": "text", "key": True}
    keys = ["a", "A", "a ", "ä"]
    rows = [change("write", {"id": each}, after={"id": each, "a": each}) for each in keys]
    apply(target, schema_change(key, A), *rows, create=True)
    assert sorted(target.table()) == sorted((each, each) for each in keys)


def test_a_table_with_a_key_of_each_type_is_made(target: Target) -> None:
    # JSON documents and sets cannot identify a row.
    for at, (made, value) in enumerate(TYPES[:15]):
        key = {"name": "k", "key": True, **made}
        small = value[:3] if isinstance(value, (str, bytes)) else value
        written = change("write", {"k": small}, f"t{at}", after={"k": small, "a": "x"})
        apply(target, schema_change(key, A, table=f"t{at}"), written, written, create=True)
        assert [row[1] for row in target.table(f"t{at}")] == ["x"]
        apply(target, change("delete", {"k": small}, f"t{at}"))
        assert target.table(f"t{at}") == []


def test_a_type_of_another_database_is_no_statement(target: Target) -> None:
    made = {"name": "v", "type": "text", "native": "int4[]); DROP TABLE t; --"}
    apply(target, schema_change(ID, made), row(1, v="x"), create=True)
    assert target.table() == [(1, "x")]


def test_a_number_that_a_column_is_too_small_for_is_told_before(target: Target) -> None:
    target.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a BIGINT)")
    sink = SqlSink(target.url)
    wide = {"name": "a", "type": "int", "precision": 20, "unsigned": True}
    found = sink.check([schema_change(ID, wide)])
    sink.close()
    assert len(found) == 1
    assert "has numbers up to 2**64 - 1" in found[0]


def test_a_table_is_only_made_where_that_is_wanted(target: Target) -> None:
    with pytest.raises(ApplyError, match=r"write of the table 't'.*: .*no such table"):
        apply(target, schema_change(ID, A), row(1))
    apply(target, schema_change(ID, A), row(1), on_missing="ignore")
    apply(target, schema_change(ID, A), row(2), create=True)
    assert target.table() == [(2, None)]


@pytest.mark.parametrize(
    "column",
    [
        {"name": "x", "type": "int); DROP TABLE t; --"},
        {"name": "x", "type": "decimal", "precision": "1); DROP TABLE t; --"},
        {"name": "x", "type": "decimal", "precision": -1},
        {"name": "x", "type": "decimal", "precision": 5, "scale": -(10**9)},
        {"name": "", "type": "int"},
        {"name": "a\0b", "type": "int"},
        {"name": "\ud800", "type": "int"},
        {"name": " x", "type": "int"},
        {"name": "ü" * 40, "type": "int"},
        {"name": 5, "type": "int"},
        {"type": "int"},
    ],
)
def test_columns_that_can_not_be_are_refused(tmp_path: Any, column: dict[str, object]) -> None:
    target = Target("sqlite", f"sqlite:///{tmp_path / 'target.sqlite'}")
    target.execute(PLAIN)
    with pytest.raises(ApplyError, match="schema of the table 't': "):
        apply(target, schema_change(ID, column))
    with pytest.raises(ApplyError, match="schema of the table 'u': "):
        apply(target, schema_change(ID, column, table="u"), create=True)
    assert target.table() == []
    target.engine.dispose()


# Names.

NAMES = ["select", "Über Maß", "a\"b'c\\d", "100%s (%(x)s) ?:y", "x; DROP TABLE t", "Case"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_names_whatever_they_look_like(target: Target, name: str) -> None:
    target.execute(PLAIN)
    key: dict[str, Any] = {"name": f"{name} key", "type": "int", "key": True}
    column = {"name": name, "type": "text"}
    later = {"name": f"{name} later", "type": "text"}

    def changed(action: Any, number: int, **more: Any) -> RowChange:
        return change(action, {key["name"]: number}, name, **more)

    changes = [
        schema_change(key, column, table=name),
        changed("write", 1, after={name: "x"}),
        schema_change(key, column, later, table=name),
        changed("update", 1, after={f"{name} later": "y"}),
        changed("update", 2, after={name: "z"}, old_key={f"{name} key": 1}),
        changed("write", 3, after={name: "gone"}),
        changed("delete", 3),
    ]
    apply(target, *changes, create=True)
    assert target.table(quoted(target, name)) == [(2, "z", "y")]
    whole = {f"{name} key": 2, name: "z"}
    settings: dict[str, Any] = {"table_map": {"u": f"public.{name}"}}
    if target.kind == "postgresql":
        apply(target, change("update", {}, "u", before=whole, after=whole), **settings)
    apply(target, changed("truncate", 0))
    assert target.table(quoted(target, name)) == []
    assert target.table("t") == []


@pytest.mark.parametrize("name", [*NAMES, "t WHERE 1=1", "information_schema.tables"])
def test_names_that_the_target_does_not_have_reach_no_statement(target: Target, name: str) -> None:
    target.execute(PLAIN, "INSERT INTO t VALUES (1, 'x')")
    with pytest.raises(ApplyError, match="no such table"):
        apply(target, change("truncate", {}, name))
    with pytest.raises(ApplyError, match="no column"):
        apply(target, change("delete", {name: 1}))
    with pytest.raises(ApplyError, match="no column"):
        apply(target, change("write", {"id": 1}, after={name: 1}))
    assert target.table() == [(1, "x")]


def test_names_may_differ_by_case_where_that_is_clear(target: Target) -> None:
    target.execute("CREATE TABLE Things (ID INT NOT NULL PRIMARY KEY, Name VARCHAR(20))")
    written = change("write", {"iD": 1}, "tHINGS", after={"NAME": "x"})
    apply(target, written)
    assert target.table("Things") == [(1, "x")]
    twice = change("write", {"id": 1}, "tHINGS", after={"name": "x", "NAME": "y"})
    with pytest.raises(ApplyError, match="two of its columns are the same"):
        apply(target, twice)


# SQLite does not distinguish them.
@pytest.mark.parametrize("target", ["postgresql", "mariadb"], indirect=True)
def test_of_two_tables_that_differ_by_case_only_the_exact_one_is_meant(target: Target) -> None:
    names = [quoted(target, name) for name in ("Case", "CASE")]
    target.execute(*[f"CREATE TABLE {name} (id INT NOT NULL PRIMARY KEY)" for name in names])
    apply(target, row(1, "CASE"))
    with pytest.raises(ApplyError, match="no such table"):
        apply(target, row(1, "case"))
    assert [target.table(name) for name in names] == [[], [(1,)]]


def test_tables_and_schemas_are_mapped(target: Target) -> None:
    target.execute(PLAIN)
    there = target.pick(sqlite="main", postgresql="public", mariadb=str(target.engine.url.database))

    def written(number: int, schema: str, table: str) -> RowChange:
        made = {"id": number, "a": schema}
        return RowChange(table=table, action="write", key={"id": number}, after=made, schema=schema)

    apply(target, written(1, "anywhere", "t"))
    apply(target, written(2, "shop", "things"), table_map={"shop.things": "t"})
    apply(target, written(3, "shop", "things"), table_map={"things": f"{there}.t"})
    apply(target, written(4, "shop", "t"), schema_map={"shop": there})
    apply(target, written(5, "shop", "t"), schema_map={"shop": ""})
    for settings in ({"schema_map": {"shop": there}}, {"table_map": {"t": "nowhere.t"}}):
        with pytest.raises(ApplyError, match=r"'other\.t', key \{'id': 6\}: .*no such table"):
            apply(target, written(6, "other", "t"), **settings)
    apply(target, written(6, "other", "t"), schema_map={"shop": there}, on_missing="ignore")
    names = ["anywhere", *["shop"] * 4]
    assert target.table() == [(number, name) for number, name in enumerate(names, 1)]


def test_the_sinks_own_table_is_no_target(target: Target) -> None:
    sink = SqlSink(target.url)
    assert sink.last("origin") is None
    stolen = change("write", {"origin": "x"}, "STOMPKIT_offsets", after={"sequence": 99})
    with pytest.raises(ApplyError, match="no such table"):
        sink.apply([changeset(1, stolen)])
    assert sink.last("x") is None
    sink.close()


# Checking.


def test_all_differences_are_told_at_once(target: Target) -> None:
    target.execute(
        "CREATE TABLE t (k INT NOT NULL PRIMARY KEY, a INT, b INT NOT NULL, c INT NOT NULL)"
    )
    source = schema_change(
        ID, A, {"name": "b", "type": "int"}, {"name": "k", "type": "int", "nullable": False}
    )
    sink = SqlSink(target.url)
    found = sink.check([source, source, row(1, "u"), row(1, x=1), schema_change({"name": "x"})])
    sink.close()
    assert [each.replace("INTEGER", "INT").replace("in the target", "there") for each in found] == [
        "t: the target has no column 'id'",
        "t: column 'a' is text, and INT there",
        "t: column 'b' can be NULL, but not there",
        "t: the target's column 'c' has to have a value, and the source has none",
        "u: the target has no such table",
        "t: the target has no column 'x'",
        "t: its columns cannot be read: Object missing required field `type` - at `$[0]`",
    ]


def test_a_target_that_was_made_has_no_differences(target: Target) -> None:
    columns = [{"name": f"c{at}", **made} for at, (made, _) in enumerate(TYPES)]
    source = schema_change(ID, *columns)
    apply(target, source, create=True)
    sink = SqlSink(target.url)
    assert sink.check([source]) == []
    sink.close()


@pytest.mark.parametrize("target", ["mariadb"], indirect=True)
def test_a_target_without_transactions_is_refused(target: Target) -> None:
    target.execute(f"{PLAIN} ENGINE=MyISAM")
    with pytest.raises(ApplyError, match="MyISAM has no transactions"):
        apply(target, row(1))
    sink = SqlSink(target.url)
    assert sink.check([schema_change(ID, A)]) == [
        "t: the target's engine MyISAM has no transactions"
    ]
    sink.close()


@pytest.mark.parametrize("other", [("b", "t"), ("a", "T")])
def test_two_tables_are_never_merged_into_one(target: Target, other: tuple[str, str]) -> None:
    """Names may differ in case only, which some targets ignore."""
    target.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY)")

    def written(number: int, schema: str, table: str) -> RowChange:
        return RowChange(
            schema=schema, table=table, action="write", key={"id": number}, after={"id": number}
        )

    sink = SqlSink(target.engine)
    sink.apply([changeset(1, written(1, "a", "t"))])
    with pytest.raises(ApplyError, match=r"tables a\.t and .* would both be"):
        sink.apply([changeset(2, written(2, *other))])
    # An explicit mapping may merge several into one.
    mapped = SqlSink(target.engine, table_map={"t": "t", "a.T": "t"})
    mapped.apply([changeset(2, written(2, *other))])
    assert target.table() == [(1,), (2,)]


@pytest.mark.parametrize("name", ["a`b", 'a"b', "a``b", "a%b", "a:b"])
def test_columns_with_quotes_in_their_names_are_found_again(target: Target, name: str) -> None:
    columns: list[dict[str, object]] = [
        {"name": "id", "type": "int", "key": True, "nullable": False},
        {"name": name, "type": "int"},
    ]
    written = change("write", {"id": 1}, after={"id": 1, name: 5})
    apply(target, schema_change(*columns), written, create=True)
    assert target.table() == [(1, 5)]


@pytest.mark.parametrize(
    ("target", "name", "length"),
    [("postgresql", "ü" * 31, "64 octets"), ("mariadb", "ü" * 64, "65 characters")],
    indirect=["target"],
)
def test_a_name_that_is_too_long_is_refused_with_its_length(
    target: Target, name: str, length: str
) -> None:
    apply(target, schema_change(ID, {"name": name, "type": "int"}), create=True)
    longer = {"name": f"{name}{'xx' if target.kind == 'postgresql' else 'x'}", "type": "int"}
    for described in ([ID, longer], [ID]):
        table = "t" if longer in described else str(longer["name"])
        with pytest.raises(ApplyError, match=f"has {length}"):
            apply(target, schema_change(*described, table=table), create=True)


# SQLite does not distinguish them.
@pytest.mark.parametrize("target", ["postgresql", "mariadb"], indirect=True)
def test_tables_that_differ_by_case_only_are_made_where_that_is_a_difference(
    target: Target,
) -> None:
    names = ["t", "T", "Ü", "ü"]
    with closing(SqlSink(target.engine, create=True)) as sink:
        for number, name in enumerate(names):
            written = change("write", {"id": number}, name, after={"id": number})
            sink.apply([changeset(number + 1, schema_change(ID, table=name), written)])
    assert [target.table(quoted(target, name)) for name in names] == [[(n,)] for n in range(4)]


@pytest.mark.parametrize("target", ["sqlite", "mariadb"], indirect=True)
def test_columns_that_differ_by_case_only_are_refused_with_both_names(target: Target) -> None:
    columns: list[dict[str, object]] = [
        {"name": "id", "type": "int", "key": True, "nullable": False},
        {"name": "ID", "type": "int"},
    ]
    with pytest.raises(ApplyError, match="columns 'id' and 'ID' differ by case only"):
        apply(target, schema_change(*columns), create=True)


# Changes of existing rows that the source does not publish again.


def untold_change(kind: str, *columns: Mapping[str, object], **more: object) -> RowChange:
    made = schema_change(*columns)
    return change("schema", {}, "t", after={**(made.after or {}), "untold": kind, **more})


B = {"name": "b", "type": "text"}


def test_a_row_of_another_key_than_the_targets_is_refused_with_advice(target: Target) -> None:
    target.execute(PLAIN, "INSERT INTO t VALUES (1, 'x')")
    again = change("write", {"id": 1, "a": "y"}, after={"id": 1, "a": "y"})
    advice = (
        r"The source's key is \(id, a\), and the target's \(id\)\. To go on, give the target the"
        " same primary key"
    )
    refused: list[Refused] = []
    sink = SqlSink(target.url)
    with pytest.raises(ApplyError, match=advice):
        sink.apply([changeset(1, again)])
    sink.apply_rows(changeset(1, again), refused.extend)
    sink.close()
    (one,) = refused
    assert re.search(advice, one.reason)
    assert target.table() == [(1, "x")]


def test_a_table_that_is_not_made_yet_is_empty(target: Target) -> None:
    empty = change("truncate", {})
    with pytest.raises(ApplyError, match="no such table"):
        apply(target, empty)
    apply(target, empty, create=True)
    apply(target, schema_change(ID, A), row(1, a="x"), create=True)
    assert target.table() == [(1, "x")]


@pytest.mark.parametrize("kind", ["names", "values"])
def test_columns_that_exchange_their_names_stop_a_sink_unless_rows_are_told_again(
    target: Target, kind: str
) -> None:
    target.execute(
        "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(20), b VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'x', 'y')",
    )
    renamed = {"a": "b", "b": "a"}
    with pytest.raises(ApplyError, match=r"have exchanged their names. To go on, do the same in"):
        apply(target, untold_change(kind, ID, A, B, renamed=renamed))
    apply(target, untold_change("", ID, A, B, renamed=renamed), row(1, a="y", b="x"))
    assert target.table() == [(1, "y", "x")]


def test_rows_that_a_statement_has_changed_stop_a_sink(target: Target) -> None:
    target.execute(PLAIN, "INSERT INTO t VALUES (1, 'x')")
    told = untold_change("values", ID, A, retyped=["a"], statement="ALTER TABLE t MODIFY a INT")
    for settings in ({"create": True}, {"create": False}, {"evolve": False}):
        with pytest.raises(ApplyError, match=r"by a statement \(ALTER TABLE t MODIFY a INT\)"):
            apply(target, told, **settings)
    assert target.table() == [(1, "x")]


def test_a_renamed_column_stops_a_sink_whose_target_has_both_names(target: Target) -> None:
    target.execute(
        "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(20), b VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'x', NULL)",
    )
    told = untold_change("names", ID, B, renamed={"a": "b"})
    with pytest.raises(ApplyError, match=r"'a' of the table 't' 'b' now, and the target has both"):
        apply(target, told)
    target.execute("UPDATE t SET b = a", "ALTER TABLE t DROP COLUMN a")
    apply(target, told, row(2, b="y"))
    assert target.table() == [(1, "x"), (2, "y")]


def test_a_renamed_column_keeps_its_rows(target: Target) -> None:
    target.execute(PLAIN, "INSERT INTO t VALUES (1, 'x')")
    told = untold_change("names", ID, B, renamed={"a": "b"}, retyped=["b"])
    for _ in range(2):
        apply(target, told, row(2, b="y"), create=True)
    assert target.table() == [(1, "x"), (2, "y")]
