"""Database servers for tests, each in a separate process that ends with the tests.

The fixtures ``postgresql``, ``mariadb``, ``mysql`` and ``redis`` start a server at its first use.
Its data is in a temporary directory, and a Unix socket there is the only way in. A missing server
skips the test or fails it, as a missing broker does; a missing MySQL only skips it.

``STOMPKIT_TEST_SERVERS`` selects servers that ``make servers`` has fetched instead of the installed
ones: ``newest``, or names such as ``postgresql-18``. With ``mysql-9`` in it, MySQL replaces
MariaDB.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final, Self, TypeVar

import pytest
from redis import Redis, RedisError
from sqlalchemy import URL, create_engine, text
from sqlalchemy.exc import OperationalError

from stompkit.testing.launching.fetched import Fetched, fetched, how_to_fetch
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.launching.processes.process import GuardedProcess
from stompkit.testing.plugin import settings_of

__all__ = [
    "MariaDb",
    "MySql",
    "PostgreSql",
    "PostgreSqlReplica",
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

#: Time in seconds within which a server has to answer after its start.
_START_S: Final = 60.0
#: Time in seconds that a server may take to end before it is killed.
_STOP_S: Final = 15.0
#: Errors of a request to a server that does not answer yet.
_NO_ANSWER: Final = (OSError, OperationalError, RedisError)
#: Directory where Debian installs daemons; not on the path of every user.
_SBIN: Final = "/usr/sbin"
#: Variable that selects fetched servers instead of the installed ones.
_WANTED: Final = "STOMPKIT_TEST_SERVERS"
_NEWEST: Final = "newest"


_Kind = TypeVar("_Kind", bound="Server")


class ServerMissing(Exception):
    """Raised when the server software is not installed; the message says how to get it.

    ``is_optional`` is true if tests are skipped without it everywhere.
    """

    def __init__(self, message: str, *, is_optional: bool = False) -> None:
        """Store the message."""
        super().__init__(message)
        self.is_optional = is_optional


class Server(ABC):
    """A database server in a separate process."""

    name: str
    """Prefix of the names of its directory and its databases."""
    kind: str
    """The kind of server, as ``make servers`` records it."""
    fetch: str = ""
    """Name of the server in ``make servers``; empty if that fetches none of this kind."""

    def __init__(self, release: Fetched | None = None) -> None:
        """Create the directory; raises :class:`ServerMissing`. Does not start the server yet.

        ``release`` is a fetched release; by default the one that ``STOMPKIT_TEST_SERVERS`` selects.
        """
        self._release = release or self._wanted()
        self.directory = Path(tempfile.mkdtemp(prefix=f"stompkit-{self.name}-"))
        self._process: GuardedProcess | None = None
        # These servers refuse to run as root, or should not run as root.
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
        """Path of the Unix socket on which the server listens."""

    @abstractmethod
    def _install(self) -> None:
        """Create the files of a server without databases; raises :class:`ServerMissing`."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Return the command that runs the server in the foreground."""

    @abstractmethod
    def _ask(self) -> None:
        """Send any request to the server; raises one of ``_NO_ANSWER`` if it does not answer."""

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
                # First without a driver: PyMySQL does not close its socket if nothing listens.
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

    def __enter__(self) -> Self:
        """Start the server; the end of the block removes it."""
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the server."""
        self.remove()

    def remove(self) -> None:
        """Shut the server down and remove its files."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    @classmethod
    def _wanted(cls) -> Fetched | None:
        """Return the fetched release that is selected, or ``None`` for the installed one."""
        words = os.environ.get(_WANTED, "").split()
        asked = [word for word in words if word in (_NEWEST, cls.fetch)]
        if not asked or not cls.fetch:
            return None
        for each in fetched(cls.kind):
            if _NEWEST in asked or each.name in asked:
                return each
        raise ServerMissing(f"{cls.fetch} is asked for by {_WANTED}: {how_to_fetch(cls.fetch)}")

    def _complete(self, command: Sequence[str]) -> list[str]:
        """Return the command with the user and the root directory that the server runs in."""
        command = [*self._as_user, *command]
        return command if self._release is None else self._release.within(command)

    def _find(self, program: str, package: str) -> str:
        """Return the path of a program; raises :class:`ServerMissing`, which names its package."""
        if self._release is None:
            return _find(program, package)
        obstacle = Fetched.obstacle()
        if obstacle is not None:
            raise ServerMissing(f"{self._release.name} cannot be run: {obstacle}", is_optional=True)
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
        """Create the directory; raises :class:`ServerMissing`. Does not start the server yet."""
        self._numbers = count(1)
        super().__init__(release)

    @abstractmethod
    def url(self, database: str, address: tuple[str, int] | None = None) -> str:
        """Return the URL of a database, over the socket or over a TCP ``address``."""

    @abstractmethod
    def _install_command(self) -> Sequence[str]:
        """Return the command that creates the files of a server without databases."""

    def new_database(self) -> str:
        """Create an empty database; return its name."""
        name = f"{self.name}_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name}")
        return name

    def _execute(self, statement: str, database: str = "") -> None:
        engine = create_engine(self.url(database or self.name), isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                connection.execute(text(statement))
        finally:
            engine.dispose()

    def _install(self) -> None:
        """Create the files of a server without databases."""
        self._run(self._install_command())

    def _ask(self) -> None:
        """Select a number."""
        self._execute("SELECT 1")


class PostgreSql(SqlServer):
    """A PostgreSQL server that also supports logical replication."""

    name = "postgres"
    kind = "postgresql"
    fetch = "postgresql-18"

    @property
    def socket(self) -> Path:
        """Path of the Unix socket on which the server listens."""
        return self.directory / ".s.PGSQL.5432"

    def url(self, database: str, address: tuple[str, int] | None = None) -> str:
        """Return the URL of a database."""
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
            # The data does not have to survive a crash of the machine.
            "fsync": "off",
            # No files elsewhere: a killed server would leave them behind.
            "dynamic_shared_memory_type": "mmap",
        }
        options = [part for item in settings.items() for part in ("-c", "=".join(item))]
        return [self._program("postgres"), "-D", str(self.directory / "data"), *options]

    def stop(self) -> None:
        """Shut the server down; it can be started again."""
        if self._process is not None and self._process.status() is None:
            # Without this signal, it would wait until all of its clients have left.
            with suppress(OSError, IndexError):
                pid = (self.directory / "data" / "postmaster.pid").read_text().split()[0]
                os.kill(int(pid), signal.SIGINT)
        super().stop()

    def _program(self, name: str) -> str:
        """Return a program of the newest version that Debian has installed, or of the path."""
        root = Path("/") if self._release is None else self._release.folder
        found = (root / "usr" / "lib" / "postgresql").glob(f"*/bin/{name}")
        newest = max(found, key=lambda path: float(path.parts[-3]), default=None)
        # Inside the fetched system, the path is the same without the folder.
        return self._find(name, "postgresql") if newest is None else f"/{newest.relative_to(root)}"


