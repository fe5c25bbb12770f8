"""Replicas in child processes, on a broker: all write, and all converge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from stompkit.testing import RunningBroker
from stompkit.testing.plugin import BrokerFactory
from tests.replication.broker.place import until
from tests.replication.broker.replica_nodes import NodeProcess, NodeProcesses, all_equal
from tests.servers import SqlServer

pytestmark = pytest.mark.stomp_requires("topic")


@pytest.fixture
def nodes(stomp_broker: RunningBroker, tmp_path: Path) -> Iterator[NodeProcesses]:
    """A factory of nodes."""
    nodes = NodeProcesses(stomp_broker, tmp_path)
    yield nodes
    nodes.close()


def committed(*nodes: NodeProcess) -> int:
    """Return the number of transactions that their workers have committed."""
    return sum(len(node.committed) for node in nodes)


def until_more(count: int, *nodes: NodeProcess) -> None:
    """Wait until their workers have committed this many more."""
    enough = committed(*nodes) + count
    until(lambda: committed(*nodes) >= enough)


def rest(nodes: Sequence[NodeProcess]) -> None:
    """Stop all workers."""
    for node in nodes:
        node.ask("rest")


def connect(*nodes: NodeProcess) -> None:
    """Wait until the nodes know of each other."""
    for node in nodes:
        until(lambda: len(node.status["peers"]) >= len(nodes) - 1)  # noqa: B023 - called at once


# Processes that start and end.


@pytest.mark.matrix
def test_processes_that_write_at_the_same_time_come_to_the_same(nodes: NodeProcesses) -> None:
    both = [nodes("A"), nodes("B")]
    for seed, node in enumerate(both):
        node.work(seed)
    until(lambda: all(committed(node) >= 30 for node in both))
    rest(both)
    all_equal(both)


@pytest.mark.matrix
def test_processes_that_are_killed_at_any_time_lose_and_double_nothing(
    nodes: NodeProcesses, postgresql: SqlServer
) -> None:
    chance = Random(7)
    database = postgresql.url(postgresql.new_database())
    three = [nodes("A"), nodes("B"), nodes("C", database=database)]
    for seed, node in enumerate(three):
        node.work(seed)
    victims = [*three, chance.choice(three)]
    chance.shuffle(victims)
    for seed, victim in enumerate(victims, 3):
        until_more(chance.randrange(1, 30), *three)
        victim.kill()
        until_more(chance.randrange(10), *three)
        victim.start()
        victim.work(seed)
    until_more(10, *victims)
    rest(three)
    all_equal(three)


def test_nodes_that_were_offline_get_all_that_others_have_made(nodes: NodeProcesses) -> None:
    chance = Random(3)
    three = [nodes("A"), nodes("B"), nodes("C")]
    for seed, node in enumerate(three):
        node.work(seed)
    for _ in range(4):
        away = chance.sample(three, chance.randrange(1, 4))
        for node in away:
            node.ask("offline")
        until_more(15, *three)
        for node in away:
            node.ask("online")
    rest(three)
    all_equal(three)


@pytest.mark.matrix
def test_a_node_that_joins_late_takes_a_snapshot_of_what_nobody_keeps(
    nodes: NodeProcesses,
) -> None:
    first = [nodes(branch, save_history=False) for branch in "AB"]
    for seed, node in enumerate(first):
        node.work(seed)
    until(lambda: all(committed(node) >= 20 for node in first))
    rest(first)
    all_equal(first)
    assert [node.ask("compact") > 0 for node in first] == [True, True]
    late = nodes("C", save_history=False, window_bytes=500)
    late.write({"of the late one": {"title": "mine"}})
    # Other nodes continue while it copies the rows.
    for seed, node in enumerate(first, 2):
        node.work(seed)
    until_more(10, *first)
    rest(first)
    until(lambda: not late.status["bootstrap"] and late.status["counts"].get("pages", 0) > 1)
    all_equal([*first, late])
    assert late.items["of the late one"] == ["mine", None]


# Conflicts.


@pytest.mark.matrix
def test_what_was_edited_by_two_who_were_offline_is_merged(nodes: NodeProcesses) -> None:
    a, b = both = [nodes("A"), nodes("B")]
    same = {"title": "old", "body": "old"}
    a.write({name: same for name in ("column", "columns", "identical", "deleted", "gone")})
    all_equal(both)
    for node in both:
        node.ask("offline")
    a.write({"column": {"title": "of A"}, "columns": {"title": "of A"}})
    b.write({"column": {"title": "of B"}, "columns": {"body": "of B"}})
    for node in both:
        node.write({"identical": {"title": "new"}, "gone": None})
    a.write({"deleted": {"title": "of A"}})
    b.write({"deleted": None})
    for node in both:
        node.ask("online")
    all_equal(both)
    assert a.items.keys() == {"column", "columns", "identical", "deleted"}
    # The last writer by the clocks has won.
    assert a.items["column"] == ["of B", "old"]
    assert a.items["columns"] == ["of A", "of B"]
    assert a.items["identical"] == ["new", "old"]
    assert a.items["deleted"] == ["of A", "old"]
    for node in both:
        assert node.ask("conflicts") == {"column": ["title"], "deleted": [""]}
    for key in ("column", "deleted"):
        b.ask("resolve", key=key, values={"title": "decided"})
    all_equal(both)
    for node in both:
        assert node.ask("conflicts") == {}
        assert node.items["column"] == node.items["deleted"] == ["decided", "old"]


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str | None:
    """A database of each kind; ``None`` is a file of SQLite."""
    if request.param == "sqlite":
        return None
    server: SqlServer = request.getfixturevalue(request.param)
    return server.url(server.new_database())


def test_what_arrives_while_a_local_transaction_is_open_is_merged_with_it(
    nodes: NodeProcesses, database: str | None
) -> None:
    a, b = both = [nodes("A"), nodes("B", database=database)]
    a.write({"x": {"title": "old", "body": "old"}})
    all_equal(both)
    b.ask("begin", key="x", values={"title": "of B"})
    a.write({"x": {"title": "of A", "body": "of A"}})
    until(lambda: any("in use" in each or "locked" in each for each in b.status["warnings"]))
    b.ask("commit")
    all_equal(both)
    assert a.items == {"x": ["of B", "of A"]}
    assert a.ask("conflicts") == {"x": ["title"]}


# Changesets that cannot be applied.


def poison(*nodes: NodeProcess) -> str:
    """Return the number of a changeset that the last of the nodes rejects."""
    a, b, careful = nodes
    connect(*nodes)
    a.write({"x": {"title": "fine"}})
    # Its change must not be based on the other's.
    b.ask("offline")
    a.write({"y": {"title": "poison"}})
    a.write({"z": {"title": "behind it"}})
    b.write({"w": {"title": "fine"}})
    b.ask("online")
    until(lambda: careful.status["quarantined"])
    until(lambda: careful.items.keys() == {"x", "w"})
    ((dot, reason),) = careful.status["quarantined"]
    assert "nobody wants that" in reason
    return str(dot)


def poisoned(nodes: NodeProcesses) -> tuple[NodeProcess, NodeProcess, NodeProcess]:
    """Return three nodes that often compare their states; the last one rejects a changeset."""
    often: dict[str, Any] = {"digest_interval_s": 1.0}
    return nodes("A", **often), nodes("B", **often), nodes("C", refused=["poison"], **often)


@pytest.mark.matrix
def test_a_changeset_that_is_refused_stops_nothing_else_and_can_be_skipped(
    nodes: NodeProcesses,
) -> None:
    a, b, careful = poisoned(nodes)
    dot = poison(a, b, careful)
    careful.kill()
    careful.start()
    assert [each for each, _ in careful.status["quarantined"]] == [dot]
    careful.ask("skip", dot=dot)
    until(lambda: careful.items.keys() == {"x", "z", "w"})
    assert careful.status["quarantined"] == []
    until(lambda: a.vector == b.vector == careful.vector)
    assert a.items.keys() == b.items.keys() == {"x", "y", "z", "w"}
    # Others detect that, too, when they compare their tables.
    until(lambda: list(a.status["diverged"].values()) == [["items"]])


def test_a_changeset_that_is_refused_is_applied_when_it_is_tried_again(
    nodes: NodeProcesses,
) -> None:
    three = poisoned(nodes)
    poison(*three)
    three[-1].ask("retry", refused=[])
    all_equal(three)
    assert len(three[-1].items) == 4


# Brokers.


@pytest.mark.matrix
def test_relays_between_two_brokers_may_make_a_loop(
    stomp_broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    with stomp_broker_factory.pair() as pair:
        made = NodeProcesses(pair.active, tmp_path)
        left, right = pair.brokers

        def relay(branch: str) -> NodeProcess:
            there: dict[str, Any] = made.place(right)
            return made(branch, left, relays=[{**there, "replication_channel": f"{made.channel}2"}])

        four = [relay("R1"), relay("R2"), made("A", left)]
        four.append(made("B", right, replication_channel=f"{made.channel}2"))
        connect(*four)
        for seed, node in enumerate(four):
            node.work(seed, most=20)
        until(lambda: all(committed(node) >= 20 for node in four))
        four[0].kill()
        four[-1].write({"after": {"title": "the death of a relay"}})
        four[0].start()
        rest(four)
        all_equal(four)
        made.close()


@pytest.mark.matrix
def test_a_broker_that_is_killed_may_be_replaced_by_an_empty_one(
    stomp_broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    with stomp_broker_factory.pair() as pair:
        made = NodeProcesses(pair.active, tmp_path)
        three = [made(branch, *pair.brokers) for branch in "ABC"]
        connect(*three)
        for seed, node in enumerate(three[:2]):
            node.work(seed)
        until_more(20, *three)
        # Its subscription's messages on the broker are removed with it.
        three[2].ask("offline")
        until_more(20, *three)
        pair.fail_over()
        until_more(20, *three)
        three[2].ask("online")
        rest(three)
        all_equal(three)
        made.close()
