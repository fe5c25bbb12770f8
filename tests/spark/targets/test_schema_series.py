"""Random changes of tables and rows at a source: a target is equal afterwards, or the job stops.

An earlier fault took a column of the same name for the same column, wherever the statement is in a
batch. Values of a dropped column then were those of the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pymysql
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, inspect, text

from stompkit.replication.model.events import Changeset
from stompkit.replication.sinks import ApplyError
from stompkit.replication.sql import SchemaError
from tests.effort import drawn
from tests.replication.sources.mysql.conftest import database as mysql_database
from tests.replication.sources.mysql.reading import Database as MysqlDatabase
from tests.replication.sources.mysql.reading import Reading, received
from tests.replication.sources.postgres.conftest import database as postgres_database
from tests.replication.sources.postgres.conftest import database_name
from tests.replication.sources.postgres.postgres_made import Database as PostgresDatabase
from tests.servers import MariaDb, SqlServer, mariadb, postgresql
from tests.spark.change_rows import changes_of
from tests.spark.targets.schema_series import Series
from tests.spark.targets.test_file_targets import Place
from tests.spark.targets.test_schema_changes import by_message
from tests.spark.targets.test_targets import JOB, Pipeline

__all__ = ["database_name", "mariadb", "mysql_database", "postgres_database", "postgresql"]

#: Published changes, the names of the columns, and the final rows.
Published = tuple[list[Changeset], list[str], list[tuple[Any, ...]]]
#: Runs statements, and publishes what has changed.
Run = Callable[..., None]
#: The longest series of statements between two runs of the publisher.
MOST = 4


def examples(count: int) -> Callable[[Any], Any]:
    """Return the settings of a test with servers."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=drawn(count), deadline=None, suppress_health_check=checks)


def published_by_mysql(database: MysqlDatabase, random: Random, snapshot: str) -> Published:
    """Run a random series at MariaDB; return what its publisher sends."""
    series = Series(random, is_mysql=True)
    database.run("DROP TABLE IF EXISTS t", *series.begin)
    reading = Reading(database, snapshot="initial", announce=True)
    found = reading.changesets()
    for _ in range(random.randint(1, 4)):
        for _ in range(random.randint(1, MOST)):
            with suppress(pymysql.MySQLError):
                database.run(*series.statements())
                series.done()
        found += reading.changesets(snapshot=snapshot)
    names = [series.key, *series.columns]
    return found, names, list(database.ask(f"SELECT {', '.join(names)} FROM t"))


def published_by_postgres(database: PostgresDatabase, random: Random, snapshot: str) -> Published:
    """Run a random series at PostgreSQL; return what its publisher sends."""
    series = Series(random, is_mysql=False)
    database.clear()
    database.execute(*series.begin)
    database.offsets = type(database.offsets)()
    make = partial(database.publisher, blocking=False, announce=True)
    with received() as found:
        make(database.publication(), snapshot="initial").run()
        for _ in range(random.randint(1, 4)):
            for _ in range(random.randint(1, MOST)):
                with suppress(psycopg.Error):
                    database.transaction(*series.statements())
                    series.done()
            if snapshot == "never":
                # No statement is logged: its effect is published with the next row.
                database.execute(series.insert("7"))
            make(database.publication(), snapshot=snapshot).run()
    names = [series.key, *series.columns]
    return list(found), names, database.execute(f"SELECT {', '.join(names)} FROM t")


def comparable(rows: Any) -> list[list[str]]:
    """Return rows with numbers in one form, whatever the type of their column."""
    return sorted([_number(value) for value in row] for row in rows)


def _number(value: Any) -> str:
    try:
        return str(Decimal(str(value)).normalize())
    except InvalidOperation:
        return str(value)


def cut(random: Random, items: list[Any]) -> list[list[Any]]:
    """Return consecutive groups of random sizes."""
    groups: list[list[Any]] = []
    while items:
        size = random.randint(1, len(items))
        groups.append(items[:size])
        items = items[size:]
    return groups


