"""Servers of databases for tests, each in a process of its own that ends with the tests.

The fixtures ``postgresql``, ``mariadb`` and ``redis`` start a server when a test first wants it,
with its data in a temporary directory and a Unix socket there as the only way in. What is not
installed skips a test, or fails it, as a missing broker does.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

import pytest
from redis import Redis, RedisError
from sqlalchemy import URL, create_engine, text
from sqlalchemy.exc import OperationalError

from stompkit.testing._launching.polling import wait_until
from stompkit.testing._launching.running import GuardedProcess
from stompkit.testing.plugin import settings_of

__all__ = [
    "MariaDb",
    "PostgreSql",
    "RedisServer",
    "Server",
    "ServerMissing",
    "SqlServer",
    "mariadb",
    "postgresql",
    "redis",
    "redis_server",
]

#: How long a server may take until it answers, in seconds.
_START_S: Final = 60.0
#: How long it may take to end before it is killed, in seconds.
_STOP_S: Final = 15.0
#: What asking a server fails with that is not there yet.
_NO_ANSWER: Final = (OSError, OperationalError, RedisError)
#: Where Debian puts daemons; not on the path of every user.
_SBIN: Final = "/usr/sbin"


_Kind = TypeVar("_Kind", bound="Server")


class ServerMissing(Exception):
    """The server software is not installed; the message says how to get it."""


class Server(ABC):
    """A server of a database in a process of its own."""

    name: str
    """What its directory and its databases are named after."""

    def __init__(self) -> None:
        """Make the directory; raises :class:`ServerMissing`, and starts nothing yet."""
        self.directory = Path(tempfile.mkdtemp(prefix=f"stompkit-{self.name}-"))
        self._process: GuardedProcess | None = None
        # These servers refuse to run as root, or are better not run as root.
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.directory, nobody.pw_uid, nobody.pw_gid)
            ids = [f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
            self._as_user = [_find("setpriv", "util-linux"), *ids, "--pdeathsig=KILL", "--"]
        try:
            self._install()
        except BaseException:
            shutil.rmtree(self.directory)
            raise

    @property
    @abstractmethod
    def socket(self) -> Path:
        """The Unix socket that it listens at."""

    @abstractmethod
    def _install(self) -> None:
        """Make the files of a server without databases; raises :class:`ServerMissing`."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """What runs the server in the foreground."""

    @abstractmethod
    def _ask(self) -> None:
        """Ask the server for anything; raises one of ``_NO_ANSWER`` where it does not answer."""

    def start(self) -> None:
        """Start the server, and return when it answers."""
        self._process = process = GuardedProcess(
            [*self._as_user, *self._command()],
            dict(os.environ),
            self.directory,
            _STOP_S,
            temporary=True,
        )

        def answers() -> bool:
            assert process.status() is None, f"{self.name} has ended:\n{process.log()}"
            try:
                # First without a driver: PyMySQL forgets to close a socket that nobody listens to.
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.connect(str(self.socket))
                self._ask()
            except _NO_ANSWER:
                return False
            return True

        assert wait_until(answers, _START_S), f"{self.name} does not answer:\n{process.log()}"

    def stop(self) -> None:
        """Shut the server down; it can be started again."""
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """Kill the server with ``kill -9``; it can be started again."""
        assert self._process is not None
        self._process.kill()

    def remove(self) -> None:
        """Shut the server down and remove its files."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self, command: Sequence[str]) -> None:
        result = subprocess.run(
            [*self._as_user, *command],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stdout


class SqlServer(Server):
    """An SQL server."""

    def __init__(self) -> None:
        """Make the directory; raises :class:`ServerMissing`, and starts nothing yet."""
        self._numbers = count(1)
        super().__init__()

    @abstractmethod
    def url(self, database: str, address: tuple[str, int] | None = None) -> str:
        """The URL of a database, over the socket or over a TCP ``address`` that leads there."""

    @abstractmethod
    def _install_command(self) -> Sequence[str]:
        """What makes the files of a server without databases."""

    def new_database(self) -> str:
        """Make an empty database; return its name."""
        name = f"{self.name}_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name}")
        return name

    def _execute(self, statement: str) -> None:
        engine = create_engine(self.url(self.name), isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                connection.execute(text(statement))
        finally:
            engine.dispose()

    def _install(self) -> None:
        """Make the files of a server without databases."""
        self._run(self._install_command())

    def _ask(self) -> None:
        """Ask for a number."""
        self._execute("SELECT 1")


class PostgreSql(SqlServer):
    """PostgreSQL, set up for logical replication, too."""

    name = "postgres"

    @property
    def socket(self) -> Path:
        """The Unix socket that it listens at."""
        return self.directory / ".s.PGSQL.5432"

    def url(self, database: str, address: tuple[str, int] | None = None) -> str:
        """The URL of a database."""
        host, port = address or (str(self.directory), 5432)
        query = {"host": host, "port": str(port)}
        url = URL.create("postgresql+psycopg", "postgres", database=database, query=query)
        return url.render_as_string(hide_password=False)

    def _install_command(self) -> Sequence[str]:
        return [
            self._program("initdb"),
            f"--pgdata={self.directory / 'data'}",
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
        ]

    def _command(self) -> Sequence[str]:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.directory),
            "wal_level": "logical",
            # Nothing in here has to survive the machine.
            "fsync": "off",
            # No files elsewhere, which would be left behind by a server that is killed.
            "dynamic_shared_memory_type": "mmap",
        }
        options = [part for item in settings.items() for part in ("-c", "=".join(item))]
        return [self._program("postgres"), "-D", str(self.directory / "data"), *options]

    @staticmethod
    def _program(name: str) -> str:
        """A program of the newest version that Debian has installed, or of the path."""
        found = Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
        newest = max(found, key=lambda path: float(path.parts[4]), default=None)
        return _find(name, "postgresql") if newest is None else str(newest)


