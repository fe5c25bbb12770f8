"""Difficult names of tables and columns: each stays distinct in a target, or is refused."""

from __future__ import annotations

from itertools import count
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import MetaData, Table, inspect

from stompkit.replication.model.events import RowChange
from stompkit.replication.sinks import ApplyError
from stompkit.replication.sinks.sql import SqlSink
from tests.effort import drawn
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

_NUMBERS: Final = count(1)
_SETTINGS: Final = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
_HARD: Final = "t T Ü ü order Order select a.b a\"b a`b a'b a%b a%(b)s a:b a;b a-- _ 1".split()
_LONG: Final = ("x" * 63, "x" * 64, "x" * 63 + "y", "X" * 63, "ü" * 31, "ü" * 40, "a b")
_NAMES: Final = st.sampled_from((*_HARD, *_LONG)) | st.text(
    st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=5
)


def _changes(name: str, columns: list[str], value: str) -> list[RowChange]:
    told = [{"name": "id", "type": "int", "key": True, "nullable": False}]
    told += [{"name": each, "type": "text"} for each in columns]
    row = {"id": 1, **{each: f"{value}.{place}" for place, each in enumerate(columns)}}
    return [schema_change(*told, table=name), change("read", {"id": 1}, name, after=row)]


def _arrived(target: Target) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of all tables, by the tables' names."""
    mark = "`" if target.engine.dialect.name in ("mysql", "mariadb") else '"'
    found = {}
    for name in inspect(target.engine).get_table_names():
        quoted = mark + name.replace(mark, mark * 2) + mark
        with target.engine.connect().execution_options(no_parameters=True) as connection:
            # Reflection does not support all names of MySQL.
            rows = connection.exec_driver_sql(f"SELECT * FROM {quoted}").mappings().all()
        found[name] = [dict(row) for row in rows]
    return found


def _check(target: Target, tables: list[str], columns: list[str]) -> None:
    number = next(_NUMBERS)
    offsets = f"offsets_of_{number}"
    sink = SqlSink(target.engine, create=True, offsets_table=offsets)
    expected = []
    try:
        for sequence, name in enumerate(tables, 1):
            changes = _changes(name, columns, str(sequence))
            try:
                sink.apply([changeset(sequence, *changes)])
            except ApplyError as problem:
                _see_that_it_is_right(str(problem), target.kind, name, tables, columns)
                sink.skip(changeset(sequence, *changes))
            else:
                expected.append((changes[1].after or {}, name))
        arrived = _arrived(target)
        arrived.pop(offsets, None)
        rows = [(row, name) for name, found in arrived.items() for row in found]
        assert sorted(rows, key=repr) == sorted(expected, key=repr)
    finally:
        sink.close()
        for name in inspect(target.engine).get_table_names():
            Table(name, MetaData()).drop(target.engine)


def _see_that_it_is_right(
    text: str, kind: str, name: str, tables: list[str], columns: list[str]
) -> None:
    """Check that a refusal names the table, and a name or two names that the target lacks."""
    assert f"schema of the table {name!r}: " in text, text
    reason = text.partition(f"schema of the table {name!r}: ")[2]
    names = [name, *columns]
    # A long name is shown by its beginning.
    if any(f"cannot be called {each[:63]!r}" in reason for each in names if not _is_plain(each)):
        return
    if any(
        reason.startswith(f"the name {each[:63]!r}... has {length} {unit}")
        for each in names
        for length, unit in [_length(each, kind)]
        if length > (64 if kind == "mariadb" else 63)
    ):
        return
    if kind == "mariadb" and any(
        reason.startswith(f"the name {each[:63]!r} has characters beyond U+FFFF")
        for each in names
        if max(each) > "\uffff"
    ):
        return
    pairs = [(one, other) for one in columns for other in columns if one != other]
    if any(
        reason.startswith(f"the columns {one!r} and {other!r} differ by case only")
        for one, other in pairs
        if kind != "postgresql" and one.casefold() == other.casefold()
    ):
        return
    others = [each for each in tables if each != name and each.casefold() == name.casefold()]
    if kind == "sqlite" and any(
        reason.startswith(f"the tables {each} and {name} would both be") for each in others
    ):
        return
    raise AssertionError(text)


def _is_plain(name: str) -> bool:
    return name.isprintable() and name == name.strip()


def _length(name: str, kind: str) -> tuple[int, str]:
    """Return the length of a name as a kind of database counts it, and the unit."""
    return (len(name), "characters") if kind == "mariadb" else (len(name.encode()), "octets")


_TABLES: Final = st.lists(_NAMES, min_size=1, max_size=3, unique=True)
_COLUMNS: Final = st.lists(
    _NAMES.filter(lambda name: name.casefold() != "id"), min_size=1, max_size=3, unique=True
)


@given(tables=_TABLES, columns=_COLUMNS)
@settings(_SETTINGS, max_examples=drawn(25))
def test_names_are_kept_or_refused(target: Target, tables: list[str], columns: list[str]) -> None:
    _check(target, tables, columns)


@pytest.mark.matrix
@given(tables=_TABLES, columns=_COLUMNS)
@settings(_SETTINGS, max_examples=drawn(500))
def test_many_names_are_kept_or_refused(
    target: Target, tables: list[str], columns: list[str]
) -> None:
    _check(target, tables, columns)
