"""The stream: transactions, keys, filters, and misleading log entries."""

from __future__ import annotations

import logging
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.mysql import MysqlPublisher, StreamError
from stompkit.testing.launching.polling import wait_until
from tests.effort import drawn
from tests.replication.sources.mysql.reading import DEADLINE_S, Database, Reading, numbers

# Transactions.


def test_a_transaction_is_a_changeset(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, name TEXT)", "CREATE TABLE u (id INT PRIMARY KEY)"
    )
    reading = Reading(database)
    begin = datetime.now(UTC)
    database.run(
        "BEGIN",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO u VALUES (1)",
        "UPDATE t SET name = 'c' WHERE id = 2",
        "DELETE FROM t WHERE id = 1",
        "COMMIT",
        "INSERT INTO u VALUES (2)",
    )
    changeset, second = reading.changesets()
    assert [(change.table, change.action, change.key) for change in changeset.changes] == [
        ("t", "write", {"id": 1}),
        ("t", "write", {"id": 2}),
        ("u", "write", {"id": 1}),
        ("t", "update", {"id": 2}),
        ("t", "delete", {"id": 1}),
    ]
    update, delete = changeset.changes[3:]
    assert (update.before, update.after) == ({"id": 2, "name": "b"}, {"id": 2, "name": "c"})
    assert (delete.before, delete.after) == ({"id": 1, "name": "a"}, None)
    assert {change.schema for change in changeset.changes} == {database.name}
    source = changeset.source
    assert source.kind == "mysql"
    assert source.transaction.startswith(database.gtid_start)
    assert source.time is not None
    assert abs(source.time - begin) < timedelta(minutes=5)
    assert [changeset.sequence, second.sequence] == [1, 2]
    assert source.transaction != second.source.transaction


def test_what_was_rolled_back_is_not_told(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    reading = Reading(database)
    database.run(
        "BEGIN",
        "INSERT INTO t VALUES (1)",
        "ROLLBACK",
        "BEGIN",
        "INSERT INTO t VALUES (2)",
        "SAVEPOINT a",
        "INSERT INTO t VALUES (3)",
        "ROLLBACK TO a",
        "INSERT INTO t VALUES (4)",
        "COMMIT",
    )
    assert [change.key["id"] for change in reading.changes()] == [2, 4]


@pytest.mark.mariadb_only
def test_what_was_rolled_back_to_a_savepoint_is_not_told_though_it_is_in_the_log(
    database: Database,
) -> None:
    """Such rows are in the log if the transaction also uses a non-transactional table."""
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM"
    )
    reading = Reading(database)
    database.run(
        "BEGIN",
        "INSERT INTO t VALUES (1)",
        "SAVEPOINT `A b`",
        "INSERT INTO m VALUES (2)",
        "INSERT INTO t VALUES (3)",
        "ROLLBACK TO `a B`",
        "INSERT INTO t VALUES (4)",
        "COMMIT",
    )
    found = [(change.table, change.key["id"]) for change in reading.changes()]
    assert found == [("m", 2), ("t", 1), ("t", 4)]
    assert database.ask("SELECT * FROM t") == ((1,), (4,))


def test_tables_without_transactions_are_told(database: Database) -> None:
    database.run("CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM")
    reading = Reading(database)
    database.run("INSERT INTO m VALUES (1)", "UPDATE m SET id = 2", "DELETE FROM m WHERE id = 2")
    assert [change.action for change in reading.changes()] == ["write", "update", "delete"]


def test_a_large_transaction_is_one_changeset(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50))")
    reading = Reading(database)
    database.run(f"INSERT INTO t SELECT seq, CONCAT('value ', seq) FROM {numbers(20_000)}")
    (changeset,) = reading.changesets()
    assert [change.key["id"] for change in changeset.changes] == list(range(1, 20_001))
    last = changeset.changes[-1]
    assert last.after == {"id": 20_000, "v": "value 20000"}


