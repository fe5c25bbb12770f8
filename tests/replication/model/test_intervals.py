"""Intervals of PostgreSQL arrive in each kind of database and come back the same, or are refused.

``1 day`` is not ``24:00:00``, and a month is not a number of days.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import Interval
from stompkit.replication.sinks import ApplyError
from tests.effort import drawn
from tests.replication.drawn_tables import Side, SourceSide, SqliteSide, apply, opened
from tests.servers import mariadb, postgresql

__all__ = ["mariadb", "postgresql"]

_NUMBERS: Final = count(1)
_SETTINGS: Final = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
_DAY_US: Final = 86_400_000_000
_COLUMNS: Final = ("c0 interval", "c1 span")
_PARTS: Final = st.tuples(
    st.integers(-30, 30) | st.just(0) | st.integers(-(2**31) + 1, 2**31 - 1),
    st.integers(-3, 3) | st.just(0) | st.integers(-(2**31) + 1, 2**31 - 1),
    st.sampled_from([0, 1, -1, _DAY_US, -_DAY_US, _DAY_US + 1, -500_000])
    | st.integers(-(10**17), 10**17),
)
_Parts = tuple[int, int, int]
_Ways = tuple[SourceSide, Side, SourceSide]


@pytest.fixture(params=["postgresql", "mariadb", "sqlite"])
def ways(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[_Ways]:
    """A PostgreSQL database, one of some kind, and another PostgreSQL database."""
    server = request.getfixturevalue("postgresql")
    with ExitStack() as stack:
        other: Side = (
            SqliteSide(tmp_path / "target")
            if request.param == "sqlite"
            else opened(request.getfixturevalue(request.param), stack)
        )
        yield opened(server, stack), other, opened(server, stack)


@pytest.fixture(params=["mariadb", "postgresql"])
def numbers(request: pytest.FixtureRequest) -> Iterator[tuple[SourceSide, SourceSide]]:
    """A PostgreSQL database, and one that takes intervals into columns of numbers."""
    servers = [request.getfixturevalue(kind) for kind in ("postgresql", request.param)]
    with ExitStack() as stack:
        yield opened(servers[0], stack), opened(servers[1], stack)


def _expression(parts: _Parts | None) -> str:
    if parts is None:
        return "NULL"
    months, days, microseconds = parts
    return (
        f"(make_interval(months => {months}, days => {days})"
        f" + interval '{microseconds} microseconds')"
    )


def _insert(source: SourceSide, name: str, rows: Sequence[_Parts | None]) -> list[RowChange]:
    """Create a table with these intervals, and return a snapshot of it."""
    source.make(name, _COLUMNS)
    written = [f"({at}, {', '.join([_expression(row)] * 2)})" for at, row in enumerate(rows)]
    source.insert(name, written)
    return source.read(name)


@given(rows=st.lists(st.none() | _PARTS, min_size=1, max_size=12))
@settings(_SETTINGS, max_examples=drawn(15))
def test_they_come_back_as_they_were(ways: _Ways, rows: list[_Parts | None]) -> None:
    source, other, back = ways
    name = f"t{next(_NUMBERS)}"
    try:
        apply(other.url, _insert(source, name, rows), create=True)
        back.make(name, _COLUMNS)
        returning = [change for change in other.read(name) if change.action == "read"]
        apply(back.url, returning, create=False)
        assert back.shown(name, _COLUMNS) == source.shown(name, _COLUMNS)
    finally:
        for side in ways:
            side.drop(name)


@given(parts=_PARTS)
@example(parts=(0, 0, 9_007_199_254_740_993))
@settings(_SETTINGS, max_examples=drawn(8))
def test_a_column_of_numbers_takes_those_of_time_and_refuses_others(
    numbers: tuple[SourceSide, SourceSide], parts: _Parts
) -> None:
    source, target = numbers
    name = f"n{next(_NUMBERS)}"
    changes = _insert(source, name, [parts])
    target.make(name, ["c0 BIGINT", "c1 BIGINT"])
    months, days, microseconds = parts
    if not months and not days:
        apply(target.url, changes, create=False)
        assert target.shown(name, _COLUMNS) in (
            [[microseconds, microseconds]],
            [[str(microseconds), str(microseconds)]],
        )
        return
    text = re.escape(str(Interval(months, days, microseconds)))
    reason = rf"table 'public\.{name}', key {{'id': 0}}: column 'c0': {text} has (days|months)"
    with pytest.raises(ApplyError, match=reason):
        apply(target.url, changes, create=False)
    assert target.shown(name, _COLUMNS) == []