class MariaDb(SqlServer):
    """MariaDB, set up for replication by its binary log, too."""

    name = "mysql"

    @property
    def socket(self) -> Path:
        """The Unix socket that it listens at."""
        return self.directory / "socket"

    def url(self, database: str, address: tuple[str, int] | None = None) -> str:
        """The URL of a database."""
        host, port = address or ("localhost", 3306)
        # To prepare for TLS, which is of no use here, takes most of the time of a connection.
        query = {} if address else {"unix_socket": str(self.socket), "ssl_disabled": "1"}
        url = URL.create("mariadb+pymysql", "root", "", host, port, database, query)
        return url.render_as_string(hide_password=False)

    def _install_command(self) -> Sequence[str]:
        return [
            _find("mariadb-install-db", "mariadb-server"),
            "--no-defaults",
            f"--datadir={self.directory / 'data'}",
            f"--tmpdir={self.directory}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]

    def _command(self) -> Sequence[str]:
        return [
            _find("mariadbd", "mariadb-server"),
            "--no-defaults",
            f"--datadir={self.directory / 'data'}",
            f"--tmpdir={self.directory}",
            f"--socket={self.socket}",
            f"--pid-file={self.directory / 'pid'}",
            "--skip-networking",
            "--character-set-server=utf8mb4",
            # As with PostgreSQL: what is committed survives the server's death, not the machine's.
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-flush-method=nosync",
            "--debug-no-sync",
            "--server-id=1",
            "--log-bin=binlog",
            "--binlog-format=ROW",
            # Without this the log has neither names of columns nor signs of numbers.
            "--binlog-row-metadata=FULL",
        ]


class RedisServer(Server):
    """Redis, which keeps nothing on disk."""

    name = "redis"

    @property
    def socket(self) -> Path:
        """The Unix socket that it listens at."""
        return self.directory / "socket"

    @property
    def url(self) -> str:
        """The URL of its first database."""
        return f"unix://{self.socket}"

    def flush(self) -> None:
        """Forget everything."""
        with Redis.from_url(self.url) as client:
            client.flushall()

    def _install(self) -> None:
        """Look for the program, no more."""
        _find("redis-server", "redis-server")

    def _command(self) -> Sequence[str]:
        settings = {
            "port": "0",
            "unixsocket": str(self.socket),
            "dir": str(self.directory),
            "save": "",
            "appendonly": "no",
        }
        options = [part for name, value in settings.items() for part in (f"--{name}", value)]
        return [_find("redis-server", "redis-server"), *options]

    def _ask(self) -> None:
        with Redis.from_url(self.url) as client:
            client.ping()


def _find(program: str, package: str) -> str:
    """Where a program is; raises :class:`ServerMissing`, which names Debian's package."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")
    if found is None:
        raise ServerMissing(f"{program} is not installed: apt-get install {package}")
    return found


def _server(kind: type[_Kind], config: pytest.Config) -> Iterator[_Kind]:
    """One server for all tests."""
    try:
        server = kind()
    except ServerMissing as missing:
        outcome = pytest.fail if settings_of(config).missing == "fail" else pytest.skip
        raise outcome.Exception(str(missing), pytrace=False) from None
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgresql(pytestconfig: pytest.Config) -> Iterator[SqlServer]:
    """A PostgreSQL server."""
    yield from _server(PostgreSql, pytestconfig)


@pytest.fixture(scope="session")
def mariadb(pytestconfig: pytest.Config) -> Iterator[SqlServer]:
    """A MariaDB server."""
    yield from _server(MariaDb, pytestconfig)


@pytest.fixture(scope="session")
def redis_server(pytestconfig: pytest.Config) -> Iterator[RedisServer]:
    """A Redis server."""
    yield from _server(RedisServer, pytestconfig)


@pytest.fixture
def redis(redis_server: RedisServer) -> RedisServer:
    """An empty Redis server."""
    redis_server.flush()
    return redis_server
