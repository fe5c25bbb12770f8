"""Operations of operators while another broker takes over the store."""

from __future__ import annotations

import http.client

import pytest

from tests.server.admin.asking import Asker
from tests.server.process.lease_cluster import (
    ADMIN,
    LONG,
    WITHIN_S,
    Cluster,
    begin_failover,
    body,
    cluster,
)
from tests.server.processes import Client
from tests.servers import postgresql

__all__ = ["cluster", "postgresql"]


def test_operations_in_progress_end_when_the_lease_is_lost(cluster: Cluster) -> None:
    a = cluster.start("a", LONG, more=ADMIN)
    with Client(a.active()) as client:
        for queue in ("/queue/a", "/queue/b"):
            assert client.send(queue, "m").startswith(b"RECEIPT\n")
    b = cluster.start("b", LONG)
    b.running()
    ask = Asker(a.admin)
    with cluster.connection() as database, database.transaction():
        # The store can commit nothing.
        database.execute("LOCK TABLE stompkit_messages IN ACCESS EXCLUSIVE MODE")
        answers = [
            ask.begin("purge", name="/queue/a"),
            ask.begin("move", from_="/queue/b", to="/queue/d"),
            ask.begin("publish", destination="/queue/e", body="m"),
        ]
        a.process.wait_until(cluster.waits_for_lock, WITHIN_S)
        # The broker has read everything that came before these.
        for _ in range(2):
            ask.get("overview")
        cluster.expire()
        # The lease or the store shows that another broker has taken over.
        lost = "this broker is not active: "
        unknown = "; the operation has not ended, and can have taken effect in part"
        for end in answers:
            answer = end()
            assert (answer.status, answer.code) == (503, "not-active")
            text = answer.json["error"]["message"]
            assert text.startswith(lost)
            assert text.endswith(unknown)
    for refused in (
        ask.post("purge", name="/queue/a"),
        ask.request("GET", "/api/v1/messages?name=/queue/a"),
    ):
        assert (refused.status, refused.code) == (503, "not-active")
        assert refused.json["error"]["message"].startswith(lost)
    with Client(b.active()) as client:
        assert client.send("/queue/f").startswith(b"RECEIPT\n")


def test_a_deletion_is_answered_when_it_is_stored(cluster: Cluster) -> None:
    """Whoever reads "deleted" can lose the machine: the messages are not back."""
    a = cluster.start("a", LONG, more=ADMIN)
    with Client(a.active()) as client:
        for queue in ("/queue/a", "/queue/b"):
            assert client.send(queue, "m").startswith(b"RECEIPT\n")
    b = cluster.start("b", LONG, more=ADMIN)
    b.running()
    ask = Asker(a.admin)
    assert ask.post("delete", name="/queue/a").json == {"deleted": True}
    with cluster.connection() as database, database.transaction():
        # The store can commit nothing.
        database.execute("LOCK TABLE stompkit_messages IN ACCESS EXCLUSIVE MODE")
        end = ask.begin("delete", name="/queue/b")
        a.process.wait_until(cluster.waits_for_lock, WITHIN_S)
        a.process.popen.kill()
        with pytest.raises((OSError, http.client.HTTPException)):
            end()
        cluster.end_waiting()
    cluster.expire()
    b.active()
    found = Asker(b.admin).get("destinations", contains="/queue/")["destinations"]
    assert [(each["name"], each["ready"]) for each in found] == [("/queue/b", 1)]


@pytest.mark.parametrize("commits", [0, 1, 5])
def test_a_move_that_a_failover_interrupts_loses_nothing(cluster: Cluster, commits: int) -> None:
    """Each message is in one of the two queues, once, and each queue has its order."""
    a = cluster.start("a", LONG, more=ADMIN)
    sent = [f"m{number:04}" for number in range(2_000)]
    with Client(a.active()) as client:
        client.send_all("/queue/a", sent)
    b = cluster.start("b", LONG, more=ADMIN)
    b.running()
    with cluster.held_after(commits):
        end_move = Asker(a.admin).begin("move", from_="/queue/a", to="/queue/b")
        a.process.wait_until(cluster.waits_for_lock, WITHIN_S)
        end_failover = begin_failover(b.admin, "--to", "b")
        a.logged("lease-handed-over")
    answer = end_move()
    assert end_failover() == (0, "b has the lease, epoch 2\n")
    ask, found = Asker(b.admin), {}
    with Client(b.active()) as client:
        for queue in ("/queue/a", "/queue/b"):
            count = (ask.destination(queue) or {"ready": 0})["ready"]
            found[queue] = [body(frame).decode() for frame in client.take(queue, count)]
            assert found[queue] == sorted(found[queue])
    assert sorted(found["/queue/a"] + found["/queue/b"]) == sent
    if answer.status == 200:
        assert answer.json["moved"] == len(found["/queue/b"]) == len(sent)
    else:
        assert (answer.status, answer.code) == (503, "not-active")
        assert "can have taken effect in part" in answer.json["error"]["message"]
        assert found["/queue/a"]
