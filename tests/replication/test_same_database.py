"""A database of the same kind accepts all rows of a database: tables drawn by Hypothesis.

A table of some types and its rows are read as a snapshot of a real server. They are encoded,
decoded, and written into another database of the server. Its table is created the same way or by
``create``. The server's own text of all values must be equal. Each row of a table without a key
must be found again by its values.
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

from stompkit.replication.model.events import RowChange
from tests.effort import drawn, effort
from tests.replication.drawn_tables import SourceSide, apply, draw_rows, opened
from tests.servers import SqlServer, mariadb, mysql, postgresql

__all__ = ["mariadb", "mysql", "postgresql"]

_NUMBERS: Final = count(1)
_SETTINGS: Final = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
_Pair = tuple[SourceSide, SourceSide]


def _without_key(change: RowChange) -> RowChange:
    """Return a change as that of a table without a key."""
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
        # The rows are applied in another order than they arrived.
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
        # `make servers` fetches a real MySQL.
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
@settings(_SETTINGS, max_examples=effort(200, 1000))
def test_it_takes_back_what_it_writes_in_many_tables(pair: _Pair, data: st.DataObject) -> None:
    _check(pair, data)
