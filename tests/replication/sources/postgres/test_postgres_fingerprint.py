"""A change of the catalogue that a survey would see changes its fingerprint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stompkit.replication.sources.postgres._catalogue import read_tables
from stompkit.replication.sources.postgres._connections import Connection
from stompkit.replication.sources.postgres._fingerprint import fingerprint
from stompkit.replication.sources.postgres._snapshot import published_rows
from tests.effort import drawn
from tests.replication.sources.postgres.postgres_made import Database

_SETTINGS: Final = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_TABLES: Final = ("x.a", "x.b", "y.a", "y.b")
#: Tables that may be unlogged, since a published one may not.
_UNPUBLISHED: Final = ("x.c", "y.c")
_MADE: Final = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE TYPE pair AS (a int, b mood)",
    "CREATE SCHEMA x",
    "CREATE SCHEMA y",
    *(
        f"CREATE TABLE {name} (id int PRIMARY KEY, v text, w text, m mood, p pair,"
        " u int NOT NULL UNIQUE)"
        for name in _TABLES
    ),
    *(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in _UNPUBLISHED),
    "CREATE PUBLICATION pub FOR TABLE x.a, x.b",
)


def _exchange(rename: str, *names: str) -> list[str]:
    """Return statements by which objects exchange their names in a circle."""
    first, *others = names
    steps = [(first, "of_before"), *zip(others, names, strict=False), ("of_before", names[-1])]
    return [rename.format(old, new) for old, new in steps]


def _properties(
    statement: str, *values: str, tables: Sequence[str] = _TABLES
) -> st.SearchStrategy[list[str]]:
    """Draw statements that give several tables one of the values each."""
    return st.tuples(*[st.sampled_from(values)] * len(tables)).map(
        lambda found: [
            statement.format(table, value) for table, value in zip(tables, found, strict=True)
        ]
    )


_table: Final = st.sampled_from(_TABLES)
#: Changes that keep every property of the catalogue, and only exchange who has it, and others.
_CHANGES: Final = st.one_of(
    st.sampled_from("xy").map(
        lambda schema: _exchange(f"ALTER TABLE {schema}.{{}} RENAME TO {{}}", "a", "b")
    ),
    st.just(_exchange("ALTER SCHEMA {} RENAME TO {}", "x", "y")),
    _table.map(lambda table: _exchange(f"ALTER TABLE {table} RENAME {{}} TO {{}}", "v", "w")),
    _table.map(lambda table: _exchange(f"ALTER TABLE {table} RENAME {{}} TO {{}}", "v", "id", "u")),
    _table.map(
        lambda table: [
            f"ALTER TABLE {table} DROP COLUMN v",
            f"ALTER TABLE {table} ADD COLUMN v text",
        ]
    ),
    st.just(_exchange("ALTER TYPE mood RENAME VALUE '{}' TO '{}'", "sad", "ok")),
    st.just(_exchange("ALTER TYPE pair RENAME ATTRIBUTE {} TO {}", "a", "b")),
    st.just(["ALTER TYPE pair DROP ATTRIBUTE a", "ALTER TYPE pair ADD ATTRIBUTE a int"]),
    _properties("ALTER TABLE {} REPLICA IDENTITY {}", "FULL", "DEFAULT", "NOTHING"),
    _properties("ALTER TABLE {} SET {}", "LOGGED", "UNLOGGED", tables=_UNPUBLISHED),
    _properties("ALTER TABLE {} ALTER w TYPE {} USING NULL", "text", "int", "varchar(9)"),
    st.lists(_table, min_size=1, unique=True).map(
        lambda tables: [f"ALTER PUBLICATION pub SET TABLE {', '.join(tables)}"]
    ),
)


def _seen(connection: Connection) -> tuple[Any, ...]:
    """Return all that a survey reads; estimates of rows may change on their own."""
    tables = [
        (table.place, table.relation, table.key, table.nullable, table.numbers, table.plain)
        for table in read_tables(connection).values()
    ]
    forms = [table.types for table in read_tables(connection).values()]
    return tables, forms, published_rows(connection, "pub")


@given(changes=st.lists(_CHANGES, min_size=1, max_size=2))
@settings(_SETTINGS, max_examples=drawn(20))
def test_what_a_survey_would_see_changes_the_fingerprint(
    database: Database, changes: list[list[str]]
) -> None:
    with database.connect() as connection:
        if not database.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'x'"):
            database.execute(*_MADE)
        before, first = _seen(connection), fingerprint(connection)
        with connection.transaction():
            for statement in (each for change in changes for each in change):
                connection.execute(statement.encode())
        assert _seen(connection) == before or fingerprint(connection) != first