@pytest.mark.mariadb_only
def test_transactions_of_several_domains_are_told(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    reading = Reading(database)
    database.run(
        "SET gtid_domain_id = 7",
        "INSERT INTO t VALUES (1)",
        "SET gtid_domain_id = 0",
        "INSERT INTO t VALUES (2)",
    )
    first, second = reading.changesets()
    assert first.source.transaction.startswith("7-1-")
    assert second.source.transaction.startswith("0-1-")
    database.run("SET gtid_domain_id = 7", "INSERT INTO t VALUES (3)", "SET gtid_domain_id = 0")
    assert [change.key for change in reading.changes()] == [{"id": 3}]


# Keys.


def test_an_update_that_changes_the_key_says_what_it_was(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    reading = Reading(database)
    database.run("UPDATE t SET v = 2", "UPDATE t SET id = 2")
    same, other = reading.changes()
    assert (same.key, same.old_key) == ({"id": 1}, None)
    assert (other.key, other.old_key) == ({"id": 2}, {"id": 1})


def test_a_composite_key_is_in_the_order_of_the_key(database: Database) -> None:
    database.run("CREATE TABLE t (a INT, b INT, c INT, PRIMARY KEY (c, a))")
    reading = Reading(database)
    database.run("INSERT INTO t VALUES (1, 2, 3)")
    (written,) = reading.changes()
    (read,) = Reading(database).changes(snapshot="only")
    assert list(written.key.items()) == list(read.key.items()) == [("c", 3), ("a", 1)]


def test_a_key_of_prefixes_is_the_whole_columns(database: Database) -> None:
    database.run("CREATE TABLE t (name VARCHAR(50), PRIMARY KEY (name(3)))")
    reading = Reading(database)
    database.run("INSERT INTO t VALUES ('abcdef')")
    assert [change.key for change in reading.changes()] == [{"name": "abcdef"}]


def test_a_unique_key_does_for_a_primary_one(database: Database) -> None:
    database.run("CREATE TABLE t (a INT NULL UNIQUE, b INT NOT NULL UNIQUE)")
    reading = Reading(database)
    database.run("INSERT INTO t VALUES (1, 2)")
    (written,) = reading.changes()
    (read,) = Reading(database).changes(snapshot="only")
    assert written.key == read.key == {"b": 2}


def test_tables_without_a_key_are_told_with_whole_rows(database: Database) -> None:
    database.run("CREATE TABLE t (a INT, b INT)")
    reading = Reading(database)
    database.run("INSERT INTO t VALUES (1, 2)", "UPDATE t SET a = 3", "DELETE FROM t WHERE a = 3")
    write, update, delete = reading.changes()
    assert write.key == update.key == delete.key == {}
    assert write.after == {"a": 1, "b": 2}
    assert (update.before, update.after) == ({"a": 1, "b": 2}, {"a": 3, "b": 2})
    assert delete.before == {"a": 3, "b": 2}


@pytest.mark.parametrize("named", ["t", "{database}.t"])
def test_columns_can_be_said_to_be_the_key(database: Database, named: str) -> None:
    database.run("CREATE TABLE t (a INT, b INT, c INT)")
    keys = {named.format(database=database.name): ["b", "a"]}
    reading = Reading(database, keys=keys)
    database.run("INSERT INTO t VALUES (1, 2, 3)", "UPDATE t SET a = 4")
    write, update = reading.changes()
    assert list(write.key) == ["b", "a"]
    assert (update.key, update.old_key) == ({"b": 2, "a": 4}, {"b": 2, "a": 1})
    (read,) = Reading(database, keys=keys).changes(snapshot="only")
    assert read.key == {"b": 2, "a": 4}


#: Columns of a table, of which an INSERT names some.
_KINDS: Final = (
    "INT",
    "INT DEFAULT 7",
    "INT NOT NULL DEFAULT 8",
    "VARCHAR(9)",
    "VARCHAR(9) DEFAULT 'NULL'",
    "TEXT",
    "TEXT DEFAULT ('x')",
    "DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)",
    "INT GENERATED ALWAYS AS (id + 1) STORED",
    "INT GENERATED ALWAYS AS (id + 2) VIRTUAL",
)


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_columns_that_are_not_in_a_short_image_are_missing_and_not_null(
    database: Database, image: str
) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, n INT, b BLOB)",
        "INSERT INTO t VALUES (1, 1, 1, 'b')",
    )
    reading = Reading(database)
    database.run(
        f"SET binlog_row_image = {image}",
        "UPDATE t SET v = 2, n = NULL WHERE id = 1",
        "UPDATE t SET id = 5 WHERE id = 1",
        "DELETE FROM t WHERE id = 5",
    )
    update, rekeyed, delete = reading.changes()
    assert update.after is not None
    assert (update.key, update.old_key) == ({"id": 1}, None)
    assert (update.after["v"], update.after["n"]) == (2, None)
    assert "b" not in update.after
    assert (rekeyed.key, rekeyed.old_key) == ({"id": 5}, {"id": 1})
    assert delete.key == {"id": 5}
    assert delete.before is not None
    assert "b" not in delete.before
    if image == "MINIMAL":
        assert update.before == {"id": 1}
        assert update.after == {"v": 2, "n": None}


