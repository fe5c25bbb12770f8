"""Jobs that end after a snapshot leave no row of it waiting."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import pytest
from sqlalchemy import create_engine, text

from stompkit.replication.jobs import Job, JobSettings
from tests.effort import in_matrix
from tests.servers import SqlServer, mariadb, postgresql

__all__ = ["mariadb", "postgresql"]

TABLES: Final = (
    "CREATE TABLE employee (id INT PRIMARY KEY, boss INT,"
    " FOREIGN KEY (boss) REFERENCES employee (id))",
    "CREATE TABLE account (id INT PRIMARY KEY, profile INT)",
    "CREATE TABLE profile (id INT PRIMARY KEY, account INT NOT NULL,"
    " FOREIGN KEY (account) REFERENCES account (id))",
    "ALTER TABLE account ADD FOREIGN KEY (profile) REFERENCES profile (id)",
)
#: Each row refers to the next one, and the last to the first; two tables refer to each other.
ROWS: Final = (
    "INSERT INTO employee VALUES (1, NULL), (2, NULL), (3, NULL), (4, NULL)",
    "UPDATE employee SET boss = id % 4 + 1",
    "INSERT INTO account VALUES (1, NULL), (2, NULL)",
    "INSERT INTO profile VALUES (7, 1), (8, 2)",
    "UPDATE account SET profile = id + 6",
)
NAMES: Final = ("employee", "account", "profile")


def rows(url: str) -> list[list[tuple[object, ...]]]:
    """Return all rows of all tables."""
    engine = create_engine(url)
    with engine.connect() as connection:
        found = [connection.execute(text(f"SELECT * FROM {each} ORDER BY id")) for each in NAMES]
        all_rows = [[tuple(row) for row in each] for each in found]
    engine.dispose()
    return all_rows


def run(url: str, *statements: str) -> None:
    """Run statements in one transaction."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for each in statements:
            connection.execute(text(each))
    engine.dispose()


@pytest.mark.parametrize("snapshot", ["initial", in_matrix("only")])
@pytest.mark.parametrize("target", ["postgresql", "mariadb"])
@pytest.mark.parametrize("source", ["postgresql", "mariadb"])
def test_rows_in_circles_are_there_when_the_job_has_ended(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    source: str,
    target: str,
    snapshot: Literal["initial", "only"],
) -> None:
    servers: list[SqlServer] = [request.getfixturevalue(each) for each in (source, target)]
    here, there = (server.url(server.new_database()) for server in servers)
    run(here, *TABLES, *ROWS)
    run(there, *TABLES)
    # URLs in the form of users, without the driver of SQLAlchemy.
    urls = [url.replace("+psycopg", "").replace("+pymysql", "") for url in (here, there)]
    settings = JobSettings(
        source=urls[0],
        to=urls[1],
        name="circles",
        slot=f"circles_{source}_{target}_{snapshot}",
        snapshot=snapshot,
        once=True,
        state_dir=str(tmp_path),
    )
    Job(settings).run()
    assert rows(there) == rows(here)
    run(here, "INSERT INTO employee VALUES (9, 1)", "UPDATE employee SET boss = 9 WHERE id = 1")
    Job(settings).run()
    if snapshot == "initial":
        assert rows(there) == rows(here)
