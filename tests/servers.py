"""Servers of databases for tests, each in a process of its own that ends with the tests.

The fixtures ``postgresql``, ``mariadb``, ``mysql`` and ``redis`` start a server when a test first
wants it, with its data in a temporary directory and a Unix socket there as the only way in. A
missing server skips the test, or fails it, as a missing broker does; a missing MySQL only skips it.

``STOMPKIT_TEST_SERVERS`` asks for servers that ``make servers`` has fetched in place of those that
are installed: ``newest``, or names such as ``postgresql-18``. With ``mysql-9`` in it, MySQL takes
the place of MariaDB.
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

from stompkit.testing._launching.fetched import Fetched, fetched, how_to_fetch
from stompkit.testing._launching.polling import wait_until
from stompkit.testing._launching.running import GuardedProcess
from stompkit.testing.plugin import settings_of

__all__ = [
    "MariaDb",
    "MySql",
    "PostgreSql",
    "RedisServer",
    "Server",
    "ServerMissing",
    "SqlServer",
    "mariadb",
    "mariadb_type",
    "mysql",
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
#: Says which servers that were fetched take the place of installed ones.
_WANTED: Final = "STOMPKIT_TEST_SERVERS"
_NEWEST: Final = "newest"


_Kind = TypeVar("_Kind", bound="Server")


class ServerMissing(Exception):
    """The server software is not installed; the message says how to get it.

    ``is_optional`` says that its absence is no failure anywhere.
    """

    def __init__(self, message: str, *, is_optional: bool = False) -> None:
        """Take the message."""
        super().__init__(message)
        self.is_optional = is_optional


class Server(ABC):
    """A server of a database in a process of its own."""

    name: str
    """What its directory and its databases are named after."""
    kind: str
    """The kind of server, as ``make servers`` records it."""
    fetch: str = ""
    """What ``make servers`` calls it; empty where it fetches none of the kind."""

    def __init__(self, release: Fetched | None = None) -> None:
        """Make the directory; raises :class:`ServerMissing`, and starts nothing yet.

        ``release`` is one that was fetched; by default what ``STOMPKIT_TEST_SERVERS`` asks for.
        """
        self._release = release or self._wanted()
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
            self._complete(self._command()),
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

    @classmethod
    def _wanted(cls) -> Fetched | None:
        """The release that was fetched and is asked for; ``None``: the installed one."""
        words = os.environ.get(_WANTED, "").split()
        asked = [word for word in words if word in (_NEWEST, cls.fetch)]
        if not asked or not cls.fetch:
            return None
        for each in fetched(cls.kind):
            if _NEWEST in asked or each.name in asked:
                return each
        raise ServerMissing(f"{cls.fetch} is asked for by {_WANTED}: {how_to_fetch(cls.fetch)}")

    def _complete(self, command: Sequence[str]) -> list[str]:
        """The command as the user that the server runs as, and in the system that it is in."""
        command = [*self._as_user, *command]
        return command if self._release is None else self._release.within(command)

    def _find(self, program: str, package: str) -> str:
        """Where a program is; raises :class:`ServerMissing`, which names Debian's package."""
        if self._release is None:
            return _find(program, package)
        obstacle = Fetched.obstacle()
        if obstacle is not None:
            raise ServerMissing(f"{self._release.name} can't be run: {obstacle}", is_optional=True)
        for folder in (_SBIN, "/usr/bin"):
            if (self._release.folder / folder.lstrip("/") / program).exists():
                return f"{folder}/{program}"
        raise ServerMissing(f"{self._release.folder} has no {program}: remove that folder")

    def _run(self, command: Sequence[str]) -> None:
        result = subprocess.run(
            self._complete(command),
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

    def __init__(self, release: Fetched | None = None) -> None:
        """Make the directory; raises :class:`ServerMissing`, and starts nothing yet."""
        self._numbers = count(1)
        super().__init__(release)

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
    kind = "postgresql"
    fetch = "postgresql-18"

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

    def _program(self, name: str) -> str:
        """A program of the newest version that Debian has installed, or of the path."""
        root = Path("/") if self._release is None else self._release.folder
        found = (root / "usr" / "lib" / "postgresql").glob(f"*/bin/{name}")
        newest = max(found, key=lambda path: float(path.parts[-3]), default=None)
        # Within its own system the path is the same without the folder.
        return self._find(name, "postgresql") if newest is None else f"/{newest.relative_to(root)}"


class MariaDb(SqlServer):
    """MariaDB, set up for replication by its binary log, too."""

    name = "mysql"
    kind = "mariadb"
    fetch = "mariadb-11.8"
    dialect = "mariadb"

    @property
    def socket(self) -> Path:
        """The Unix socket that it listens at."""
        return self.directory / "socket"

    def url(self, database: str, address: tuple[str, int] | None = None) -> str:
        """The URL of a database."""
        host, port = address or ("localhost", 3306)
        # To prepare for TLS, which is of no use here, takes most of the time of a connection; and
        # newer servers offer it, which hides what a proxy looks for.
        query = {"ssl_disabled": "1"}
        if not address:
            query["unix_socket"] = str(self.socket)
        url = URL.create(f"{self.dialect}+pymysql", "root", "", host, port, database, query)
        return url.render_as_string(hide_password=False)

    def _install_command(self) -> Sequence[str]:
        return [
            self._find("mariadb-install-db", "mariadb-server"),
            "--no-defaults",
            f"--datadir={self.directory / 'data'}",
            f"--tmpdir={self.directory}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]

    def _command(self) -> Sequence[str]:
        return [
            self._find("mariadbd", "mariadb-server"),
            *self._options(),
            "--debug-no-sync",
            "--binlog-format=ROW",
        ]

    def _options(self) -> list[str]:
        """The options that MySQL has, too."""
        return [
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
            "--server-id=1",
            "--log-bin=binlog",
            # Without this the log has neither names of columns nor signs of numbers.
            "--binlog-row-metadata=FULL",
        ]


class MySql(MariaDb):
    """MySQL, set up for replication by its binary log and by GTIDs."""

    kind = "mysql"
    fetch = "mysql-9"
    dialect = "mysql"

    @classmethod
    def _wanted(cls) -> Fetched | None:
        """The installed one where there is one, else the newest that was fetched."""
        found = None if _has_mysql() else next(iter(fetched(cls.kind)), None)
        return super()._wanted() or found

    def _install_command(self) -> Sequence[str]:
        return [self._mysqld(), *self._options(), "--initialize-insecure"]

    def _command(self) -> Sequence[str]:
        return [
            self._mysqld(),
            *self._options(),
            # It would listen at one more socket, elsewhere.
            "--mysqlx=OFF",
            "--sync-binlog=0",
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
        ]

    def _mysqld(self) -> str:
        if self._release is None and not _has_mysql():
            raise ServerMissing(
                f"MySQL is not installed: {how_to_fetch(self.fetch)}", is_optional=True
            )
        return self._find("mysqld", "mysql-server-core")

    def _options(self) -> list[str]:
        # The folder for files of clients may be missing where it is expected.
        return [*super()._options(), "--secure-file-priv=NULL"]


def _has_mysql() -> bool:
    """Whether MySQL itself is installed: MariaDB has a program of that name, too."""
    found = shutil.which("mysqld", path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")
    return found is not None and Path(found).resolve().name == "mysqld"


class RedisServer(Server):
    """Redis, which keeps nothing on disk."""

    name = "redis"
    kind = "redis"

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
        is_failure = settings_of(config).missing == "fail" and not missing.is_optional
        outcome = pytest.fail if is_failure else pytest.skip
        raise outcome.Exception(str(missing), pytrace=False) from None
    try:
        server.start()
        yield server
    finally:
        server.remove()


def mariadb_type() -> type[MariaDb]:
    """MariaDB, or MySQL where it is asked for in its place."""
    return MySql if MySql.fetch in os.environ.get(_WANTED, "").split() else MariaDb


@pytest.fixture(scope="session")
def postgresql(pytestconfig: pytest.Config) -> Iterator[SqlServer]:
    """A PostgreSQL server."""
    yield from _server(PostgreSql, pytestconfig)


@pytest.fixture(scope="session")
def mariadb(pytestconfig: pytest.Config) -> Iterator[SqlServer]:
    """A MariaDB server, or the MySQL server that is asked for in its place."""
    yield from _server(mariadb_type(), pytestconfig)


@pytest.fixture(scope="session")
def mysql(pytestconfig: pytest.Config) -> Iterator[SqlServer]:
    """A MySQL server."""
    yield from _server(MySql, pytestconfig)


@pytest.fixture(scope="session")
def redis_server(pytestconfig: pytest.Config) -> Iterator[RedisServer]:
    """A Redis server."""
    yield from _server(RedisServer, pytestconfig)


@pytest.fixture
def redis(redis_server: RedisServer) -> RedisServer:
    """An empty Redis server."""
    redis_server.flush()
    return redis_server
