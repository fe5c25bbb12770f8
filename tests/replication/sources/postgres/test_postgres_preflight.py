"""All faults are reported at once before the start; secrets are never shown."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import count
from typing import Final

import psycopg
import pytest

from stompkit.replication.model.tables import Tables
from stompkit.replication.model.values import Json
from stompkit.replication.sources.postgres import Dsn, PostgresPublisher, PreflightError
from stompkit.testing.launching.polling import wait_until
from tests.replication.sources.postgres.postgres_made import DEADLINE_S, Database, Running
from tests.servers import PostgreSql, SqlServer

_SECRET = "hunter2&x"
_QUOTED = "hunter2%26x"


class _BareServer(PostgreSql):
    """A server that is not configured for logical replication."""

    def _command(self) -> list[str]:
        settings = ("wal_level=replica", "max_replication_slots=1")
        return [*super()._command(), *(part for each in settings for part in ("-c", each))]


@pytest.fixture(scope="module")
def bare_server(postgresql: SqlServer) -> Iterator[PostgreSql]:
    """A server of that kind."""
    with _BareServer() as server:
        yield server


def _problems(database: Database, tables: Tables | None = None) -> str:
    """Return the problems that the publisher reports, a line each."""
    with pytest.raises(PreflightError) as raised:
        database.read(tables)
    assert str(raised.value).splitlines() == list(raised.value.problems)
    return str(raised.value)


def test_all_mistakes_are_named_at_once_with_what_to_do(bare_server: PostgreSql) -> None:
    database = Database(bare_server, bare_server.new_database())
    database.execute(
        "CREATE ROLE reader LOGIN",
        "CREATE TABLE t (v int)",
        "SELECT pg_create_physical_replication_slot('taken')",
    )
    database.user = "reader"
    problems = _problems(database).splitlines()
    wanted = [
        "ALTER SYSTEM SET wal_level = 'logical'",
        "ALTER ROLE reader REPLICATION",
        "raise max_replication_slots",
        f"GRANT CREATE ON DATABASE {database.name} TO reader",
        "tables of other owners (public.t)",
        "public.t has nothing that identifies its rows",
    ]
    assert len(problems) == len(wanted)
    for problem, what in zip(problems, wanted, strict=True):
        assert what in problem


def test_table_whose_updates_would_fail_is_refused_unless_it_is_excluded(
    database: Database,
) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE logs (v int)",
        "CREATE TABLE none (id int PRIMARY KEY)",
        "ALTER TABLE none REPLICA IDENTITY NOTHING",
    )
    problems = _problems(database)
    assert "public.logs has nothing" in problems
    assert "ALTER TABLE public.logs REPLICA IDENTITY FULL, or exclude it" in problems
    assert "public.none has nothing" in problems
    assert database.execute("SELECT * FROM pg_publication") == []
    database.begin(Tables(exclude=["logs", "none"]))
    database.execute("INSERT INTO logs VALUES (1)", "UPDATE logs SET v = 2")


def test_user_that_is_no_superuser_publishes_its_own_tables(database: Database) -> None:
    role = f"owner_{database.slot}"
    database.execute(
        f"CREATE ROLE {role} LOGIN REPLICATION",
        f"GRANT CREATE ON DATABASE {database.name} TO {role}",
        "CREATE TABLE t (id int PRIMARY KEY)",
        f"ALTER TABLE t OWNER TO {role}",
    )
    database.user = role
    database.begin()
    database.execute("INSERT INTO t VALUES (1)")
    assert len(database.changes()) == 1


def test_tables_that_the_user_may_not_publish_or_read_are_named(database: Database) -> None:
    role = f"guest_{database.slot}"
    database.execute(
        f"CREATE ROLE {role} LOGIN REPLICATION",
        f"GRANT CREATE ON DATABASE {database.name} TO {role}",
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE u (id int PRIMARY KEY)",
        f"GRANT SELECT ON u TO {role}",
    )
    database.user = role
    with pytest.raises(PreflightError) as raised:
        database.read(snapshot="initial")
    foreign, secret = raised.value.problems
    assert "tables of other owners (public.t, public.u)" in foreign
    assert f"{role} may not read public.t for a snapshot" in secret
    # An administrator has created the publication, and there is no snapshot.
    database.execute(f"CREATE PUBLICATION {database.slot} FOR ALL TABLES")
    database.begin()
    database.execute("INSERT INTO t VALUES (1)")
    assert len(database.changes()) == 1


def test_publication_for_inserts_only_needs_no_identity(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (v int)",
        f"CREATE PUBLICATION {database.slot} FOR ALL TABLES WITH (publish = 'insert')",
    )
    database.begin()
    database.execute("INSERT INTO t VALUES (1)")
    (change,) = database.changes()
    assert (change.key, change.after) == ({}, {"v": 1})


@pytest.mark.parametrize(
    ("published", "lost"),
    [("insert, update, delete, truncate", ""), ("insert", "UPDATE, DELETE, TRUNCATE")],
)
def test_statements_that_the_publication_leaves_out_are_named(
    database: Database, caplog: pytest.LogCaptureFixture, published: str, lost: str
) -> None:
    with_ = f"WITH (publish = '{published}')"
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY)",
        f"CREATE PUBLICATION {database.slot} FOR ALL TABLES {with_}",
    )
    database.begin()
    said = f"the publication {database.slot} leaves out changes by {lost}, which are lost"
    assert caplog.text.count(said) == (1 if lost else 0)
    caplog.clear()
    with Running(database) as running:
        running.until_streaming()
        database.execute(f"ALTER PUBLICATION {database.slot} SET (publish = 'insert, truncate')")
        running.until(lambda: "leaves out changes by UPDATE, DELETE, which" in caplog.text)
        database.execute(f"ALTER PUBLICATION {database.slot} SET (publish = 'update, delete')")
        running.until(lambda: "leaves out changes by INSERT, TRUNCATE, which" in caplog.text)


@pytest.mark.parametrize("snapshot", ["never", "only"])
def test_pattern_of_tables_without_a_table_is_reported(
    database: Database, caplog: pytest.LogCaptureFixture, snapshot: str
) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    masks = {"orders.ids": "hash:x", "orders.id": "hash:x"}
    database.read(Tables(["orders", "order"], masks=masks), snapshot=snapshot)
    assert "no table matches the pattern 'order' of --tables; did you mean orders?" in caplog.text
    assert "pattern 'orders.ids' of --mask, so that it hides nothing" in caplog.text
    assert "pattern 'orders'" not in caplog.text
    assert "pattern 'orders.id'" not in caplog.text


def test_wanted_tables_that_the_publication_leaves_out_are_named(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE u (id int PRIMARY KEY)",
        f"CREATE PUBLICATION {database.slot} FOR TABLE t",
    )
    database.begin()
    assert f"ALTER PUBLICATION {database.slot} ADD TABLE public.u" in caplog.text


@pytest.mark.parametrize("snapshot", ["initial", "never", "only"])
def test_generated_columns_are_named_at_the_start(
    database: Database, caplog: pytest.LogCaptureFixture, snapshot: str
) -> None:
    generated = "int GENERATED ALWAYS AS (id * 2) STORED"
    database.execute(
        f"CREATE TABLE t (id int PRIMARY KEY, g {generated}, h {generated})",
        f"CREATE TABLE u (id int PRIMARY KEY, g {generated})",
    )
    database.read(Tables(exclude=["u"]), snapshot=snapshot)
    assert (
        "columns of public.t that are computed from others are not replicated: g, h" in caplog.text
    )
    assert "public.u" not in caplog.text


def test_nothing_wanted_is_a_mistake(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    assert "no table is wanted" in _problems(database, Tables(include=["tt"]))


def test_empty_database_is_none(database: Database) -> None:
    database.begin()
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    truncate, schema, row = database.changes()
    assert (truncate.action, schema.action, row.after) == ("truncate", "schema", {"id": 1})
    database.execute("INSERT INTO t VALUES (2)")
    assert [each.after for each in database.changes()] == [{"id": 2}]


def test_slot_of_another_plug_in_is_refused(database: Database) -> None:
    database.execute(
        f"SELECT pg_create_logical_replication_slot('{database.slot}', 'test_decoding')",
        f"CREATE PUBLICATION {database.slot} FOR ALL TABLES",
    )
    assert "test_decoding, not with pgoutput" in _problems(database)


def test_slot_of_another_database_is_refused(database: Database) -> None:
    other = Database(database.server, database.server.new_database())
    other.slot = database.slot
    other.execute(f"CREATE PUBLICATION {database.slot} FOR ALL TABLES")
    database.begin()
    assert f"is one of the database {database.name}" in _problems(other)


def test_slot_without_its_publication_is_refused(database: Database) -> None:
    database.execute(
        f"SELECT pg_create_logical_replication_slot('{database.slot}', 'pgoutput')",
    )
    assert f"the publication {database.slot} is not" in _problems(database)


def test_slot_that_somebody_reads_is_refused(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with Running(database) as running:
        running.until_streaming()
        publication = database.publication()
        second = database.publisher(publication, snapshot="never", busy_s=0.5)
        with pytest.raises(PreflightError, match="is read by somebody else"):
            second.run()
        # The first publisher is not disturbed.
        database.execute("INSERT INTO t VALUES (1)")
        running.until_changes(1)


def test_server_that_is_not_there_is_an_error_at_once(database: Database) -> None:
    publisher = PostgresPublisher("postgresql:///shop?host=/nowhere", database.publication())
    with pytest.raises(psycopg.OperationalError, match="/nowhere"):
        publisher.run()


# Secrets.


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://me:{_QUOTED}@db:5433/shop",
        f"postgresql+psycopg://me:{_QUOTED}@db:5433/shop",
        f"postgres://me@db:5433/shop?password={_QUOTED}&sslpassword={_QUOTED}",
        f"host=db port=5433 dbname=shop user=me password='{_SECRET}'",
    ],
)
def test_dsn_is_understood_and_does_not_show_its_secrets(database: Database, text: str) -> None:
    dsn = Dsn(text)
    assert dsn.server == "db:5433/shop"
    publisher = PostgresPublisher(text, database.publication())
    for shown in (repr(dsn), repr(publisher), str(vars(publisher))):
        assert "hunter2" not in shown
        assert "user=me" in shown
        assert "password=***" in shown


@pytest.mark.parametrize("text", ["hunter2", "postgresql://me:hunter2@[db", "hunter2=x"])
def test_dsn_that_is_none_is_not_repeated(database: Database, text: str) -> None:
    with pytest.raises(ValueError, match="no DSN of PostgreSQL") as raised:
        PostgresPublisher(text, database.publication())
    assert "hunter2" not in str(raised.value)


def test_logs_and_errors_have_no_secrets(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.user = f"postgres:{_QUOTED}"
    with Running(database, snapshot="initial") as running:
        running.until_streaming()
        database.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
            f"WHERE slot_name = '{database.slot}'",
            "INSERT INTO t VALUES (1)",
        )
        running.until_changes(1)
    database.user = f"nobody:{_QUOTED}"
    with pytest.raises(psycopg.OperationalError) as raised:
        database.read()
    assert "stream has broken" in caplog.text
    assert "hunter2" not in caplog.text + str(raised.value) + repr(raised.value)


# Invalid arguments.


def test_mode_that_is_none_is_refused(database: Database) -> None:
    with pytest.raises(ValueError, match="'initial', 'never' or 'only'"):
        database.publisher(database.publication(), snapshot="always")
    with pytest.raises(ValueError, match="one row at least"):
        database.publisher(database.publication(), chunk_rows=0)


_NUMBERS: Final = count(1)


def _database_in(server: SqlServer, encoding: str, name: str = "") -> Database:
    name = name or f"in_{encoding.lower()}"
    Database(server, "postgres").execute(
        f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'"
    )
    return Database(server, name)


def test_a_database_in_sql_ascii_is_told_of_and_its_text_is_carried(
    postgresql: SqlServer, caplog: pytest.LogCaptureFixture
) -> None:
    database = _database_in(postgresql, "SQL_ASCII")
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text, n int)",
        r"INSERT INTO t VALUES (1, E'\xc3\xbc', 1), (2, E'\xfc', 2)",
    )
    with caplog.at_level(logging.WARNING):
        read = database.changes(snapshot="initial")
    assert "in_sql_ascii is in SQL_ASCII" in caplog.text
    database.execute("UPDATE t SET n = 3")
    expected = ["ü", b"\xfc"]
    assert [change.after and change.after["v"] for change in read] == expected
    assert [change.after and change.after["v"] for change in database.changes()] == expected


def test_a_key_that_is_not_utf_8_ends_no_snapshot(postgresql: SqlServer) -> None:
    database = _database_in(postgresql, "SQL_ASCII", "with_keys_in_sql_ascii")
    database.execute(
        "CREATE TABLE t (a text, b text, j json, PRIMARY KEY (a, b))",
        r"""INSERT INTO t VALUES ('x', '', '1'), (E'\xfc', E'\xff\'\\', E'"\xfc"')""",
        r"INSERT INTO t VALUES (E'\xc3\xbc', '', '1'), (E'\xfc', E'\xff(', '1')",
        r"INSERT INTO t VALUES (E'\xfe', '', '1')",
    )
    begun: Running = Running(
        database,
        snapshot="initial",
        chunk_rows=1,
        on_progress=lambda table, done, rows: begun.publisher.stop() if done == 3 else None,
    )
    with begun:
        begun.join()
    rest = database.changes(snapshot="initial", chunk_rows=1)
    rows = [change.after for change in (*begun.taken.changes, *rest)]
    assert rows == [
        {"a": "x", "b": "", "j": Json("1")},
        {"a": "ü", "b": "", "j": Json("1")},
        {"a": b"\xfc", "b": b"\xff'\\", "j": b'"\xfc"'},
        {"a": b"\xfc", "b": b"\xff(", "j": Json("1")},
        {"a": b"\xfe", "b": "", "j": Json("1")},
    ]
    database.execute(r"DELETE FROM t WHERE a = E'\xfc'")
    gone = [change.key for change in database.changes()]
    assert gone == [{"a": b"\xfc", "b": b"\xff'\\"}, {"a": b"\xfc", "b": b"\xff("}]


@pytest.mark.parametrize("snapshot", ["initial", "only"])
def test_a_name_that_is_not_utf_8_is_refused_at_the_start(
    postgresql: SqlServer, snapshot: str
) -> None:
    database = _database_in(postgresql, "SQL_ASCII", f"with_names_{snapshot}")
    with database.connect() as connection:
        connection.execute(b"SET client_encoding = SQL_ASCII")
        connection.execute(b'CREATE TABLE "\xfc" (id int PRIMARY KEY)')
    with pytest.raises(PreflightError, match=r"not UTF-8, .*: b'\\xfc'\. Rename them"):
        database.changes(snapshot=snapshot)


@pytest.fixture
def in_sql_ascii(postgresql: SqlServer) -> Iterator[Database]:
    """A separate database, whose slot is dropped afterwards."""
    database = _database_in(postgresql, "SQL_ASCII", f"octets_{next(_NUMBERS)}")
    yield database
    database.drop_slot()


def _execute_octets(database: Database, *statements: bytes) -> None:
    """Execute statements with bytes that are not valid text."""
    with database.connect() as connection:
        connection.execute(b"SET client_encoding = SQL_ASCII")
        for statement in statements:
            connection.execute(statement)


def test_a_new_table_whose_name_is_not_utf_8_is_left_out_and_told(
    in_sql_ascii: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database = in_sql_ascii
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with caplog.at_level(logging.WARNING), Running(database, snapshot="initial") as running:
        running.until_streaming()
        _execute_octets(
            database,
            b'CREATE TABLE "\xfc" (id int PRIMARY KEY)',
            b'INSERT INTO "\xfc" VALUES (1)',
            b'CREATE TABLE empty ("\xfd" int)',
            b"INSERT INTO t VALUES (1)",
        )
        running.until_changes(1)
        text = "the table b'\\xfc': it has names that are not UTF-8, and is not"
        assert wait_until(lambda: text in caplog.text, DEADLINE_S)
    # As long as nothing changes, later sessions give the same result.
    database.execute("INSERT INTO t VALUES (2)")
    assert [change.key for change in database.changes(snapshot="initial")] == [{"id": 2}]
    _execute_octets(database, b'ALTER TABLE "\xfc" RENAME TO u')
    database.execute("INSERT INTO u VALUES (2)")
    read = database.changes(snapshot="initial")
    assert {(each.table, each.key["id"]) for each in read if each.key} == {("u", 1), ("u", 2)}


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        (b'ALTER TABLE t ADD "\xfc" int', b'ALTER TABLE t RENAME "\xfc" TO v'),
        (b'ALTER TABLE t RENAME TO "\xfc"', b'ALTER TABLE "\xfc" RENAME TO t'),
        (b'ALTER SCHEMA public RENAME TO "\xfc"', b'ALTER SCHEMA "\xfc" RENAME TO public'),
    ],
)
@pytest.mark.parametrize("is_seen_first", [True, False])
def test_a_published_table_whose_names_are_not_utf_8_any_more_ends_the_job(
    in_sql_ascii: Database, bad: bytes, good: bytes, *, is_seen_first: bool
) -> None:
    database = in_sql_ascii
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    database.read(snapshot="initial")
    place = b'"\xfc".t' if b"SCHEMA" in bad else b'"\xfc"' if b"TO" in bad else b"t"
    insert = b"INSERT INTO " + place + b" (id) VALUES (2)"
    if is_seen_first:
        with Running(database, snapshot="initial") as running:
            running.until_streaming()
            _execute_octets(database, bad, insert)
            running.join()
            error, running.error = running.error, None
        assert isinstance(error, PreflightError)
        assert "not UTF-8, in a database in SQL_ASCII: b'\\xfc'. Rename them" in str(error)
    else:
        _execute_octets(database, bad, insert)
    for _ in range(2):
        with pytest.raises(PreflightError, match=r"b'\\xfc'\. Rename them"):
            database.read(snapshot="initial")
    _execute_octets(database, good)
    database.execute("INSERT INTO t (id) VALUES (3)")
    read = database.changes(snapshot="initial")
    assert {change.key["id"] for change in read if change.key} >= {2, 3}
    assert {change.table for change in read} == {"t"}
    database.execute("INSERT INTO t (id) VALUES (4)")
    assert [change.key for change in database.changes(snapshot="initial")] == [{"id": 4}]


def test_an_encoding_without_a_way_to_utf_8_is_refused_at_the_start(
    postgresql: SqlServer,
) -> None:
    database = _database_in(postgresql, "MULE_INTERNAL")
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with pytest.raises(psycopg.OperationalError, match="between UTF8 and MULE_INTERNAL is not"):
        database.read()


def test_other_encodings_are_read(postgresql: SqlServer) -> None:
    database = _database_in(postgresql, "LATIN1")
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)", r"INSERT INTO t VALUES (1, E'\xfc')"
    )
    read = database.changes(snapshot="initial")
    assert [change.after for change in read] == [{"id": 1, "v": "ü"}]
