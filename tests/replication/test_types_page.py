"""The page of types agrees with the code, and with the servers' descriptions of their types."""

from __future__ import annotations

import runpy
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from tests.replication.sources.mysql.reading import Database, Reading
from tests.servers import MariaDb, SqlServer, mariadb, postgresql

__all__ = ["mariadb", "postgresql"]

_GENERATOR: Final = Path(__file__).parents[2] / "docs" / "make_types.py"
#: Types that only newer servers have.
_NEWER: Final = {"VECTOR(3)"}
_ENUM: Final = "ENUM('a')"
_SET: Final = "SET('a')"
#: The attributes of a type in a change ``schema``.
_SAID: Final = ("type", "precision", "scale", "length", "unsigned", "native")


@pytest.fixture(scope="module")
def generator() -> dict[str, Any]:
    return runpy.run_path(str(_GENERATOR))


@pytest.fixture
def database(mariadb: MariaDb) -> Iterator[Database]:
    with closing(Database(mariadb)) as database:
        yield database


def test_the_page_is_that_of_the_code(
    generator: Mapping[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert generator["main"](["--check"]) == 0, capsys.readouterr().err


def test_a_page_that_is_not_of_the_code_is_told(
    generator: Mapping[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--into", str(tmp_path)]
    assert generator["main"](["--check", *arguments]) == 1
    assert generator["main"](arguments) == 0
    assert generator["main"](["--check", *arguments]) == 0
    page = tmp_path / "replication-types.rst"
    page.write_text(page.read_text().replace("LONGBLOB", "BLOB"))
    assert generator["main"](["--check", *arguments]) == 1
    assert "make_types.py" in capsys.readouterr().err


def test_types_of_postgresql_have_their_names(
    generator: Mapping[str, Any], postgresql: SqlServer
) -> None:
    types: Mapping[str, tuple[int, int]] = generator["POSTGRESQL"]
    url = postgresql.url("postgres").replace("+psycopg", "")
    with psycopg.connect(url) as connection:
        columns = ", ".join(f"c{number} {name}" for number, name in enumerate(types))
        connection.execute(f"CREATE TEMPORARY TABLE all_types ({columns})".encode())
        found = connection.execute(
            "SELECT format_type(atttypid, atttypmod), atttypid::bigint, atttypmod "
            "FROM pg_attribute WHERE attrelid = 'all_types'::regclass AND attnum > 0"
        ).fetchall()
    assert {name: (oid, modifier) for name, oid, modifier in found} == types


def test_types_of_mariadb_are_told_so(generator: Mapping[str, Any], database: Database) -> None:
    types = {name: told for name, told in generator["MYSQL"].items() if name not in _NEWER}
    reading = Reading(database)
    columns = [
        f"`{name}` {name.replace('ENUM', _ENUM) if name != 'SET' else _SET}" for name in types
    ]
    database.run(f"CREATE TABLE t ({', '.join(columns)})")
    (change,) = reading.changes()
    found = {
        each["name"]: {part: said for part, said in each.items() if part in _SAID}
        for each in (change.after or {})["columns"]
    }
    assert found == types
