"""What a database writes, the same kind of database takes back: tables that Hypothesis draws.

A table of some types and its rows come from a snapshot of a real server, go through the form on the
wire, and into another database of the server, whose table is made the same way or by ``create``.
The server's own text of all values has to be equal; and each row of a table without a key has to be
found again by what it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stompkit.replication.events import RowChange
from tests.effort import drawn
from tests.replication.drawn_tables import SourceSide, apply, draw_rows, opened
from tests.servers import SqlServer, mariadb, mysql, postgresql

__all__ = ["mariadb", "mysql", "postgresql"]

_NUMBERS: Final = count(1)
_SETTINGS: Final = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
_Pair = tuple[SourceSide, SourceSide]


def _without_key(change: RowChange) -> RowChange:
    """A row as one of a table without a key goes."""
    before = {**change.key, **(change.after or {})}
    return msgspec.structs.replace(change, action="delete", key={}, before=before, after=None)


def _check(pair: _Pair, data: st.DataObject) -> None:
    source, target = pair
    name = f"t{next(_NUMBERS)}"
    columns, rows = draw_rows(data, source.types)
    is_made = data.draw(st.booleans())
    try:
        source.make(name, columns)
        source.insert(name, rows)
        changes = source.read(name)
        if not is_made:
            target.make(name, columns)
        apply(target.url, changes, create=is_made)
        assert target.shown(name, columns) == source.shown(name, columns)
        # The rows go in another order than they have come.
        read = [change for change in changes if change.action == "read"]
        apply(target.url, [_without_key(change) for change in reversed(read)], create=False)
        assert target.shown(name, columns) == []
    finally:
        source.drop(name)
        target.drop(name)


@pytest.fixture(
    params=[
        "postgresql",
        "mariadb",
        # A real MySQL is one that `make servers` fetches.
        pytest.param("mysql", marks=pytest.mark.matrix),
    ]
)
def pair(request: pytest.FixtureRequest) -> Iterator[_Pair]:
    """Two databases of one server."""
    server: SqlServer = request.getfixturevalue(request.param)
    with ExitStack() as stack:
        yield opened(server, stack), opened(server, stack)


@given(data=st.data())
@settings(_SETTINGS, max_examples=drawn(6))
def test_it_takes_back_what_it_writes(pair: _Pair, data: st.DataObject) -> None:
    _check(pair, data)


@pytest.mark.matrix
@given(data=st.data())
@settings(_SETTINGS, max_examples=drawn(1000))
def test_it_takes_back_what_it_writes_in_many_tables(pair: _Pair, data: st.DataObject) -> None:
    _check(pair, data)
