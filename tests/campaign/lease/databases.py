"""A PostgreSQL server and its synchronous replica, each on a host."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from stompkit.server.stores.postgresql.url import parsed
from stompkit.testing.launching.polling import wait_until
from tests.campaign.disk import Disk, Number, built
from tests.campaign.lease.network import BACK, Network
from tests.server.synchronous_replicas import require_replica
from tests.servers import PostgreSql, PostgreSqlReplica

__all__ = ["DATABASES", "Databases"]

#: The hosts: of the primary server, and of the replica.
DATABASES: Final = ("db-1", "db-2")
_NETWORKS: Final = "10.77.0.0/16"
_WITHIN_S: Final = 60.0
#: The log of PostgreSQL, relative to the directory in which it runs.
_LOG: Final = Path("pg_wal")


class _Primary(PostgreSql):
    """A server on a host; its commits are slow when its disk is."""

    def __init__(self, network: Network, host: str, *, has_disk: bool) -> None:
        """Create the files."""
        self._place = network, host
        self._has_disk = has_disk
        super().__init__()
        access = self.directory / "data" / "pg_hba.conf"
        with access.open("a", encoding="utf-8") as file:
            file.write(f"host all all {_NETWORKS} trust\n")
            file.write(f"host replication all {_NETWORKS} trust\n")

    def _command(self) -> Sequence[str]:
        return [*super()._command(), *_options(*self._place, has_disk=self._has_disk)]

    def _complete(self, command: Sequence[str]) -> list[str]:
        network, host = self._place
        return [*network.inside(host), *super()._complete(command)]


class _Replica(PostgreSqlReplica):
    """A replica on a host, connected to its primary server by the network."""

    def __init__(self, network: Network, host: str, source: str, primary: PostgreSql) -> None:
        """Copy the primary server, which runs on the host ``source``."""
        self._place = network, host
        self._source = network.address(source, BACK)
        super().__init__(primary)

    def _install_command(self) -> Sequence[str]:
        return [*super()._install_command(), f"--host={self._source}"]

    def _command(self) -> Sequence[str]:
        return [*super()._command(), *_options(*self._place, has_disk=False)]

    def _complete(self, command: Sequence[str]) -> list[str]:
        network, host = self._place
        return [*network.inside(host), *super()._complete(command)]


def _options(network: Network, host: str, *, has_disk: bool) -> list[str]:
    options = ["-c", f"listen_addresses={network.address(host, BACK)}"]
    # A server that does not sync never waits for its disk.
    return [*options, "-c", "fsync=on"] if has_disk else options


class Databases:
    """Both servers; the replica has each commit before it is confirmed."""

    def __init__(self, network: Network, directory: Path, library: Path, stack: ExitStack) -> None:
        """Start both; the stack ends them.

        ``library`` is the directory for that of the disk.
        """
        first, second = DATABASES
        # The servers run as another user.
        for path in (directory, directory.parent):
            path.chmod(0o755)
        for host in DATABASES:
            network.add(host, [BACK])
        beside = directory / "disk"
        beside.mkdir()
        self.disk = Disk(built(library), _LOG, beside, has_shadow=False)
        stack.callback(self.disk.close)
        with self._preloaded(beside):
            self._primary = stack.enter_context(_Primary(network, first, has_disk=True))
        self._replica = stack.enter_context(_Replica(network, second, first, self._primary))
        self._current: PostgreSql = self._primary
        with self.connection() as operator:
            operator.execute("SET synchronous_commit = local")
            require_replica(operator, "*")
            shown = "SELECT sync_state FROM pg_stat_replication"
            has_replica = wait_until(
                lambda: operator.execute(shown).fetchall() == [("sync",)], _WITHIN_S
            )
            assert has_replica, "the replica does not follow"
        hosts = ",".join(f"{network.address(host, BACK)}:5432" for host in DATABASES)
        #: The URL for brokers.
        self.url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"

    @contextmanager
    def _preloaded(self, beside: Path) -> Iterator[None]:
        """Have a server that is started in the block use the disk, also as another user."""
        for path in beside.iterdir():
            path.chmod(0o666)
        beside.chmod(0o755)
        with self.disk.preloaded():
            assert os.environ["LD_PRELOAD"]
            yield

    def connection(self) -> psycopg.Connection[Any]:
        """Return a connection to the server that accepts writes; no network is between."""
        url = self._current.url("postgres")
        return psycopg.connect(**parsed(url).parameters, autocommit=True)

    @property
    def has_replica(self) -> bool:
        """True if there was no failover yet."""
        return self._current is self._primary

    def fail_over(self) -> None:
        """Kill the primary server, and promote the replica; blocks."""
        self._primary.kill()
        self._replica.promote()
        self._current = self._replica

    def slow_down(self, delay_us: int) -> None:
        """Have each sync of the primary server's log take longer; 0 ends that."""
        self.disk[Number.SYNC_DELAY] = delay_us

    def note_commits(self) -> None:
        """Record the stamp of each commit of brokers from now on, in the same transaction."""
        with self.connection() as connection:
            connection.execute("CREATE TABLE written (number serial, stamp text)")
            connection.execute(
                "CREATE FUNCTION note() RETURNS trigger AS $$ BEGIN INSERT INTO written (stamp)"
                " VALUES (NEW.stamp); RETURN NEW; END $$ LANGUAGE plpgsql"
            )
            connection.execute(
                "CREATE TRIGGER note AFTER UPDATE ON stompkit_meta"
                " FOR EACH ROW EXECUTE FUNCTION note()"
            )

    def stamps(self) -> list[str]:
        """Return the recorded stamps in the order of the commits."""
        with self.connection() as connection:
            rows = connection.execute("SELECT stamp FROM written ORDER BY number").fetchall()
        return [stamp for (stamp,) in rows]
