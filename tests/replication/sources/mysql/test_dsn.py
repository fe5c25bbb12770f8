"""DSNs, and the secrets that they do not reveal."""

from __future__ import annotations

import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from stompkit.replication.sources.mysql import MysqlError, MysqlPublisher, PreflightError
from stompkit.replication.sources.mysql._dsn import Dsn
from tests.replication.sources.mysql.reading import Database, Reading

SECRET = "p@ss/w:rd%"
QUOTED = "p%40ss%2Fw%3Ard%25"


def test_user_and_password_are_percent_decoded(database: Database) -> None:
    database.add_user("a@b", SECRET, grants="ALL PRIVILEGES")
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    url = f"mysql://a%40b:{QUOTED}@localhost/?unix_socket={database.server.socket}"
    reading = Reading(database, url=url)
    database.run("INSERT INTO t VALUES (1)")
    assert [change.key for change in reading.changes()] == [{"id": 1}]


@pytest.mark.mariadb_only
def test_limits_of_time_for_the_user_do_not_end_a_snapshot(database: Database) -> None:
    database.add_user("slow", grants="ALL PRIVILEGES")
    database.run("ALTER USER 'slow'@'localhost' WITH MAX_STATEMENT_TIME 5")
    with Dsn.parse(database.login("slow")).connect() as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT @@max_statement_time, @@idle_transaction_timeout")
        assert cursor.fetchone() == (0, 0)


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+pymysql", "mariadb+pymysql"])
def test_schemes_of_sqlalchemy_are_taken(database: Database, scheme: str) -> None:
    url = scheme + database.url[database.url.index(":") :]
    assert MysqlPublisher(url).preflight().problems == ()


def test_secrets_are_in_no_log_no_repr_and_no_problem(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    database.add_user("c", SECRET, grants="USAGE")
    url = f"mysql://c:{QUOTED}@localhost/?unix_socket={database.server.socket}"
    publisher = MysqlPublisher(url)
    with pytest.raises(PreflightError) as refused:
        publisher.run()
    database.run("DROP USER 'c'@'localhost'")
    with pytest.raises(MysqlError) as locked_out:
        MysqlPublisher(url).run()
    told = [caplog.text, repr(publisher), repr(vars(publisher)), *map(str, (refused, locked_out))]
    told += map(str, (refused.value, locked_out.value))
    for text in told:
        assert SECRET not in text
        assert QUOTED not in text


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://u:hidden@h/d", "begins with mysql://"),
        ("mysql://u:hidden@h:99999/", "port"),
        ("mysql://u:hidden@h/?ssl_verify_cert=perhaps", "ssl_verify_cert"),
        ("mysql://u:hidden@h/?connect_timeout=soon", "connect_timeout"),
        ("mysql://u:hidden@h/?colour=red", "colour"),
    ],
)
def test_what_is_wrong_with_a_dsn_is_said_without_repeating_it(url: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        MysqlPublisher(url)
    assert "hidden" not in str(caught.value)


def test_tls_without_a_server_that_speaks_it_is_refused(database: Database) -> None:
    url = make_url(database.url).difference_update_query(["ssl_disabled"])
    url = url.update_query_dict({"ssl_ca": "/nowhere/ca.pem", "ssl_verify_cert": "1"})
    publisher = MysqlPublisher(url.render_as_string(hide_password=False))
    with pytest.raises(MysqlError, match=r"refuses the connection: .*Check the URL of the source"):
        publisher.run()


def test_a_server_that_takes_no_connection_is_not_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    dsn = Dsn.parse(f"mysql://u@localhost/?unix_socket={path}&connect_timeout=1")
    with ThreadPoolExecutor() as threads, socket.socket(socket.AF_UNIX) as other:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen(0)
            other.connect(path)  # the only one that may wait
            with pytest.raises(BlockingIOError):
                threads.submit(dsn.probe).result(10.0)


@pytest.mark.parametrize(
    "options",
    [{"server_id": 0}, {"server_id": 2**32}, {"tables": "users"}],
)
def test_arguments_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"server_id|tables"):
        MysqlPublisher("mysql://localhost/", **options)
