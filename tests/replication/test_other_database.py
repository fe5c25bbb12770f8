"""The rows of a database arrive in one of another kind, or are refused by name.

A table that Hypothesis draws is copied into another kind of database, and from there back into the
original kind. The option ``create`` makes the tables. The original server would show any value that
was silently changed on the way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import make_url

from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import document
from stompkit.replication.sinks import ApplyError
from tests.effort import drawn, effort
from tests.replication.drawn_tables import (
    Side,
    SourceSide,
    SqliteSide,
    apply,
    draw_rows,
    opened,
)
from tests.servers import mariadb, mysql, postgresql

__all__ = ["mariadb", "mysql", "postgresql"]

#: It takes minutes, and `make servers` fetches a real MySQL.
pytestmark = pytest.mark.matrix

_NUMBERS: Final = count(1)
_SETTINGS: Final = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
_NO_DATE: Final = re.compile(r"0000-00-00|2026-00-11|2026-02-31")
_FLOAT: Final = re.compile(r" (float[48]|FLOAT|DOUBLE)")
#: Features that a kind of database lacks, by types of the source: all else arrives, or returns.
_MOMENT: Final = re.compile(r"^c\d (date|timestamp|timestamptz)\b")
_REFUSED: Final = (
    # Dates that are infinite, BC or after 9999.
    (("mysql", "sqlite"), _MOMENT, re.compile(r"str '.*' is not a (date|time)\b")),
    (("sqlite",), re.compile(r"^c\d time$"), re.compile(r"'24:00:00' is not a time of a day\b")),
    (("mysql",), _FLOAT, re.compile(r"(nan|-?inf) is not a number that it has\b")),
    (("sqlite",), _FLOAT, re.compile(r"nan is not a number that it has\b")),
)
_Ways = tuple[SourceSide, Side, SourceSide]
_SOURCES: Final = ("postgresql", "mariadb", "mysql")


@pytest.fixture(
    params=[
        pytest.param((source, target), id=f"{source}-{target}")
        for source in _SOURCES
        for target in (*_SOURCES, "sqlite")
        if source != target
    ]
)
def ways(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[_Ways]:
    """A database, one of another kind, and again one of the first kind."""
    source, target = request.param
    with ExitStack() as stack:

        def made(kind: str) -> SourceSide:
            return opened(request.getfixturevalue(kind), stack)

        other = SqliteSide(tmp_path / "target") if target == "sqlite" else made(target)
        yield made(source), other, made(source)


def _check(ways: _Ways, data: st.DataObject) -> None:
    source, other, back = ways
    name = f"t{next(_NUMBERS)}"
    columns, rows = draw_rows(data, source.types)
    try:
        source.make(name, columns)
        source.insert(name, rows)
        # An invalid date is NULL elsewhere.
        back.make(name, [column.replace(" NOT NULL", "") for column in columns])
        changes = source.read(name)
        if not _arrives(other.url, changes, columns):
            return
        returning = [change for change in other.read(name) if change.action == "read"]
        assert len(returning) == len(rows)
        returning = [_as_they_were(change, columns) for change in returning]
        # All arrived rows are copied back.
        apply(back.url, returning, create=False)
        shown = [side.shown(name, columns) for side in (back, source)]
        returned, sent = (_held(columns, rows) for rows in shown)
        assert returned == sent
    finally:
        for side in ways:
            side.drop(name)


def _held(columns: Sequence[str], rows: list[list[Any]]) -> list[list[Any]]:
    """Return rows without features that databases of other kinds lack.

    Invalid dates are NULL there, and the negative zero of floating-point numbers is zero.
    """
    are_floats = [_FLOAT.search(column) is not None for column in columns]
    return [
        [
            None if _is_no_date(value) else value if not is_float else _without_sign(value)
            for is_float, value in zip(are_floats, row, strict=True)
        ]
        for row in rows
    ]


def _without_sign(value: Any) -> Any:
    """Return a number, or the text of one, with zero for a negative zero."""
    return value[1:] if value in ("-0", "-0.0") else value


def _is_no_date(value: Any) -> bool:
    # The driver returns text for dates that Python lacks.
    return isinstance(value, str) and _NO_DATE.match(value) is not None


def _arrives(url: str, changes: Sequence[RowChange], columns: Sequence[str]) -> bool:
    """Return True if all rows arrive; check that a refusal names a value that the target lacks."""
    try:
        apply(url, changes, create=True)
    except ApplyError as problem:
        text = str(problem)
        found = re.search(
            r"the table '(?P<table>.*?)', key \{'id': (?P<id>\d)\}: column '(?P<column>c\d)': "
            r"(?P<reason>.*): make the target's column one .* or leave the column out",
            text,
        )
        assert found is not None, text
        (change,) = [each for each in changes if each.key == {"id": int(found["id"])}]
        assert found["table"] == change.name, text
        value = str((change.after or {})[found["column"]])
        assert value[:40] in found["reason"], text
        type_ = columns[int(found["column"][1:])]
        kind = make_url(url).get_backend_name().replace("mariadb", "mysql")
        assert any(
            kind in kinds and types.search(type_) and reason.search(found["reason"])
            for kinds, types, reason in _REFUSED
        ), text
        return False
    return True


def _as_they_were(change: RowChange, columns: Sequence[str]) -> RowChange:
    """Return a row with values as in the source, if they were text or numbers."""
    after = dict(change.after or {})
    for place, column in enumerate(columns):
        name, value = f"c{place}", after[f"c{place}"]
        if " json" in column.lower() and isinstance(value, str):
            after[name] = document(value)
        elif " TIME(" in column and isinstance(value, int):
            after[name] = timedelta(microseconds=value)
    return msgspec.structs.replace(change, after=after)


@given(data=st.data())
@settings(_SETTINGS, max_examples=drawn(3))
def test_it_arrives_or_is_refused_by_name(ways: _Ways, data: st.DataObject) -> None:
    _check(ways, data)


@given(data=st.data())
@settings(_SETTINGS, max_examples=effort(60, 250))
def test_it_arrives_or_is_refused_by_name_in_many_tables(ways: _Ways, data: st.DataObject) -> None:
    _check(ways, data)
