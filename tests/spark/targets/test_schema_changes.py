"""Changes of tables at a source: pipelines apply them, or stop with an instruction.

The cases are those of the page on sources, read from real servers. An earlier fault treated a
change ``schema`` as one that only adds columns, without a position among the other changes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stompkit.replication.sinks import ApplyError
from stompkit.replication.sources.postgres._survey import TableLostError
from stompkit.replication.sql import SchemaError
from tests.replication.sources.mysql import test_definitions as mysql_cases
from tests.replication.sources.mysql.conftest import database as mysql_database
from tests.replication.sources.mysql.reading import Database as MysqlDatabase
from tests.replication.sources.mysql.reading import Reading, received
from tests.replication.sources.postgres import test_postgres_ddl as postgres_cases
from tests.replication.sources.postgres.conftest import database as postgres_database
from tests.replication.sources.postgres.conftest import database_name
from tests.replication.sources.postgres.postgres_made import Database as PostgresDatabase
from tests.servers import mariadb, postgresql
from tests.spark.change_rows import changes_of
from tests.spark.targets.test_file_targets import Place
from tests.spark.targets.test_targets import JOB, Pipeline

__all__ = ["database_name", "mariadb", "mysql_database", "postgres_database", "postgresql"]

Rows = list[dict[str, Any]]
#: Statements, the table that must be equal afterwards, and its columns.
Case = mysql_cases.Case | postgres_cases.Case


class Told(NamedTuple):
    """The published changes of a source, and the final contents of a table."""

    rows: Rows
    table: list[tuple[Any, ...]]


#: The other cases run in the matrix lane.
QUICK = {
    "DROP, CREATE",
    "RENAME of a table",
    "DROP and ADD of a column",
    "ADD with DEFAULT",
    "RENAME of a column",
    "RENAME of the key",
    "CHANGE of the key",
    "MODIFY",
    "TYPE",
}
#: Files keep the names of columns: the key cannot be renamed there.
FILES_STOP_AT = {"CHANGE of the key", "RENAME of the key"}
#: Rows without identification cannot be found in files.
FILES_REFUSE = {"without a key"}


def names_of(cases: Iterable[str]) -> list[Any]:
    return [pytest.param(each, marks=() if each in QUICK else pytest.mark.matrix) for each in cases]


def texts(rows: Iterable[Sequence[Any]]) -> list[list[str]]:
    """Return comparable rows: a text column has numbers as text."""
    return sorted([str(value) for value in row] for row in rows)


def of_mysql(database: MysqlDatabase, case: Case, snapshot: str) -> Told:
    database.run(mysql_cases.TABLE, mysql_cases.ROWS)
    reading = Reading(database, snapshot="initial", announce=True)
    found = reading.changesets()
    database.run(*case.statements)
    found += reading.changesets(snapshot=snapshot)
    return Told(changes_of(found), list(database.ask(f"SELECT {case.columns} FROM {case.table}")))


def of_postgres(database: PostgresDatabase, case: Case, snapshot: str) -> Told:
    database.execute(postgres_cases.TABLE, postgres_cases.ROWS)
    make = partial(database.publisher, blocking=False, announce=True)
    publication = database.publication()
    with received() as found:
        make(publication, snapshot="initial").run()
        database.execute(*case.statements)
        if snapshot == "never":
            # No statement is logged: its effect is published with the next row.
            database.execute(f"UPDATE {case.table} SET a = a")
        make(database.publication(), snapshot=snapshot).run()
    return Told(changes_of(found), database.execute(f"SELECT {case.columns} FROM {case.table}"))


def by_message(rows: Rows) -> list[Rows]:
    return [list(group) for _, group in groupby(rows, lambda row: row["_ordinal"])]


def run_all(pipeline: Pipeline, batches: Sequence[Rows]) -> str:
    """Apply batches; return the reason of a stop."""
    try:
        for rows in batches:
            pipeline.run(rows, tasks=min(len(by_message(rows)), 3))
    except (ApplyError, SchemaError) as problem:
        return str(problem)
    return ""


def in_sqlite(path: Path, case: Case) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT {case.columns} FROM {case.table}").fetchall()


def check(told: Told, case: Case, what: str, folder: Path, *, may_stop: bool = False) -> None:
    """Apply the changes of a source to targets of each kind, at once and message by message."""
    for number, batches in enumerate([[told.rows], by_message(told.rows)]):
        path = folder / f"{number}.sqlite"
        pipeline = Pipeline(f"sqlite:///{path}", JOB, create=True)
        reason = run_all(pipeline, batches)
        pipeline.target.close()
        if reason:
            assert may_stop, reason
            assert "To go on" in reason
        else:
            assert texts(in_sqlite(path, case)) == texts(told.table)
        for kind in ("delta", "parquet"):
            place = Place(kind, folder / f"{kind}-{number}")
            reason = run_all(place.pipeline(), batches)
            if reason:
                assert may_stop or what in {*FILES_STOP_AT, *FILES_REFUSE}, reason
                assert "To go on" in reason
            else:
                names = case.columns.replace(",", "")
                assert texts(place.table(case.table, names)) == texts(told.table)


@pytest.mark.parametrize("what", names_of(mysql_cases.CASES))
def test_changes_of_tables_at_mariadb_are_followed(
    mysql_database: MysqlDatabase, tmp_path: Path, what: str
) -> None:
    case = mysql_cases.CASES[what]
    check(of_mysql(mysql_database, case, "initial"), case, what, tmp_path)


@pytest.mark.parametrize("what", names_of(postgres_cases.CASES))
def test_changes_of_tables_at_postgresql_are_followed(
    postgres_database: PostgresDatabase, tmp_path: Path, what: str
) -> None:
    case = postgres_cases.CASES[what]
    check(of_postgres(postgres_database, case, "initial"), case, what, tmp_path)


@pytest.mark.parametrize("what", names_of(mysql_cases.CASES))
def test_what_mariadb_does_not_tell_again_stops_a_pipeline(
    mysql_database: MysqlDatabase, tmp_path: Path, what: str
) -> None:
    case = mysql_cases.CASES[what]
    check(of_mysql(mysql_database, case, "never"), case, what, tmp_path, may_stop=True)


@pytest.mark.parametrize(
    "what", names_of(each for each in postgres_cases.CASES if each != "a new table")
)
def test_what_postgresql_does_not_tell_again_stops_a_pipeline(
    postgres_database: PostgresDatabase, tmp_path: Path, what: str
) -> None:
    case = postgres_cases.CASES[what]
    try:
        told = of_postgres(postgres_database, case, "never")
    except TableLostError as problem:
        assert "ALTER PUBLICATION" in str(problem)
        assert "bring its rows" in str(problem)
        return
    check(told, case, what, tmp_path, may_stop=True)
