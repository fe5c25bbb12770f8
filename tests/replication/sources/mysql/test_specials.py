"""Types that MariaDB's log does not contain, for rows that the job reads late."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import msgspec
import pytest

from stompkit.replication.sources.mysql._tables.definitions import Definitions
from stompkit.replication.sources.mysql._tables.specials import Specials
from stompkit.replication.sources.mysql._tables.statements import parse_statement
from tests.replication.sources.mysql.reading import Database, Reading

MADE = "0f8fad5b-d9cb-469f-a165-70867728950e"
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, u UUID, n INET6, j JSON)"
ROW = f"INSERT INTO t VALUES (1, '{MADE}', '2001:db8::1', '[1]')"


def unknown(table: tuple[str, str]) -> None:
    """Answer as the catalogue after later statements."""


@pytest.mark.mariadb_only
@pytest.mark.parametrize(
    "later",
    [
        ["RENAME TABLE t TO t2"],
        ["ALTER TABLE t RENAME t2, ADD c INT"],
        ["DROP TABLE t"],
        ["DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, u INT, n INT, j INT)"],
        ["ALTER TABLE t MODIFY u TEXT, MODIFY n TEXT, MODIFY j LONGTEXT"],
        ["ALTER TABLE t DROP u, DROP n, DROP j"],
    ],
    ids=["rename", "alter", "drop", "replace", "retype", "columns"],
)
@pytest.mark.parametrize("table", ["old", "new"])
def test_rows_are_read_as_their_types_were(
    database: Database, later: list[str], table: str
) -> None:
    before, after = ([], [TABLE]) if table == "new" else ([TABLE], [])
    database.run(*before)
    reading = Reading(database, snapshot="initial")
    assert [change.action for change in reading.changes()] == []
    database.run(*after, ROW, *later)
    rows = [change.after for change in reading.changes() if change.action == "write"]
    assert rows[0] == {"id": 1, "u": UUID(MADE), "n": "2001:db8::1", "j": [1]}


@pytest.mark.mariadb_only
def test_a_checkpoint_of_an_earlier_version_takes_the_present_types(database: Database) -> None:
    database.run(TABLE)
    reading = Reading(database, snapshot="initial")
    reading.changes()
    saved = reading.offsets.load()
    assert saved is not None
    state = dict(saved.state)
    assert state["ddl"]["specials"] == [
        [database.name, "t", {"j": "json", "n": "inet6", "u": "uuid"}]
    ]
    del state["ddl"]
    reading.offsets.store(msgspec.structs.replace(saved, state=state))
    database.run(ROW)
    (change,) = reading.changes()
    assert (change.after or {})["u"] == UUID(MADE)


def followed(*statements: str) -> Mapping[tuple[str, str], Mapping[str, str]]:
    """Return the types by table after statements, by the statements alone."""
    specials = Specials([])
    for statement in statements:
        specials.follow(parse_statement(statement, "s").effects, unknown)
    return {(schema, table): types for schema, table, types in specials.state()}


@pytest.mark.parametrize(
    ("statements", "types"),
    [
        ([TABLE], {"t": {"u": "uuid", "n": "inet6", "j": "json"}}),
        (["CREATE TABLE t (id INT, KEY (id), y YEAR(2) NULL)"], {"t": {"y": "year(2)"}}),
        (
            ["CREATE TABLE `t` (`j` longtext DEFAULT NULL CHECK (json_valid(`j`)), k longtext)"],
            {"t": {"j": "json"}},
        ),
        (["CREATE TABLE t (DB_ROW_HASH_1 BIGINT)"], {"t": {"DB_ROW_HASH_1": ""}}),
        (
            ["CREATE TABLE t (u UUID)", "CREATE TABLE n LIKE t"],
            {"t": {"u": "uuid"}} | {"n": {"u": "uuid"}},
        ),
        (
            ["CREATE TABLE t (u UUID)", "CREATE TABLE n (LIKE t)", "DROP TABLE t"],
            {"n": {"u": "uuid"}},
        ),
        (
            ["CREATE TABLE t (u UUID)", "CREATE TABLE IF NOT EXISTS t (n INET4)"],
            {"t": {"u": "uuid"}},
        ),
        (["CREATE TABLE t (u UUID)", "CREATE OR REPLACE TABLE t (n INET4)"], {"t": {"n": "inet4"}}),
        (
            ["CREATE TABLE t (u UUID)", "ALTER TABLE t ADD (n INET4, k INT)"],
            {"t": {"u": "uuid", "n": "inet4"}},
        ),
        (["CREATE TABLE t (u UUID)", "ALTER TABLE t RENAME COLUMN u TO v"], {"t": {"v": "uuid"}}),
        (["CREATE TABLE t (u UUID)", "ALTER TABLE t CHANGE u v BINARY(16)"], {}),
        (
            ["CREATE TABLE t (u UUID)", "ALTER TABLE t DROP u, ADD n INET6 FIRST"],
            {"t": {"n": "inet6"}},
        ),
        (["CREATE TABLE t (u UUID)", "ALTER TABLE t ADD UNIQUE (u)"], {"t": {"u": "uuid"}}),
        (
            [
                "CREATE TABLE a (u UUID)",
                "CREATE TABLE b (n INET6)",
                "RENAME TABLE a TO c, b TO a, c TO b",
            ],
            {"a": {"n": "inet6"}, "b": {"u": "uuid"}},
        ),
    ],
)
def test_statements_tell_types(statements: list[str], types: dict[str, dict[str, str]]) -> None:
    assert followed(*statements) == {("s", table): own for table, own in types.items()}


def test_types_are_remembered_in_the_checkpoint() -> None:
    before = Definitions(None)
    before.specials.store(("s", "t"), {"u": "uuid"})
    before.specials.store(("d", "t"), {"u": "uuid"})
    before.drop_database("d")
    after = Definitions(before.state())
    assert after.specials.of(("s", "t")) == {"u": "uuid"}
    assert after.specials.of(("d", "t")) is None
