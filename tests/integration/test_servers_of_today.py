"""Databases that ``make servers`` downloads run like installed ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import create_engine, text

from stompkit.testing.launching.fetched import cache_folder, fetched, how_to_fetch
from tests.servers import MariaDb, MySql, PostgreSql, ServerMissing, SqlServer

KINDS: Final[dict[str, type[SqlServer]]] = {
    "postgresql-18": PostgreSql,
    "mariadb-11.8": MariaDb,
    "mysql-9": MySql,
}
VERSION: Final = {
    "postgresql-18": "SHOW server_version",
    "mariadb-11.8": "SELECT version()",
    "mysql-9": "SELECT version()",
}

pytestmark = pytest.mark.matrix


@pytest.fixture(params=KINDS)
def name(request: pytest.FixtureRequest) -> str:
    """Name of a current server."""
    found: str = request.param
    return found


@pytest.fixture
def server(name: str) -> Iterator[SqlServer]:
    """The running server."""
    kind = KINDS[name]
    release = next((each for each in fetched(kind.kind) if each.name == name), None)
    if release is None:
        pytest.skip(f"{name} is not there: {how_to_fetch(name)}")
    try:
        made = kind(release)
    except ServerMissing as missing:
        pytest.skip(str(missing))
    with made:
        yield made


def value(server: SqlServer, database: str, *statements: str) -> str:
    """Return the result of the last statement."""
    engine = create_engine(server.url(database), isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            *before, last = statements
            for statement in before:
                connection.execute(text(statement))
            return str(connection.execute(text(last)).scalar_one())
    finally:
        engine.dispose()


def test_a_server_of_today_runs_and_keeps_its_data(server: SqlServer, name: str) -> None:
    wanted = name.rpartition("-")[2]
    database = server.new_database()
    assert value(server, database, VERSION[name]).startswith(f"{wanted}.")
    insert = ("CREATE TABLE t (n int PRIMARY KEY)", "INSERT INTO t VALUES (42)")
    assert value(server, database, *insert, "SELECT n FROM t") == "42"
    server.kill()
    server.start()
    assert value(server, database, "SELECT n FROM t") == "42"
    assert str(cache_folder()) not in Path("/proc/mounts").read_text()
    server.remove()
    assert not server.directory.exists()


def test_mysql_is_set_up_for_replication(server: SqlServer, name: str) -> None:
    if name != "mysql-9":
        pytest.skip("only MySQL has these settings")
    for setting, wanted in {
        "binlog_format": "ROW",
        "binlog_row_metadata": "FULL",
        "gtid_mode": "ON",
        "log_bin": "1",
    }.items():
        assert value(server, "mysql", f"SELECT @@{setting}") == wanted
