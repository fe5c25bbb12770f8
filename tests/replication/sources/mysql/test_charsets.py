"""Text in every character set of the server, from the log as from a snapshot."""

from __future__ import annotations

from typing import Any

import pytest

from stompkit.replication.sources.mysql._binlog.charsets import unreadable
from tests.replication.sources.mysql.reading import Database, Reading


def charsets(database: Database) -> list[str]:
    rows = database.ask("SELECT CHARACTER_SET_NAME FROM INFORMATION_SCHEMA.CHARACTER_SETS")
    return sorted(row[0] for row in rows if row[0] != "binary")


def test_text_of_every_character_set_is_what_the_server_says(database: Database) -> None:
    names = charsets(database)
    columns = ", ".join(f"c_{name} TEXT CHARACTER SET {name}" for name in names)
    database.run(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    reading = Reading(database)
    # Characters that are missing in a set become question marks in the table itself.
    text = "aZ~\\\\?|[]é€üßЖшאب①日本漢字ｱ丂あ한글"
    values = ", ".join(f"CONVERT('{text}' USING {name})" for name in names)
    database.run("SET sql_mode = ''", f"INSERT INTO t VALUES (1, {values})")
    (written,) = reading.changes()
    (read,) = Reading(database).changes(snapshot="only")
    (row,) = database.ask(f"SELECT {', '.join(f'c_{name}' for name in names)} FROM t")
    expected: dict[str, Any] = {f"c_{name}": each for name, each in zip(names, row, strict=True)}
    assert written.after == {"id": 1, **expected}
    assert read.after == written.after


@pytest.mark.parametrize("charset", ["sjis", "eucjpms", "gbk", "dec8", "geostd8", "keybcs2"])
def test_octets_that_are_no_text_are_carried_as_octets(database: Database, charset: str) -> None:
    """Some bytes are not valid text, but the server has stored them unchecked."""
    database.run(f"CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(90) CHARACTER SET {charset})")
    reading = Reading(database)
    codes = "".join(f"{octet:02x}" for octet in (*range(1, 0x80), 0xA1, 0xA1))
    database.run("SET sql_mode = ''", f"INSERT IGNORE INTO t VALUES (1, LEFT(X'{codes}', 60))")
    (written,) = reading.changes()
    (read,) = Reading(database).changes(snapshot="only")
    assert written.after == read.after
    assert written.after is not None
    (row,) = database.ask("SELECT v FROM t")
    assert written.after["v"] == row[0]


def test_a_character_set_that_nobody_knows_is_found_before() -> None:
    longest = {"latin1": 1, "utf8mb4": 4, "gb18030": 4, "sjis": 2, "dec8": 1, "new": 3}
    assert unreadable(longest) == {"new"}


@pytest.mark.mariadb_only
def test_a_hidden_column_is_none(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, a TEXT, DB_ROW_HASH_1 BIGINT UNSIGNED, UNIQUE (a))",
        "INSERT INTO t VALUES (1, 'a', 7)",
    )
    reading = Reading(database)
    database.run("INSERT INTO t VALUES (2, 'b', 8)", "UPDATE t SET a = 'c' WHERE id = 2")
    changes = reading.changes()
    written, updated = (change for change in changes if change.action != "schema")
    assert written.after == {"id": 2, "a": "b", "DB_ROW_HASH_1": 8}
    assert (updated.before, updated.after) == (
        {"id": 2, "a": "b", "DB_ROW_HASH_1": 8},
        {"id": 2, "a": "c", "DB_ROW_HASH_1": 8},
    )
    for change in changes:
        if change.action == "schema":
            names = [column["name"] for column in (change.after or {})["columns"]]
            assert names == ["id", "a", "DB_ROW_HASH_1"]
