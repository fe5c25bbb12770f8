"""Signals, as in Meepo, and Meepo's own tests of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from stompkit.replication.model.signals import signal
from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.mysql import mysql_pub
from stompkit.testing.launching.polling import wait_until
from tests.replication.sources.mysql.reading import DEADLINE_S, Database, Reading


class Received:
    """The received signals."""

    def __init__(self) -> None:
        """Start empty."""
        self.sent: dict[str, list[Any]] = defaultdict(list)
        self.order: list[str] = []
        self._receivers: list[Callable[..., None]] = []

    def listen(self, *names: str) -> None:
        """Connect to signals of these names."""
        for name in names:
            self._listen(name)

    def _listen(self, name: str) -> None:
        def receive(sent: object, **more: object) -> None:
            self.sent[name].append((sent, more) if more else sent)
            self.order.append(name)

        self._receivers.append(receive)
        signal(name).connect(receive)


@pytest.fixture
def seven(database: Database) -> tuple[Database, tuple[str, int]]:
    """Meepo's table and its seven statements, and their position in the log."""
    database.run(
        "CREATE TABLE test (id INT NOT NULL AUTO_INCREMENT, data VARCHAR(256) NOT NULL, "
        "PRIMARY KEY (id))"
    )
    begin = database.end()
    database.run(
        "INSERT INTO test (data) VALUES ('a')",
        "INSERT INTO test (data) VALUES ('b'), ('c'), ('d')",
        "UPDATE test SET data = 'aa' WHERE id = 1",
        "UPDATE test SET data = 'bb' WHERE id = 2",
        "UPDATE test SET data = 'cc' WHERE id != 1",
        "DELETE FROM test WHERE id != 1",
        "DELETE FROM test WHERE id = 1",
    )
    return database, begin


def test_keys_are_sent(seven: tuple[Database, tuple[str, int]]) -> None:
    database, begin = seven
    received = Received()
    received.listen("test_write", "test_update", "test_delete", f"{database.name}.test_write")
    mysql_pub(database.url, Tables(include=[f"{database.name}.test"]), start=begin)
    assert received.sent["test_write"] == [1, 2, 3, 4]
    assert received.sent["test_update"] == [1, 2, 2, 3, 4]
    assert received.sent["test_delete"] == [2, 3, 4, 1]
    assert received.sent[f"{database.name}.test_write"] == [1, 2, 3, 4]


def test_positions_are_sent_at_commits_only(seven: tuple[Database, tuple[str, int]]) -> None:
    database, begin = seven
    received = Received()
    received.listen("test_write", "test_update", "test_delete", "mysql_binlog_pos")
    mysql_pub(database.url, ["test"], start=begin, server_id=1024)
    positions = [position for position, _ in received.sent["mysql_binlog_pos"]]
    assert len(positions) == 7
    assert all(re.fullmatch(rf"{begin[0]}:\d+", position) for position in positions)
    assert positions[-1] == "{}:{}".format(*database.end())
    gtids = [more["gtid"] for _, more in received.sent["mysql_binlog_pos"]]
    assert all(gtid.startswith(database.gtid_start) for gtid in gtids)
    write, update, delete, end = "test_write", "test_update", "test_delete", "mysql_binlog_pos"
    assert received.order == [
        *(write, end, write, write, write, end),
        *(update, end, update, end, update, update, update, end),
        *(delete, delete, delete, end, delete, end),
    ]


def test_rows_are_sent_as_meepo_has_them(seven: tuple[Database, tuple[str, int]]) -> None:
    database, begin = seven
    received = Received()
    received.listen("test_write_raw", "test_update_raw", "test_delete_raw")
    mysql_pub(database.url, ["test"], start=begin)
    assert received.sent["test_write_raw"] == [
        {"values": {"id": number, "data": data}} for number, data in enumerate("abcd", 1)
    ]
    assert received.sent["test_update_raw"] == [
        {"before_values": {"id": number, "data": old}, "after_values": {"id": number, "data": new}}
        for number, old, new in [
            (1, "a", "aa"),
            (2, "b", "bb"),
            (2, "bb", "cc"),
            (3, "c", "cc"),
            (4, "d", "cc"),
        ]
    ]
    assert received.sent["test_delete_raw"] == [
        {"values": {"id": number, "data": data}}
        for number, data in [(2, "cc"), (3, "cc"), (4, "cc"), (1, "aa")]
    ]


def test_without_more_the_file_that_is_written_now_is_read(database: Database) -> None:
    database.run(
        "CREATE TABLE of_file (id INT PRIMARY KEY)",
        "INSERT INTO of_file VALUES (1)",
        "FLUSH BINARY LOGS",
        "INSERT INTO of_file VALUES (2)",
    )
    received = Received()
    received.listen("of_file_write")
    mysql_pub(database.url, [f"{database.name}.of_file"])
    assert received.sent["of_file_write"] == [2]


def test_a_key_that_changes_is_a_delete_and_a_write(database: Database) -> None:
    database.run("CREATE TABLE keyed (a INT, b INT, PRIMARY KEY (b, a))")
    begin = database.end()
    database.run("INSERT INTO keyed VALUES (1, 2)", "UPDATE keyed SET a = 0")
    received = Received()
    received.listen("keyed_write", "keyed_update", "keyed_delete")
    mysql_pub(database.url, ["keyed"], start=begin)
    assert received.sent["keyed_write"] == [(2, 1), (2, 0)]
    assert received.sent["keyed_delete"] == [(2, 1)]
    assert not received.sent["keyed_update"]


def test_tables_without_a_key_are_heard_of(database: Database) -> None:
    database.run("CREATE TABLE keyless (a INT)")
    begin = database.end()
    database.run("INSERT INTO keyless VALUES (1)")
    received = Received()
    received.listen("keyless_write", "keyless_write_raw")
    mysql_pub(database.url, ["keyless"], start=begin)
    assert received.sent["keyless_write"] == [None]
    assert received.sent["keyless_write_raw"] == [{"values": {"a": 1}}]


def test_receivers_that_raise_do_not_end_the_stream(database: Database) -> None:
    database.run("CREATE TABLE robust (id INT PRIMARY KEY)")
    begin = database.end()
    database.run("INSERT INTO robust VALUES (1)", "INSERT INTO robust VALUES (2)")
    received = Received()
    received.listen("robust_write")

    def fail(sent: object, **more: object) -> None:
        raise RuntimeError("no")

    with (
        signal("robust_write").connected_to(fail),
        signal("mysql_binlog_pos").connected_to(fail),
    ):
        mysql_pub(database.url, ["robust"], start=begin)
    assert received.sent["robust_write"] == [1, 2]


def test_positions_are_sent_where_nothing_is_wanted(database: Database) -> None:
    database.run("CREATE TABLE quiet (id INT PRIMARY KEY)")
    reading = Reading(database, tables=Tables(include=["none"]))
    received = Received()
    received.listen("mysql_binlog_pos")
    with reading.running():
        database.run("INSERT INTO quiet VALUES (1)")
        assert wait_until(lambda: bool(received.sent["mysql_binlog_pos"]), DEADLINE_S)
    assert received.sent["mysql_binlog_pos"][0][0] == "{}:{}".format(*database.end())
