"""Brokers with a lease, when PostgreSQL itself fails over to a replica."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stompkit.server.stores.postgresql.url import parsed
from stompkit.testing.launching.polling import wait_until
from tests.server.process.lease_cluster import LONG, SHORT, WITHIN_S, Cluster, body
from tests.server.processes import Client, processes
from tests.server.synchronous_replicas import require_replica
from tests.servers import PostgreSql, PostgreSqlReplica, SqlServer, postgresql

__all__ = ["postgresql"]

pytestmark = pytest.mark.matrix


@pytest.fixture
def primary(postgresql: SqlServer) -> Iterator[PostgreSql]:
    """A server that is killed."""
    with PostgreSql() as server:
        yield server


@pytest.fixture
def replica(primary: PostgreSql) -> Iterator[PostgreSqlReplica]:
    """Its replica, which is promoted then."""
    with PostgreSqlReplica(primary) as server:
        yield server


@pytest.fixture
def cluster(primary: PostgreSql, replica: PostgreSqlReplica, tmp_path: Path) -> Iterator[Cluster]:
    """Brokers whose URL names both servers."""
    hosts = "&".join(f"host={each.directory}:5432" for each in (primary, replica))
    with processes(tmp_path) as start:
        yield Cluster(start, tmp_path, f"postgresql://postgres@/postgres?{hosts}")


def operator_of(server: PostgreSql) -> psycopg.Connection[Any]:
    return psycopg.connect(**parsed(server.url("postgres")).parameters, autocommit=True)


def require_any_replica(primary: PostgreSql) -> None:
    """Have each commit wait for the replica."""
    with operator_of(primary) as operator:
        operator.execute("SET synchronous_commit = local")
        require_replica(operator, "*")
        shown = "SELECT sync_state FROM pg_stat_replication"
        assert wait_until(lambda: operator.execute(shown).fetchall() == [("sync",)], WITHIN_S)


class Producer:
    """Sends messages with receipts, one after the other, until the session ends."""

    def __init__(self, client: Client) -> None:
        """Start in a thread."""
        self.confirmed: list[bytes] = []
        self._client = client
        self._is_over = False
        self.thread = threading.Thread(target=self._send)
        self.thread.start()

    def _send(self) -> None:
        number = 0
        while not self._is_over:
            text = f"m{number}"
            try:
                answer = self._client.send("/queue/a", text)
            except ConnectionError:
                # A killed broker leaves bytes unread, or a frame is sent after its end.
                return
            if not answer.startswith(b"RECEIPT\n"):
                return
            self.confirmed.append(text.encode())
            number += 1

    def has_more(self, count: int) -> None:
        """Wait until this many further messages are confirmed."""
        wanted = len(self.confirmed) + count
        assert wait_until(lambda: len(self.confirmed) >= wanted, WITHIN_S)

    def end(self) -> None:
        """Stop, and wait for the last receipt."""
        self._is_over = True
        self.thread.join(WITHIN_S)
        assert not self.thread.is_alive()


def received(client: Client, count: int) -> list[bytes]:
    """Return the bodies of this many messages of the queue."""
    frames = [client.subscribe("/queue/a")]
    return [body(frame) for frame in frames + [client.receive() for _ in range(count - 1)]]


def test_sessions_survive_a_failover_to_a_synchronous_replica(
    cluster: Cluster, primary: PostgreSql, replica: PostgreSqlReplica
) -> None:
    require_any_replica(primary)
    a = cluster.start("a", LONG)
    with Client(a.active()) as client:
        producer = Producer(client)
        producer.has_more(10)
        primary.kill()
        replica.promote()
        producer.has_more(10)
        producer.end()
    with Client(a.active()) as client:
        # Nothing is lost, and nothing is stored twice.
        assert received(client, len(producer.confirmed)) == producer.confirmed
    assert a.events("lease-lost") == []


def test_another_broker_has_all_that_was_confirmed_before_database_and_broker_are_killed(
    cluster: Cluster, primary: PostgreSql, replica: PostgreSqlReplica
) -> None:
    require_any_replica(primary)
    a = cluster.start("a", SHORT)
    where = a.active()
    b = cluster.start("b", SHORT)
    b.running()
    with Client(where) as client:
        producer = Producer(client)
        producer.has_more(10)
        a.process.popen.kill()
        primary.kill()
        producer.thread.join(WITHIN_S)
        replica.promote()
    with Client(b.active()) as client:
        assert received(client, len(producer.confirmed)) == producer.confirmed


def test_a_broker_notices_that_the_promoted_server_lacks_its_last_commits(
    cluster: Cluster, primary: PostgreSql, replica: PostgreSqlReplica
) -> None:
    a = cluster.start("a", SHORT)
    with Client(a.active()) as client:
        assert client.send("/queue/a", "m0").startswith(b"RECEIPT\n")
        with operator_of(primary) as operator:
            has_all = "SELECT replay_lsn >= pg_current_wal_lsn() FROM pg_stat_replication"
            assert wait_until(lambda: operator.execute(has_all).fetchone() == (True,), WITHIN_S)
        replica.stop()
        assert client.send("/queue/a", "lost").startswith(b"RECEIPT\n")
        primary.kill()
        replica.start()
        replica.promote()
        # It must not go on with what it remembers.
        assert client.send("/queue/a", "m1").startswith(b"ERROR\n")
    a.logged("lease-lost")
    a.process.wait_until(lambda: len(a.events("lease-acquired")) > 1, WITHIN_S)
    with Client(a.active()) as client:
        assert received(client, 1) == [b"m0"]
        assert client.send("/queue/b", "m2").startswith(b"RECEIPT\n")
