"""Columns of any type: commits of a program work, and a target of the same tables is equal."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from ipaddress import ip_interface
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.orm import Session, registry, sessionmaker

from stompkit.replication.model.events import decode, encode
from stompkit.replication.model.values import Json
from stompkit.replication.sinks.sql import SqlSink
from stompkit.replication.sources.session import sqlalchemy_pub
from tests.effort import drawn, effort
from tests.replication.sources.conftest import KINDS, make_engine
from tests.replication.sources.received import Received
from tests.servers import SqlServer

pytestmark = pytest.mark.filterwarnings("ignore:Dialect sqlite:sqlalchemy.exc.SAWarning")

_NUMBERS: Final = count(1)
_ZONES: Final = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))])
_TEXT: Final = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
_JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | _TEXT | st.sampled_from([0.5, 1.25]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=3,
) | st.sampled_from(['{"a": 1}', "null", "5", "[]", sa.JSON.NULL])
_DAYS: Final = timedelta(days=20_000)
_SPANS: Final = st.timedeltas(-_DAYS, _DAYS) | st.sampled_from(
    [timedelta(hours=24), timedelta(microseconds=-500_000)]
)


class Mood(enum.Enum):
    """An enumeration whose names in the program and in the database differ."""

    GLAD = 1
    SAD = 2


class Reversed(sa.TypeDecorator[str]):
    """A type that stores text backwards."""

    impl = sa.String(40)
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """Reverse it."""
        return value[::-1] if value else value

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """Reverse it back."""
        return value[::-1] if value else value


class Upper(sa.types.UserDefinedType[str]):
    """A custom type whose values the database receives through an expression."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Return the type in the database."""
        return "VARCHAR(40)"

    def bind_expression(self, bindvalue: sa.BindParameter[str]) -> sa.ColumnElement[str]:
        """Return the expression around the value."""
        return sa.func.upper(bindvalue)


_FROM, _TO = datetime(1971, 1, 1), datetime(2037, 1, 1)
_NAIVE: Final = st.datetimes(_FROM, _TO)
_MOMENTS: Final = _NAIVE | st.datetimes(_FROM, _TO, timezones=_ZONES)