class PostgreSqlReplica(PostgreSql):
    """A replica of a running PostgreSQL server, until it is promoted."""

    name = "replica"

    def __init__(self, primary: PostgreSql) -> None:
        """Copy the primary server."""
        self._primary = primary
        super().__init__(primary._release)

    def _install_command(self) -> Sequence[str]:
        return [
            self._program("pg_basebackup"),
            f"--host={self._primary.directory}",
            "--username=postgres",
            f"--pgdata={self.directory / 'data'}",
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--no-sync",
        ]

    def _ask(self) -> None:
        """Select a number; it has the databases of the primary server."""
        self._execute("SELECT 1", "postgres")

    def promote(self) -> None:
        """Make it a server that accepts writes; returns when it does."""
        self._execute("SELECT pg_promote()", "postgres")


class MariaDb(SqlServer):
    """A MariaDB server that also supports replication by its binary log."""

    name = "mysql"
    kind = "mariadb"
    fetch = "mariadb-11.8"
    dialect = "mariadb"

    @property
    def socket(self) -> Path:
        """Path of the Unix socket on which the server listens."""
        return self.directory / "socket"

    def url(self, database: str, address: tuple[str, int] | None = None) -> str:
        """Return the URL of a database."""
        host, port = address or ("localhost", 3306)
        # Preparing for TLS, which is not used here, takes most of the time of a connection. Newer
        # servers also offer TLS, which hides the bytes that a proxy looks for.
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
        """Return the options that MySQL has, too."""
        return [
            "--no-defaults",
            f"--datadir={self.directory / 'data'}",
            f"--tmpdir={self.directory}",
            f"--socket={self.socket}",
            f"--pid-file={self.directory / 'pid'}",
            "--skip-networking",
            "--character-set-server=utf8mb4",
            # As with PostgreSQL: committed data survives the death of the server, not of the
            # machine.
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-flush-method=nosync",
            "--server-id=1",
            "--log-bin=binlog",
            # Without this option the log has neither names of columns nor signs of numbers.
            "--binlog-row-metadata=FULL",
        ]


