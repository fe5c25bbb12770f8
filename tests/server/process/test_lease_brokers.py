"""Brokers with one store in PostgreSQL: one is active, and another takes over."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.server.admin.asking import Asker
from tests.server.process.lease_cluster import (
    ADMIN,
    LONG,
    SHORT,
    WITHIN_S,
    Cluster,
    begin_command,
    body,
    cluster,
    failover,
)
from tests.server.processes import Client
from tests.server.stores.tcp_proxy import Proxy
from tests.servers import SqlServer, postgresql

__all__ = ["cluster", "postgresql"]

SECRET = "hush"


def test_another_broker_takes_over_from_one_that_is_killed(cluster: Cluster) -> None:
    a = cluster.start("a", LONG)
    with Client(a.active()) as client:
        cluster.note_commits()
        b = cluster.start("b", LONG)
        b.running()
        for number in range(3):
            assert client.send("/queue/a", f"m{number}").startswith(b"RECEIPT\n")
        assert not b.announce.exists()
        a.process.popen.kill()
        cluster.expire()
    with Client(b.active()) as client:
        frames = [client.subscribe("/queue/a"), client.receive(), client.receive()]
        assert [body(frame) for frame in frames] == [b"m0", b"m1", b"m2"]
        assert client.send("/queue/b").startswith(b"RECEIPT\n")
    epochs = cluster.epochs()
    assert epochs == sorted(epochs)
    assert set(epochs) == {1, 2}


@pytest.mark.matrix
def test_a_lease_expires_when_its_broker_is_killed(cluster: Cluster) -> None:
    a = cluster.start("a", SHORT)
    a.active()
    b = cluster.start("b", SHORT)
    b.running()
    a.process.popen.kill()
    b.active()


@pytest.mark.matrix
def test_a_paused_broker_confirms_nothing_even_if_its_clock_says_that_it_has_the_lease(
    cluster: Cluster,
) -> None:
    a = cluster.start("a", LONG)
    where = a.active()
    cluster.note_commits()
    b = cluster.start("b", LONG)
    b.running()
    with Client(where) as client, Client(where) as consumer:
        assert client.send("/queue/a", "m0").startswith(b"RECEIPT\n")
        assert body(consumer.subscribe("/queue/a")) == b"m0"
        a.signal(signal.SIGSTOP)
        cluster.expire()
        with Client(b.active()) as other:
            assert body(other.subscribe("/queue/a")) == b"m0"
            a.signal(signal.SIGCONT)
            assert client.send("/queue/a", "m1").startswith(b"ERROR\n")
            assert b"stompkit-code:not-active" in consumer.receive()
            assert other.send("/queue/b", "m2").startswith(b"RECEIPT\n")
    a.passive()
    with Client(b.active()) as other:
        assert body(other.subscribe("/queue/b")) == b"m2"
    epochs = cluster.epochs()
    assert epochs == sorted(epochs)
    assert set(epochs) == {1, 2}


@pytest.mark.matrix
def test_a_broker_that_is_stopped_releases_the_lease(cluster: Cluster) -> None:
    a = cluster.start("a", LONG)
    a.active()
    b = cluster.start("b", LONG)
    b.running()
    a.end()
    b.active()
    assert "Traceback" not in a.process.log


def test_an_operator_makes_another_broker_active(cluster: Cluster) -> None:
    a = cluster.start("a", LONG, more=ADMIN)
    with Client(a.active()) as client:
        cluster.note_commits()
        b = cluster.start("b", LONG, more=ADMIN)
        b.running()
        assert client.send("/queue/a", "m0").startswith(b"RECEIPT\n")
        assert failover(b.admin, "--to", "b") == (0, "b has the lease, epoch 2\n")
        assert b.logged("failover-asked")["successor"] == "b"
        assert b"stompkit-code:not-active" in client.receive()
    with Client(b.active()) as client:
        assert body(client.subscribe("/queue/a")) == b"m0"
    # Who is passive keeps nothing, and load balancers see who is active.
    old, new = Asker(a.admin), Asker(b.admin)
    refused = old.post("publish", destination="/queue/a", body="lost")
    assert (refused.status, refused.code) == (503, "not-active")
    assert [each.request("GET", "/ready").status for each in (old, new)] == [503, 200]
    passive = "it is passive: the broker b is active"
    a.process.wait_until(lambda: old.request("GET", "/ready").json["reason"] == passive, WITHIN_S)
    assert "stompkit_active 1.0\n" in new.request("GET", "/metrics").body.decode()
    assert "stompkit_lease_epoch 2.0\n" in new.request("GET", "/metrics").body.decode()

    def roles() -> dict[str, str]:
        return {each["name"]: each["role"] for each in new.get("lease")["brokers"]}

    b.process.wait_until(lambda: roles() == {"a": "passive", "b": "active"}, WITHIN_S)
    assert set(cluster.epochs()) == {1, 2}
    lease = old.get("overview")["lease"]
    assert (lease["name"], lease["is_active"], lease["epoch"]) == ("a", False, 2)
    assert lease["owner"] == "b"
    assert 0 <= lease["renewed_s"] < lease["held_s"] + 1
    for member, role in ((a, "passive, as a"), (b, "active, as b")):
        _, text = begin_command("status", member.admin)()
        assert f"\nrole         {role}\n" in text
        assert "b has the lease, epoch 2, for " in text


@pytest.mark.matrix
def test_a_failover_that_can_not_be_is_refused(cluster: Cluster) -> None:
    a = cluster.start("a", SHORT, more=ADMIN)
    a.active()
    for arguments, reason in [
        ((), "no other broker of the store is running: start one first (no-such-broker)"),
        (("--to", "a"), "the broker a is active already (already-active)"),
    ]:
        assert failover(a.admin, *arguments) == (1, f"stompkit failover: {reason}\n")
    b = cluster.start("b", SHORT)
    b.running()
    a.process.wait_until(lambda: len(Asker(a.admin).get("lease")["brokers"]) == 2, WITHIN_S)
    reason = "no passive broker is called 'c'; there are: b (no-such-broker)"
    assert failover(a.admin, "--to", "c") == (1, f"stompkit failover: {reason}\n")
    status, shown = failover(a.admin, "--show")
    first, *others = shown.splitlines()
    assert re.fullmatch(r"a has the lease, epoch 1, for \d+ s, renewed \d+ s ago", first)
    assert status == 0
    assert [line.split()[:2] for line in others] == [["a", "active"], ["b", "passive"]]
    status, said = failover(a.admin)
    assert (status, said) == (0, "b has the lease, epoch 2\n")


@pytest.mark.matrix
def test_a_broker_that_was_paused_ends_its_sessions_and_stands_by(cluster: Cluster) -> None:
    a = cluster.start("a", SHORT)
    where = a.active()
    cluster.note_commits()
    b = cluster.start("b", SHORT)
    b.running()
    with Client(where) as client, Client(where) as consumer:
        assert client.send("/queue/a", "m0").startswith(b"RECEIPT\n")
        assert body(consumer.subscribe("/queue/a")) == b"m0"
        a.signal(signal.SIGSTOP)
        with Client(b.active()) as other:
            assert body(other.subscribe("/queue/a")) == b"m0"
            a.signal(signal.SIGCONT)
            # It could otherwise confirm what it cannot store, or deliver what others have.
            assert b"stompkit-code:not-active" in client.send("/queue/a", "m1")
            assert b"stompkit-code:not-active" in consumer.receive()
    a.passive()
    assert a.logged("lease-lost")["epoch"] == 1
    # The same process takes over again, with what the other one has stored.
    with Client(b.active()) as client:
        assert client.send("/queue/b", "m2").startswith(b"RECEIPT\n")
    b.end()
    with Client(a.active()) as client:
        assert body(client.subscribe("/queue/b")) == b"m2"
    epochs = cluster.epochs()
    assert epochs == sorted(epochs)
    assert len(set(epochs)) >= 3


@pytest.mark.matrix
def test_a_broker_that_is_cut_off_from_the_database_stands_by_until_it_is_back(
    cluster: Cluster, postgresql: SqlServer
) -> None:
    proxy = Proxy(postgresql.socket)
    try:
        database = cluster.url.partition("?")[0].rpartition("/")[2]
        host, port = proxy.address
        url = f"postgresql://postgres:{SECRET}@{host}:{port}/{database}"
        a = cluster.start("a", SHORT, url=url)
        with Client(a.active()) as client:
            proxy.close()
            assert b"stompkit-code:not-active" in client.receive()
        a.passive()
        assert SECRET not in a.logged("lease-failed")["error"]
        proxy.open()
        with Client(a.active()) as client:
            assert client.send("/queue/a").startswith(b"RECEIPT\n")
        a.end()
        assert SECRET not in a.process.log
        # The driver warns of the consequences of the error.
        assert "error ignored" not in a.process.log
    finally:
        proxy.close()


@pytest.mark.matrix
def test_a_passive_broker_can_refuse_clients(cluster: Cluster) -> None:
    a = cluster.start("a", LONG)
    a.active()
    b = cluster.start("b", LONG, more='passive = "refuse"')
    port = int(b.logged("listening")["address"].rpartition(":")[2])
    with Client({"host": "127.0.0.1", "port": port}) as client:
        assert b"stompkit-code:not-active" in client.first
    assert not b.announce.exists()
    a.end()
    with Client(b.active()) as client:
        assert client.send("/queue/a").startswith(b"RECEIPT\n")


def test_a_broker_waits_for_a_database_that_does_not_answer_yet(
    cluster: Cluster, postgresql: SqlServer
) -> None:
    proxy = Proxy(postgresql.socket)
    try:
        proxy.close()
        database = cluster.url.partition("?")[0].rpartition("/")[2]
        host, port = proxy.address
        url = f"postgresql://postgres:{SECRET}@{host}:{port}/{database}"
        a = cluster.start("a", LONG, url=url, more=ADMIN)
        assert "refused" in a.logged("lease-waits")["error"]
        a.running()
        reason = Asker(a.admin).request("GET", "/ready").json["reason"]
        assert reason == "it is passive, and the database of the lease does not answer"
        status, lines = failover(a.admin, "--show")
        assert (status, lines.splitlines()[0]) == (
            0,
            "the owner of the lease is not known: the database does not answer",
        )
        assert not a.announce.exists()
        proxy.open()
        with Client(a.active()) as client:
            assert client.send("/queue/a").startswith(b"RECEIPT\n")
        a.end()
        assert SECRET not in a.process.log
        assert "lease-failed" not in a.process.log
    finally:
        proxy.close()


def test_a_broker_waits_for_a_standby_to_be_promoted(cluster: Cluster) -> None:
    """What libpq sees of a standby: a database whose sessions are read-only."""
    database = cluster.url.partition("?")[0].rpartition("/")[2]
    with cluster.connection() as connection:
        connection.execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on')
        a = cluster.start("a", LONG)
        a.logged("lease-waits")
        assert not a.announce.exists()
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f'ALTER DATABASE "{database}" RESET default_transaction_read_only')
    a.active()


def test_a_database_that_refuses_the_broker_ends_its_start(
    cluster: Cluster, postgresql: SqlServer
) -> None:
    url = postgresql.url("nosuch").replace("://", f"://u:{SECRET}@", 1)
    member = cluster.start("a", LONG, url=url)
    assert member.process.popen.wait(WITHIN_S) == 1
    assert "cannot read the lease" in member.process.log
    assert SECRET not in member.process.log


@pytest.mark.matrix
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_passive_broker_stops_at_once(cluster: Cluster, stop: signal.Signals) -> None:
    a = cluster.start("a", LONG)
    a.active()
    b = cluster.start("b", LONG)
    b.running()
    b.signal(stop)
    b.process.popen.wait(WITHIN_S)
    assert "Traceback" not in b.process.log
    with Client(a.active()) as client:
        assert client.send("/queue/a").startswith(b"RECEIPT\n")


@pytest.mark.matrix
def test_a_broker_that_cannot_open_the_store_releases_the_lease(cluster: Cluster) -> None:
    a = cluster.start("a", LONG)
    a.active()
    b = cluster.start("b", LONG)
    b.running()
    with cluster.connection() as connection:
        connection.execute("UPDATE stompkit_meta SET version = 7")
        a.end()
        assert "made by a newer stompkit" in b.logged("takeover-failed")["error"]
        connection.execute("UPDATE stompkit_meta SET version = 1")
    with Client(b.active()) as client:
        assert client.send("/queue/a").startswith(b"RECEIPT\n")


@pytest.mark.matrix
def test_two_brokers_with_one_name_are_reported(cluster: Cluster, tmp_path: Path) -> None:
    a = cluster.start("a", SHORT)
    a.active()
    (tmp_path / "other").mkdir()
    other = Cluster(cluster.start_process, tmp_path / "other", cluster.url).start("a", SHORT)
    assert a.logged("name-taken")["name"] == "a"
    other.end()
