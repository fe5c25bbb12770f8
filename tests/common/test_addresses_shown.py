"""Addresses in messages can be given again: as URL or path, whatever they are."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import make_url

from stompkit._common.addresses import host_port, parse_host_port
from stompkit._common.arguments import Parser
from stompkit._common.metrics import Address, parse_address
from stompkit.replication.sql import Database
from stompkit.server.stores.database import Database as StoreDatabase
from stompkit.server.stores.postgresql.url import parsed
from stompkit.spool.address import ServerUrl, parse_url

URLS = [
    "sqlite:////var/lib/copy.sqlite",
    "sqlite:///copy.sqlite",
    "postgresql://me:{}@db:5433/shop?sslmode=require",
    "postgresql://me:{}@/shop?host=/run/postgresql&port=5433",
    "postgresql+psycopg://me@[::1]:5433/shop",
    "mysql://me:{}@db/shop?unix_socket=/run/mysqld.sock",
    "mariadb+pymysql://me@db/shop?ssl_ca=/etc/ca.pem&charset=utf8mb4",
]
HOSTS = st.ip_addresses().map(str) | st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True)
PORTS = st.integers(1, 65535)


@pytest.mark.parametrize("url", URLS)
def test_url_of_a_database_is_shown_as_it_can_be_given_again(url: str) -> None:
    shown = make_url(url.format("***"))
    secret = url.format("s3cr3t")
    databases = [Database(secret, "off"), Database(make_url(secret), "off")]
    engine = Database(databases[0].engine, "off")
    names = [*(each.name for each in databases), StoreDatabase(secret, synchronous=True).name]
    if url.startswith("postgresql"):
        names.append(parsed(secret).name)
    assert [make_url(name) for name in names] == [shown] * len(names)
    # SQLAlchemy's engine names its driver.
    assert make_url(engine.name).set(drivername=shown.drivername) == shown
    for each in (*databases, engine):
        each.close()


def test_several_hosts_of_a_store_are_shown_as_they_are_given() -> None:
    url = "postgresql://me:{}@one:5432,[::1]:5433/db?sslmode=require"
    assert parsed(url.format("s3cr3t")).name == url.format("***")


@given(HOSTS, PORTS)
def test_addresses_are_read_as_they_are_shown(host: str, port: int) -> None:
    assert parse_host_port(host_port(host, port)) == (host, port)
    assert parse_address(str(Address(host, port))) == Address(host, port)
    for is_tls in (False, True):
        url = ServerUrl(is_tls, host, port)
        assert parse_url(str(url)) == url


@pytest.mark.parametrize("url", ["sqlite:////var/lib/x.db", "s3://bucket/x", "http://h:1/x"])
def test_url_is_no_path(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Path would show another text: sqlite:/var/lib/x.db."""
    parser = Parser(prog="stompkit x")
    parser.add_argument("--config", type=Path)
    parser.add_argument("directory", metavar="DIRECTORY", nargs="?")
    parser.add_argument("store", metavar="STORE", nargs="?")
    for arguments in (["--config", url], [url]):
        with pytest.raises(SystemExit):
            parser.parse_args(arguments)
        assert f"{url!r} is a URL, but a path on this machine is needed" in capsys.readouterr().err
    assert parser.parse_args(["x", url]) == argparse.Namespace(
        config=None, directory="x", store=url
    )
