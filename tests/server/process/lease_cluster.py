"""Brokers that share a store in PostgreSQL by a lease."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stompkit.server.stores.postgresql.stamps import epoch_of
from stompkit.server.stores.postgresql.url import parsed
from tests.server.log.log_lines import LogLines
from tests.server.processes import LOOPBACK, TWIST, Process, Start, processes
from tests.servers import SqlServer

__all__ = [
    "ADMIN",
    "LONG",
    "SHORT",
    "WITHIN_S",
    "Cluster",
    "Member",
    "begin_command",
    "begin_failover",
    "body",
    "cluster",
    "failover",
]

#: Seconds of a lease that has to expire in a test, and of one that must not.
SHORT, LONG = 3, 600
#: Seconds within which a process has to be as expected.
WITHIN_S = 120.0
#: Settings of a broker with an admin interface.
ADMIN = '[admin]\nendpoints = ["tcp:0:interface=127.0.0.1"]'


class Member:
    """A broker that takes part in the lease."""

    def __init__(self, process: Process, announce: Path) -> None:
        """Keep its process, and the file that exists while it is active."""
        self.process = process
        self.announce = announce

    def active(self) -> dict[str, Any]:
        """Wait until it is active; return its endpoint."""
        self.process.wait_until(self.announce.exists, WITHIN_S)
        [where] = json.loads(self.announce.read_text(encoding="utf-8"))["endpoints"]
        assert isinstance(where, dict)
        return where

    def passive(self) -> None:
        """Wait until it is not active any more."""
        self.process.wait_until(lambda: not self.announce.exists(), WITHIN_S)

    def logged(self, event: str) -> dict[str, Any]:
        """Wait until an event is logged, and return the first one."""
        self.process.wait_until(lambda: self.events(event), WITHIN_S)
        return self.events(event)[0]

    def events(self, name: str = "") -> list[dict[str, Any]]:
        """Return the events so far with a name, or all."""
        lines = LogLines()
        complete = self.process.log.rpartition("\n")[0].splitlines()
        # The reason of a failed start is printed, since there is no log yet.
        lines.add("\n".join(line for line in complete if line.startswith("{")))
        return lines.events(name)

    @property
    def admin(self) -> str:
        """The address of its admin interface."""
        self.logged("listening")
        found = [each for each in self.events("listening") if each["protocol"] == "HTTP"]
        return f"http://{found[0]['address']}"

    def running(self) -> None:
        """Wait until it takes part in the lease."""
        self.logged("lease-joined")

    def end(self) -> None:
        """Stop it in good order."""
        self.signal(signal.SIGTERM)
        self.process.popen.wait(WITHIN_S)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.popen.send_signal(number)


class Cluster:
    """Brokers with one database."""

    def __init__(self, start: Start, directory: Path, url: str) -> None:
        """Start without brokers."""
        self.start_process = start
        self._directory = directory
        self.url = url
        self.members: list[Member] = []

    def start(self, name: str, seconds: float, *, url: str = "", more: str = "") -> Member:
        """Start a broker; it is active or not."""
        file, announce = self._directory / f"{name}.toml", self._directory / f"{name}.json"
        file.write_text(
            f'[store]\nurl = "{url or self.url}"\n'
            f'[high_availability]\nlease = "database"\nname = "{name}"\nlease_s = {seconds}\n'
            f'{more}\n[log]\nformat = "json"\n[[listen]]\nendpoint = "{LOOPBACK}"\n',
            encoding="utf-8",
        )
        process = self.start_process(TWIST, "--config", str(file), "--announce", str(announce))
        member = Member(process, announce)
        self.members.append(member)
        return member

    def check_logs(self) -> None:
        """Check each event of all logs against its schema."""
        for member in self.members:
            assert member.events() or member.process.popen.returncode

    def connection(self) -> psycopg.Connection[Any]:
        """Return a connection to the database."""
        return psycopg.connect(**parsed(self.url).parameters, autocommit=True)

    def expire(self) -> None:
        """Have the lease expire by the clock of the database, whatever that of a broker says."""
        with self.connection() as connection:
            connection.execute("UPDATE stompkit_lease SET deadline = 0")

    def waits_for_lock(self) -> bool:
        """Return True if a statement waits for a lock."""
        with self.connection() as connection:
            found = connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone()
        return found is not None

    def end_waiting(self) -> None:
        """End the sessions that wait for a lock: their brokers are dead."""
        with self.connection() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted"
            ).fetchall()

    def note_commits(self) -> None:
        """Record the stamp of each commit from now on."""
        with self.connection() as connection:
            connection.execute("CREATE TABLE written (number serial, stamp text, owner text)")
            connection.execute(
                "CREATE FUNCTION note() RETURNS trigger AS $$ BEGIN"
                " INSERT INTO written (stamp, owner) VALUES (NEW.stamp,"
                " current_setting('application_name')); RETURN NEW; END $$ LANGUAGE plpgsql"
            )
            connection.execute(
                "CREATE TRIGGER note AFTER UPDATE ON stompkit_meta"
                " FOR EACH ROW EXECUTE FUNCTION note()"
            )

    @contextmanager
    def held_after(self, commits: int) -> Iterator[None]:
        """Let the store do so many commits within the block, and have the next one wait."""
        with self.connection() as connection:
            connection.execute("SELECT pg_advisory_lock(1)")
            connection.execute("CREATE SEQUENCE commits")
            connection.execute(
                "CREATE FUNCTION hold() RETURNS trigger AS $$ BEGIN"
                f" IF nextval('commits') > {commits} THEN"
                " PERFORM pg_advisory_xact_lock(1); END IF;"
                " RETURN NEW; END $$ LANGUAGE plpgsql"
            )
            connection.execute(
                "CREATE TRIGGER hold AFTER UPDATE ON stompkit_meta"
                " FOR EACH ROW EXECUTE FUNCTION hold()"
            )
            yield

    def epochs(self) -> list[int]:
        """Return the epochs of the recorded commits; each is that of one broker."""
        with self.connection() as connection:
            rows = connection.execute("SELECT stamp, owner FROM written ORDER BY number").fetchall()
        found = [(epoch_of(stamp), owner) for stamp, owner in rows]
        assert len({epoch for epoch, _ in found}) == len(set(found)), "two brokers had an epoch"
        return [epoch for epoch, _ in found]


@pytest.fixture
def cluster(postgresql: SqlServer, tmp_path: Path) -> Iterator[Cluster]:
    """Brokers with an empty database."""
    with processes(tmp_path) as start:
        cluster = Cluster(start, tmp_path, postgresql.url(postgresql.new_database()))
        yield cluster
        cluster.check_logs()


def body(frame: bytes) -> bytes:
    """Return the body of a frame."""
    return frame.rpartition(b"\n")[2]


def failover(admin: str, *arguments: str) -> tuple[int, str]:
    """Run the command; return its status and its output."""
    return begin_failover(admin, *arguments)()


def begin_failover(admin: str, *arguments: str) -> Callable[[], tuple[int, str]]:
    """Start the command; return a function that waits for its status and its output."""
    return begin_command("failover", admin, *arguments)


def begin_command(name: str, admin: str, *arguments: str) -> Callable[[], tuple[int, str]]:
    """Start a command of operators; return a function that waits for its status and output."""
    command = [sys.executable, "-m", "stompkit", name, "--admin", admin, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end() -> tuple[int, str]:
        output, _ = process.communicate()
        return process.returncode, output

    return end