class MySql(MariaDb):
    """A MySQL server that also supports replication by its binary log and by GTIDs."""

    kind = "mysql"
    fetch = "mysql-9"
    dialect = "mysql"

    @classmethod
    def _wanted(cls) -> Fetched | None:
        """Return the selected release; else ``None`` if MySQL is installed, or the newest one."""
        found = None if _has_mysql() else next(iter(fetched(cls.kind)), None)
        return super()._wanted() or found

    def _install_command(self) -> Sequence[str]:
        return [self._mysqld(), *self._options(), "--initialize-insecure"]

    def _command(self) -> Sequence[str]:
        return [
            self._mysqld(),
            *self._options(),
            # Otherwise it would listen on one more socket, elsewhere.
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
        # The default folder for files of clients may be missing.
        return [*super()._options(), "--secure-file-priv=NULL"]


def _has_mysql() -> bool:
    """Return True if MySQL itself is installed: MariaDB has a program of that name, too."""
    found = shutil.which("mysqld", path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")
    return found is not None and Path(found).resolve().name == "mysqld"


class RedisServer(Server):
    """A Redis server that keeps nothing on disk."""

    name = "redis"
    kind = "redis"

    @property
    def socket(self) -> Path:
        """Path of the Unix socket on which the server listens."""
        return self.directory / "socket"

    @property
    def url(self) -> str:
        """URL of the first database."""
        return f"unix://{self.socket}"

    def flush(self) -> None:
        """Delete all data."""
        with Redis.from_url(self.url) as client:
            client.flushall()

    def _install(self) -> None:
        """Check that the program is installed."""
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
    """Return the path of a program; raises :class:`ServerMissing`, which names its package."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")
    if found is None:
        raise ServerMissing(f"{program} is not installed: apt-get install {package}")
    return found


def _server(kind: type[_Kind], config: pytest.Config) -> Iterator[_Kind]:
    """Yield one server for all tests."""
    try:
        server = kind()
    except ServerMissing as missing:
        is_failure = settings_of(config).missing == "fail" and not missing.is_optional
        outcome = pytest.fail if is_failure else pytest.skip
        raise outcome.Exception(str(missing), pytrace=False) from None
    with server:
        yield server


def mariadb_type() -> type[MariaDb]:
    """Return MariaDB, or MySQL if that is selected instead."""
    return MySql if MySql.fetch in os.environ.get(_WANTED, "").split() else MariaDb


@pytest.fixture(scope="session")
def postgresql(pytestconfig: pytest.Config) -> Iterator[SqlServer]:
    """A PostgreSQL server."""
    yield from _server(PostgreSql, pytestconfig)


@pytest.fixture(scope="session")
def mariadb(pytestconfig: pytest.Config) -> Iterator[SqlServer]:
    """A MariaDB server, or the MySQL server that is selected instead."""
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