@given(
    kinds=st.lists(st.sampled_from(_KINDS), min_size=1, max_size=4),
    named=st.sets(st.integers(0, 3)),
    image=st.sampled_from(["MINIMAL", "NOBLOB", "FULL"]),
)
@settings(
    deadline=None,
    max_examples=drawn(8),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_new_rows_of_a_short_image_are_whole_or_refused(
    database: Database, kinds: list[str], named: set[int], image: str
) -> None:
    columns = [f"c{number}" for number in range(len(kinds))]
    given_columns = [
        name
        for at, (name, kind) in enumerate(zip(columns, kinds, strict=True))
        if at in named and "GENERATED" not in kind
    ]
    definitions = map(" ".join, zip(columns, kinds, strict=True))
    database.run(
        "DROP TABLE IF EXISTS t",
        f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(definitions)})",
    )
    reading = Reading(database)
    names = ", ".join(["id", *given_columns])
    values = ", ".join("20010101" for _ in range(len(given_columns) + 1))
    database.run(f"SET binlog_row_image = {image}", f"INSERT INTO t ({names}) VALUES ({values})")
    database.run("SET binlog_row_image = FULL")
    try:
        (write,) = reading.changes()
    except StreamError as error:
        assert "which the server has set, as by a DEFAULT" in str(error)
        assert image != "FULL"
        assert any("DEFAULT" in kind or "GENERATED" in kind for kind in kinds)
    else:
        (read,) = Reading(database).changes(snapshot="only")
        assert write.after == read.after


def test_a_key_that_is_not_in_a_short_image_stops_reading(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, w INT)", "INSERT INTO t VALUES (1, 1, 1)"
    )
    reading = Reading(database, keys={"t": ["v"]})
    database.run("SET binlog_row_image = MINIMAL", "UPDATE t SET w = 2")
    with pytest.raises(StreamError, match=r"key's column 'v'.*binlog_row_image"):
        reading.changes()


# Filters.


def test_tables_of_the_same_name_are_told_apart(database: Database) -> None:
    other = Database(database.server)
    tables = Tables(include=[f"{database.name}.t", f"{other.name}.u"])
    reading = Reading(database, tables=tables)
    for each in (database, other):
        each.run(
            "CREATE TABLE t (id INT PRIMARY KEY)",
            "CREATE TABLE u (id INT PRIMARY KEY)",
            "INSERT INTO t VALUES (1)",
            "INSERT INTO u VALUES (1)",
        )
    other.close()
    found = [change.name for change in reading.changes() if change.action == "write"]
    assert found == [f"{database.name}.t", f"{other.name}.u"]


