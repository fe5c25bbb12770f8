"""Names of tables and columns that are hard on a target: each is its own there, or is refused."""

from __future__ import annotations

from itertools import count
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import MetaData, Table, inspect

from stompkit.replication.events import RowChange
from stompkit.replication.sinks import ApplyProblem
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
    """The rows of all tables, by the tables' names."""
    mark = "`" if target.engine.dialect.name in ("mysql", "mariadb") else '"'
    found = {}
    for name in inspect(target.engine).get_table_names():
        quoted = mark + name.replace(mark, mark * 2) + mark
        with target.engine.connect().execution_options(no_parameters=True) as connection:
            # Not by reflection, which does not know all names of MySQL.
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
            except ApplyProblem as problem:
                # What is too long is not shown in full.
                assert _is_named(str(problem), name, tables, columns), problem
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


def _is_named(text: str, name: str, tables: list[str], columns: list[str]) -> bool:
    """Whether a problem names the table, and what it is about."""
    shown: list[str] = [each[:63] for each in (*tables, *columns)]
    escaped = [repr(each)[1:-1] for each in shown]
    return name[:63] in text or any(each in text for each in (*shown, *escaped))


_TABLES: Final = st.lists(_NAMES, min_size=1, max_size=3, unique=True)
_COLUMNS: Final = st.lists(
    _NAMES.filter(lambda name: name.casefold() != "id"), min_size=1, max_size=3, unique=True
)


@given(tables=_TABLES, columns=_COLUMNS)
@settings(_SETTINGS, max_examples=25)
def test_names_are_kept_or_refused(target: Target, tables: list[str], columns: list[str]) -> None:
    _check(target, tables, columns)


@pytest.mark.matrix
@given(tables=_TABLES, columns=_COLUMNS)
@settings(_SETTINGS, max_examples=500)
def test_many_names_are_kept_or_refused(
    target: Target, tables: list[str], columns: list[str]
) -> None:
    _check(target, tables, columns)