_ANY: Final[list[tuple[Callable[[], Any], st.SearchStrategy[Any]]]] = [
    (sa.JSON, _JSON),
    (lambda: sa.JSON(none_as_null=True), _JSON),
    (sa.Interval, _SPANS),
    (lambda: sa.DateTime(timezone=True), _MOMENTS),
    (sa.DateTime, _MOMENTS),
    (sa.Date, st.dates() | _NAIVE),
    (sa.Time, st.times()),
    (lambda: sa.Numeric(8, 2), st.decimals(-999, 999, places=2)),
    (lambda: sa.Numeric(8, 2, asdecimal=False), st.sampled_from([0.5, 1.25, 3.0])),
    (sa.Float, st.floats(-1e6, 1e6, width=32)),
    (lambda: sa.LargeBinary(), st.binary(max_size=9) | st.binary(max_size=9).map(bytearray)),
    (sa.Boolean, st.booleans()),
    (lambda: sa.String(40), _TEXT),
    # MariaDB refuses UUIDs of undefined versions.
    (sa.Uuid, st.uuids(version=4)),
    (lambda: sa.Enum(Mood, native_enum=False), st.sampled_from(Mood)),
    (sa.PickleType, st.tuples(st.integers(), _TEXT)),
    (Reversed, _TEXT),
    (Upper, st.sampled_from(["a", "Bc"])),
]
_OF: Final[dict[str, list[tuple[Callable[[], Any], st.SearchStrategy[Any]]]]] = {
    "sqlite": [],
    "postgresql": [
        (lambda: sa.Numeric(8, 2), st.decimals(-999, 999, places=4)),
        (pg.INET, st.sampled_from(["10.0.0.1", "10.0.0.1/8", ip_interface("fe80::1/64")])),
        (pg.CIDR, st.sampled_from(["10.0.0.0/8"])),
        (pg.INT4RANGE, st.sampled_from([pg.Range(1, 5), pg.Range(empty=True), pg.Range(None, 3)])),
        (pg.JSONB, _JSON),
        (pg.INTERVAL, _SPANS),
        (lambda: pg.ARRAY(sa.Integer), st.lists(st.none() | st.integers(0, 9), max_size=3)),
        (lambda: pg.ARRAY(sa.Numeric), st.lists(st.sampled_from([Decimal("1.50")]), max_size=3)),
        (lambda: pg.ARRAY(sa.DateTime), st.lists(_NAIVE, max_size=2)),
        (lambda: pg.BIT(4), st.sampled_from(["1010"])),
        (pg.TSVECTOR, st.sampled_from(["a fat cat"])),
        (pg.MACADDR, st.sampled_from(["08:00:2b:01:02:03"])),
        (lambda: sa.Time(timezone=True), st.times(timezones=_ZONES) | st.times()),
    ],
    "mariadb": [
        (lambda: sa.Numeric(8, 2), st.decimals(-999, 999, places=4)),
        (lambda: mysql.BIT(8), st.integers(0, 255)),
        (lambda: mysql.SET("x", "y"), st.frozensets(st.sampled_from("xy")).map(set)),
        (lambda: mysql.DATETIME(fsp=3), _NAIVE),
        (lambda: mysql.TIME(fsp=6), st.timedeltas(timedelta(hours=-800), timedelta(hours=800))),
        (mysql.YEAR, st.integers(1901, 2155)),
        (mysql.JSON, _JSON),
        (lambda: mysql.DECIMAL(12, 4), st.decimals(-999, 999, places=6)),
    ],
}


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Any, Any]]:
    """A source and a target of one kind, without tables."""
    kind = request.param
    if kind == "sqlite":
        urls = [f"sqlite:///{tmp_path / name}" for name in ("source", "target")]
    else:
        server: SqlServer = request.getfixturevalue(kind)
        urls = [server.url(server.new_database()) for _ in range(2)]
    source, target = map(make_engine, urls)
    yield kind, source, target
    source.dispose()
    target.dispose()


def _shown(engine: sa.Engine, table: sa.Table, *, is_text: bool) -> list[tuple[Any, ...]]:
    """Return the rows as the database itself writes them."""
    columns = [
        sa.cast(column, sa.Text) if is_text else sa.type_coerce(column, sa.types.NullType())
        for column in table.columns
    ]
    with engine.connect() as connection:
        rows = connection.execute(sa.select(*columns).order_by(table.c.id)).all()
    return [
        tuple(
            _canonical(value) if isinstance(column.type, sa.JSON) else value
            for column, value in zip(table.columns, row, strict=True)
        )
        for row in rows
    ]


def _canonical(value: Any) -> Any:
    """Return a document without the blanks in which serializers differ."""
    return json.dumps(json.loads(value), sort_keys=True) if isinstance(value, str) else value


def _check(kind: str, source: sa.Engine, target: sa.Engine, data: st.DataObject) -> None:
    choices = _ANY + _OF[kind]
    drawn = data.draw(st.lists(st.sampled_from(choices), min_size=1, max_size=4))
    mapping = registry()
    table = sa.Table(
        f"t{next(_NUMBERS)}",
        mapping.metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("n", sa.Integer),
        *(sa.Column(f"c{place}", make()) for place, (make, _) in enumerate(drawn)),
    )
    thing: Any = type("Thing", (), {})
    mapping.map_imperatively(thing, table)

    def values() -> dict[str, Any]:
        return {
            f"c{place}": value
            for place, (_, strategy) in enumerate(drawn)
            if (value := data.draw(st.none() | strategy)) is not None or data.draw(st.booleans())
        }

    mapping.metadata.create_all(source)
    mapping.metadata.create_all(target)
    sink = SqlSink(target)
    sessions = sessionmaker(source)

    def make(id: int, **columns: Any) -> Any:
        made = thing()
        for name, value in {"id": id, "n": 0, **columns}.items():
            setattr(made, name, value)
        return made

    try:
        with Received() as received:
            pub = sqlalchemy_pub(sessions)
            with sessions.begin() as session:
                session.add_all([make(1, **values()), make(2, **values()), make(3)])
            with sessions.begin() as session:
                # The others are loaded, and stay unchanged.
                session.get_one(thing, 1).n = 2
                found = session.get_one(thing, 3)
                for name, value in values().items():
                    setattr(found, name, value)
            with sessions.begin() as session:
                session.execute(sa.update(thing).values(n=thing.n + 1))
            with sessions.begin() as session:
                session.execute(sa.insert(thing), [{"id": 4, "n": 0, **values()}])
            with sessions.begin() as session:
                session.delete(session.get_one(thing, 2))
            pub.close()
        sink.apply([decode(encode(changeset)) for changeset in received.changesets])
        is_text = kind == "postgresql"
        assert _shown(target, table, is_text=is_text) == _shown(source, table, is_text=is_text)
    finally:
        sink.close()
        mapping.metadata.drop_all(source)
        mapping.metadata.drop_all(target)
        mapping.dispose()