def test_rows_of_tables_that_are_not_wanted_are_not_looked_at(database: Database) -> None:
    """Text in this character set cannot be decoded, which would stop the reader."""
    database.run(
        "CREATE TABLE wanted (id INT PRIMARY KEY)",
        "CREATE TABLE other (id INT PRIMARY KEY, s VARCHAR(9) CHARACTER SET geostd8)",
    )
    reading = Reading(database, tables=Tables(include=["wanted"]))
    database.run(
        "BEGIN",
        "INSERT INTO other VALUES (1, 'a')",
        "INSERT INTO wanted VALUES (1)",
        "UPDATE other SET s = 'b'",
        "COMMIT",
        "DELETE FROM other WHERE id = 1",
    )
    assert [change.name for change in reading.changes()] == [f"{database.name}.wanted"]


def test_tables_of_the_server_itself_are_not_told(database: Database) -> None:
    reading = Reading(database, tables=Tables(include=["mysql.*", f"{database.name}.*"]))
    database.run(
        "DROP TABLE IF EXISTS mysql.of_a_test",
        "CREATE TABLE mysql.of_a_test (id INT PRIMARY KEY)",
        "INSERT INTO mysql.of_a_test VALUES (1)",
        "DROP TABLE mysql.of_a_test",
        "CREATE TABLE t (id INT PRIMARY KEY)",
    )
    assert [change.name for change in reading.changes()] == [f"{database.name}.t"]


def test_columns_are_masked_and_left_out(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, mail TEXT, secret TEXT)")
    tables = Tables(
        include=[f"{database.name}.*"], columns_exclude=["t.secret"], masks={"t.mail": "truncate:2"}
    )
    reading = Reading(database, tables=tables)
    database.run("INSERT INTO t VALUES (1, 'me@example', 'x')")
    (written,) = reading.changes()
    (read,) = Reading(database, tables=tables).changes(snapshot="only")
    assert written.after == read.after == {"id": 1, "mail": "me"}


def test_the_position_moves_on_where_nothing_is_wanted(database: Database) -> None:
    database.run("CREATE TABLE other (id INT PRIMARY KEY)")
    reading = Reading(database, tables=Tables(include=["none"]))
    database.run("INSERT INTO other VALUES (1)")
    with reading.running() as running:
        publication = running.publisher.publication

        def is_at_end() -> bool:
            file, pos = database.end()
            return f'"{file}","pos":{pos},' in publication.confirmed_position.replace(" ", "")

        assert wait_until(is_at_end, DEADLINE_S)
        assert wait_until(lambda: running.publisher.lag_s == 0, DEADLINE_S)
        # A heart-beat of the server does not end reading.
        database.run("INSERT INTO other VALUES (2)")
        assert wait_until(is_at_end, DEADLINE_S)


# Misleading log entries.


