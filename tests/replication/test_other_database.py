"""What a database writes arrives in one of another kind, or is refused by name.

A table that Hypothesis draws goes into another kind of database, whose table ``create`` makes, and
from there back into the kind that it is of. What was changed without a word on either way would be
shown otherwise by the server that it is from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stompkit.replication.events import RowChange
from stompkit.replication.sinks import ApplyProblem
from stompkit.replication.values import document
from tests.replication.drawn_tables import (
    MySide,
    PostgreSqlSide,
    Side,
    SourceSide,
    SqliteSide,
    apply,
    draw_rows,
)
from tests.replication.mysql import reading as my
from tests.replication.postgres import postgres_made as pg
from tests.servers import MariaDb, SqlServer, mariadb, mysql, postgresql

__all__ = ["mariadb", "mysql", "postgresql"]

#: Days of intervals are known to come back as hours from MariaDB, MySQL and SQLite; and a real
#: MySQL is one that `make servers` fetches.
pytestmark = pytest.mark.matrix

_NUMBERS: Final = count(1)
_SETTINGS: Final = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
_NO_DATE: Final = re.compile(r"0000-00-00|2026-00-11|2026-02-31")
_Ways = tuple[SourceSide, Side, SourceSide]
_SOURCES: Final = ("postgresql", "mariadb", "mysql")


@pytest.fixture(
    params=[
        pytest.param(
            (source, target),
            id=f"{source}-{target}",
        )
        for source in _SOURCES
        for target in (*_SOURCES, "sqlite")
        if source != target
    ]
)
def ways(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[_Ways]:
    """A database, one of another kind, and one of the first kind again."""
    source, target = request.param
    opened: list[my.Database] = []

    def made(kind: str) -> SourceSide:
        server: SqlServer = request.getfixturevalue(kind)
        if not isinstance(server, MariaDb):
            return PostgreSqlSide(pg.Database(server, server.new_database()))
        opened.append(my.Database(server))
        return MySide(opened[-1])

    other = SqliteSide(tmp_path / "target") if target == "sqlite" else made(target)
    yield made(source), other, made(source)
    for database in opened:
        database.close()


def _check(ways: _Ways, data: st.DataObject) -> None:
    source, other, back = ways
    name = f"t{next(_NUMBERS)}"
    columns, rows = draw_rows(data, source.types)
    try:
        source.make(name, columns)
        source.insert(name, rows)
        back.make(name, columns)
        changes = source.read(name)
        if not _arrives(other.url, changes, name, create=True):
            return
        returning = [change for change in other.read(name) if change.action == "read"]
        assert len(returning) == len(rows)
        documents = [f"c{place}" for place, each in enumerate(columns) if " json" in each.lower()]
        returning = [_with_documents(change, documents) for change in returning]
        if _arrives(back.url, returning, name, create=False):
            assert _held(back.shown(name, columns)) == _held(source.shown(name, columns))
    finally:
        for side in ways:
            side.drop(name)


def _held(rows: list[list[Any]]) -> list[list[Any]]:
    """Rows without what databases of other kinds do not have.

    Dates that are none are NULL there, and the negative zero of floating-point numbers is zero.
    """
    return [
        [None if _is_no_date(value) else 0 if _is_zero(value) else value for value in row]
        for row in rows
    ]


def _is_zero(value: Any) -> bool:
    # PostgreSQL is asked for text; no other type shows one of these.
    return value in ("-0", "0") or (isinstance(value, float) and value == 0)


def _is_no_date(value: Any) -> bool:
    # The driver has text where Python has no date.
    return isinstance(value, str) and _NO_DATE.match(value) is not None


def _arrives(url: str, changes: Sequence[RowChange], name: str, *, create: bool) -> bool:
    """Whether all is taken; what is not, is refused by the names of table, key and column."""
    try:
        apply(url, changes, create=create)
    except ApplyProblem as problem:
        text = str(problem)
        assert name in text, text
        assert re.search(r"\bid\b", text), text
        assert re.search(r"\bc[0-4]\b", text), text
        return False
    return True


def _with_documents(change: RowChange, columns: Sequence[str]) -> RowChange:
    """A row whose documents are such, as they may be text where they have been."""
    after = dict(change.after or {})
    for column in columns:
        text = after[column]
        if isinstance(text, str):
            after[column] = document(text)
    return msgspec.structs.replace(change, after=after)


@given(data=st.data())
@settings(_SETTINGS, max_examples=3)
def test_it_arrives_or_is_refused_by_name(ways: _Ways, data: st.DataObject) -> None:
    _check(ways, data)


@given(data=st.data())
@settings(_SETTINGS, max_examples=250)
def test_it_arrives_or_is_refused_by_name_in_many_tables(ways: _Ways, data: st.DataObject) -> None:
    _check(ways, data)