_SETTINGS: Final = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@given(data=st.data())
@settings(_SETTINGS, max_examples=drawn(6))
def test_a_target_of_the_same_tables_has_the_same(
    pair: tuple[str, Any, Any], data: st.DataObject
) -> None:
    _check(*pair, data)


@pytest.mark.matrix
@given(data=st.data())
@settings(_SETTINGS, max_examples=effort(150, 700))
def test_many_targets_of_the_same_tables_have_the_same(
    pair: tuple[str, Any, Any], data: st.DataObject
) -> None:
    _check(*pair, data)


def test_documents_are_told_apart_from_text_and_null(pair: tuple[str, Any, Any]) -> None:
    _, source, _ = pair
    mapping = registry()
    table = sa.Table(
        "documents",
        mapping.metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("v", sa.JSON),
    )
    thing: Any = type("Thing", (), {})
    mapping.map_imperatively(thing, table)
    mapping.metadata.create_all(source)
    given_values = ['{"a":1}', None, sa.null(), "text", True, 1.5, {"a": None}]
    sessions: sessionmaker[Session] = sessionmaker(source)
    with Received() as received:
        pub = sqlalchemy_pub(sessions)
        with sessions.begin() as session:
            for id, value in enumerate(given_values, 1):
                made = thing()
                made.id, made.v = id, value
                session.add(made)
                session.flush()
        with sessions.begin() as session:
            # They are read again, and have not changed.
            session.execute(sa.update(thing).values(v=thing.v))
        pub.close()
    expected = [
        Json('"{\\"a\\":1}"'),
        Json("null"),
        None,
        Json('"text"'),
        Json("true"),
        Json("1.5"),
        {"a": None},
    ]
    writes = [change.after for change in received.changes if change.action == "write"]
    assert [after and after["v"] for after in writes] == expected
    assert len(writes) == len(received.changes)
    mapping.dispose()


def test_a_key_of_a_type_that_only_the_database_knows(postgresql: SqlServer) -> None:
    source = make_engine(postgresql.url(postgresql.new_database()))
    mapping = registry()
    table = sa.Table(
        "hosts",
        mapping.metadata,
        sa.Column("id", pg.INET, primary_key=True),
        sa.Column("n", sa.Integer),
    )
    thing: Any = type("Thing", (), {})
    mapping.map_imperatively(thing, table)
    mapping.metadata.create_all(source)
    sessions: sessionmaker[Session] = sessionmaker(source)
    with Received() as received:
        pub = sqlalchemy_pub(sessions)
        with sessions.begin() as session:
            made = thing()
            made.id, made.n = "10.0.0.1/32", 1
            session.add(made)
        with sessions.begin() as session:
            session.execute(sa.update(thing).values(n=2))
        with sessions.begin() as session:
            session.delete(session.scalars(sa.select(thing)).one())
        pub.close()
    source.dispose()
    mapping.dispose()
    # As the database writes it.
    assert [change.key for change in received.changes] == [{"id": "10.0.0.1/32"}] * 3