def test_rows_that_a_session_has_logged_as_a_statement_stop_reading(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    reading = Reading(database)
    database.run(
        "INSERT INTO t VALUES (1)",
        "SET binlog_format = STATEMENT",
        "/* hidden */ INSERT INTO t VALUES (2)",
    )
    with pytest.raises(StreamError, match="logged as such") as caught:
        reading.changes()
    assert caught.value.position.startswith(database.end()[0])
    with pytest.raises(StreamError):
        reading.changes()


def test_what_cannot_be_told_is_skipped_only_if_that_is_asked_for(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    reading = Reading(database)
    database.run(
        "INSERT INTO t VALUES (1)",
        "SET binlog_format = STATEMENT",
        "INSERT INTO t VALUES (2)",
        "SET binlog_format = ROW",
        "INSERT INTO t VALUES (3)",
    )
    publisher = reading.publisher(on_problem="skip")
    publisher.run()
    assert publisher.skipped == 1
    assert publisher.publication.sequence == 2
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert f"at {database.end()[0]}:" in record.getMessage()


def test_a_row_that_cannot_be_read_does_not_take_others_with_it(database: Database) -> None:
    database.run(
        "CREATE TABLE bad (id INT PRIMARY KEY, s VARCHAR(9))",
        "CREATE TABLE good (id INT PRIMARY KEY)",
    )
    reading = Reading(database, on_problem="skip", keys={"bad": ["no such column"]})
    database.run(
        "BEGIN",
        "INSERT INTO good VALUES (1)",
        "INSERT INTO bad VALUES (1, 'a')",
        "INSERT INTO good VALUES (2)",
        "COMMIT",
    )
    assert [(change.table, change.key) for change in reading.changes()] == [
        ("good", {"id": 1}),
        ("good", {"id": 2}),
    ]


@pytest.mark.mariadb_only
def test_compressed_rows_stop_reading(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
    reading = Reading(database)
    database.run("SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10")
    try:
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO t VALUES (1, '{'x' * 500}')")
    finally:
        database.run("SET GLOBAL log_bin_compress = OFF")
    with pytest.raises(StreamError, match="log_bin_compress=OFF"):
        reading.changes()


@pytest.mark.mariadb_only
def test_sequences_are_no_tables(database: Database) -> None:
    reading = Reading(database)
    database.run(
        "CREATE SEQUENCE s",
        "CREATE TABLE t (id INT PRIMARY KEY DEFAULT NEXTVAL(s))",
        "INSERT INTO t VALUES (DEFAULT), (DEFAULT)",
        "SELECT SETVAL(s, 5000)",
        "DROP SEQUENCE s",
    )
    assert [change.name for change in reading.changes()] == [f"{database.name}.t"] * 3
    database.run("CREATE SEQUENCE s")
    changes = Reading(database).changes(snapshot="only")
    assert [change.name for change in changes] == [f"{database.name}.t"] * 2


def test_a_table_in_memory_is_empty_when_the_server_was_started(database: Database) -> None:
    """The server logs that when the table is opened; old versions by a DELETE without WHERE."""
    database.run("CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MEMORY", "INSERT INTO m VALUES (1)")
    reading = Reading(database)
    database.run("SET binlog_format = STATEMENT", "DELETE FROM m")
    (truncate,) = reading.changes()
    assert (truncate.action, truncate.table) == ("truncate", "m")


@pytest.mark.mariadb_only
def test_times_in_the_old_format_stop_reading(database: Database) -> None:
    database.run("CREATE TABLE new (id INT PRIMARY KEY)")
    reading = Reading(database)
    database.run("SET GLOBAL mysql56_temporal_format = OFF")
    try:
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE old (id INT PRIMARY KEY, t DATETIME(2))")
            cursor.execute("INSERT INTO old VALUES (1, '2026-01-02 03:04:05.25')")
    finally:
        database.run("SET GLOBAL mysql56_temporal_format = ON")
    with pytest.raises(StreamError, match=r"column t of .*\.old: .*mysql56_temporal_format"):
        reading.changes()


def test_numbers_of_tables_that_are_used_again_do_not_mix_tables_up(database: Database) -> None:
    """A new file of the log, with tables that were altered before and after it."""
    database.run("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    reading = Reading(database)
    wanted: list[Any] = []
    for number in range(1, 6):
        database.run(
            f"ALTER TABLE t ADD COLUMN c{number} INT FIRST",
            f"INSERT INTO t (id, a, c{number}) VALUES ({number}, 10, {number})",
            "FLUSH BINARY LOGS",
            f"UPDATE t SET a = 11 WHERE id = {number}",
        )
        columns = [f"c{each}" for each in range(number, 0, -1)] + ["id", "a"]
        wanted.append((columns, number, 10))
        wanted.append((columns, number, 11))
    found = [change.after or {} for change in reading.changes() if change.action != "schema"]
    assert [(list(row), row["id"], row["a"]) for row in found] == wanted


def test_a_publication_has_its_own_tables(database: Database) -> None:
    reading = Reading(database)
    with pytest.raises(ValueError, match="publication"):
        reading.publisher(tables=["t"])
    with pytest.raises(ValueError, match="list"):
        MysqlPublisher(database.url, "t")