def apply_all(
    random: Random, found: list[Changeset], make: Callable[..., Pipeline], *, creates: bool
) -> str:
    """Apply changes in batches; return the reason of a stop.

    Without ``creates``, only the tables of the first batch are created.
    """
    messages = by_message(changes_of(found))
    made = make(create=True)
    try:
        for number, group in enumerate(cut(random, messages)):
            if number == 1 and not creates:
                made.target.close()
                made = make(create=False)
            made.run([row for rows in group for row in rows], tasks=random.randint(1, 3))
    except (ApplyError, SchemaError) as problem:
        return str(problem)
    finally:
        made.target.close()
    return ""


def check(reason: str, rows: Callable[[], Any], wanted: Any, what: str, *, may_stop: bool) -> None:
    """Check that a target is equal, or that a job has said what to do.

    Only the key may be a reason to stop where the source sends rows again, and columns may be
    created again.
    """
    event(f"{what}: {reason[:90] or 'equal'}")
    if reason:
        assert may_stop or "'id'" in reason or "'ident'" in reason or "of the key" in reason, reason
        assert "To go on" in reason
        assert "'t'" in reason or "'public.t'" in reason or ".t'" in reason
    else:
        assert comparable(rows()) == comparable(wanted)


def check_all(random: Random, published: Published, *, is_again: bool) -> None:
    """Check targets in files, and SQLite.

    With ``is_again``, the source sends changed rows again, and only the key may be a reason to
    stop. MariaDB tells the columns of a table as they are when its log is read. So a job may also
    stop at earlier values, which these columns do not hold.
    """
    found, names, wanted = published
    with TemporaryDirectory() as made:
        folder = Path(made)
        for kind in ("delta", "parquet"):
            place = Place(kind, folder / kind)
            creates = random.random() < 0.7
            reason = apply_all(random, found, partial(place.pipeline, JOB), creates=creates)
            rows = partial(place.table, "t", " ".join(names))
            check(reason, rows, wanted, kind, may_stop=not (is_again and creates))
        url = f"sqlite:///{folder / 'target.sqlite'}"
        check_database(random, published, url, "sqlite", is_again=is_again)


def check_database(
    random: Random, published: Published, url: str, what: str, *, is_again: bool
) -> None:
    """Check a pipeline into a database."""
    found, names, wanted = published

    def rows() -> Any:
        # PostgreSQL's log tells of a new column, NULL in all rows, with the next row only.
        engine = create_engine(url)
        with engine.connect() as connection:
            there = {column["name"] for column in inspect(connection).get_columns("t")}
            columns = ", ".join(name if name in there else "NULL" for name in names)
            made = connection.execute(text(f"SELECT {columns} FROM t")).all()
        engine.dispose()
        return made

    creates = random.random() < 0.7
    reason = apply_all(random, found, partial(Pipeline, url, JOB), creates=creates)
    check(reason, rows, wanted, what, may_stop=not (is_again and creates))


@pytest.mark.parametrize("snapshot", ["initial", "never"])
@examples(12)
@given(random=st.randoms(use_true_random=False))
def test_any_changes_at_mariadb_are_followed_or_stop_a_pipeline(
    mysql_database: MysqlDatabase, snapshot: str, random: Random
) -> None:
    published = published_by_mysql(mysql_database, random, snapshot)
    check_all(random, published, is_again=False)


@pytest.mark.parametrize("snapshot", ["initial", "never"])
@examples(12)
@given(random=st.randoms(use_true_random=False))
def test_any_changes_at_postgresql_are_followed_or_stop_a_pipeline(
    postgres_database: PostgresDatabase, snapshot: str, random: Random
) -> None:
    published = published_by_postgres(postgres_database, random, snapshot)
    check_all(random, published, is_again=snapshot == "initial")


@pytest.mark.matrix
@examples(20)
@given(random=st.randoms(use_true_random=False))
def test_any_changes_are_followed_in_databases_of_servers(
    mysql_database: MysqlDatabase, mariadb: MariaDb, postgresql: SqlServer, random: Random
) -> None:
    published = published_by_mysql(mysql_database, random, "initial")
    for server in (mariadb, postgresql):
        url = server.url(server.new_database())
        check_database(random, published, url, url.partition(":")[0], is_again=False)
