"""Requirements that Vesper's replication did not meet: one test for each.

Nodes are simulated: only the events of the test happen.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from stompkit.replica.applier import Hooks, RefuseChangesetError
from stompkit.replica.store import OriginRecord
from stompkit.replication.model.events import Changeset
from stompkit.replication.model.frames import Packet
from tests.replica.simulation.checks import check
from tests.replica.simulation.databases import Databases
from tests.replica.simulation.deeds import (
    delete,
    documents,
    engine_of,
    losers,
    put,
    status_of,
)
from tests.replica.simulation.network import Broker, Traits
from tests.replica.simulation.node import Node
from tests.replica.simulation.stage import Stage
from tests.replica.simulation.world import World

#: The requirements, and the test of each: ``path::name`` from this folder on.
COVERED: Final[dict[str, str]] = {
    "random schedules of 2 to 5 nodes converge, and fall silent": (
        "test_simulation.py::test_nodes_converge_and_fall_silent_whatever_happens"
    ),
    "no message after writes have stopped": (
        "test_acceptance.py::test_nodes_are_silent_when_all_have_everything"
    ),
    "every changeset twice and in reversed order": (
        "test_acceptance.py::test_changesets_may_come_twice_and_in_reversed_order"
    ),
    "a crash at each step": "test_acceptance.py::test_a_crash_at_any_step_loses_nothing",
    "a restart of every node": "test_acceptance.py::test_nodes_go_on_after_a_restart_of_all",
    "both nodes write first on empty stores": (
        "test_acceptance.py::test_both_nodes_may_write_before_they_hear_of_each_other"
    ),
    "identical edits": "test_acceptance.py::test_identical_edits_are_no_conflict",
    "different properties": "test_acceptance.py::test_edits_of_different_members_are_both_there",
    "the same property": (
        "test_acceptance.py::test_of_two_edits_of_one_member_all_nodes_show_the_same_one"
    ),
    "delete against update": (
        "test_acceptance.py::test_an_update_that_is_made_while_others_delete_wins"
    ),
    "offline during 100,000 changesets": (
        "test_acceptance.py::test_a_node_that_was_away_catches_up_beyond_a_hundred_thousand"
    ),
    "ids of unequal length and numeric ids": (
        "test_acceptance.py::test_ids_of_nodes_may_be_numbers_and_of_any_length"
    ),
    "two nodes with the same id": "test_acceptance.py::test_two_nodes_with_one_id_are_told_apart",
    "a late joiner": "test_acceptance.py::test_a_node_that_joins_late_gets_everything",
    "a relay across two brokers with a loop": (
        "test_acceptance.py::test_relays_between_two_brokers_may_make_a_loop"
    ),
    "a broker killed and replaced by an empty one": (
        "test_acceptance.py::test_a_broker_may_be_replaced_by_an_empty_one"
    ),
    "a poison changeset in mid-stream": (
        "test_acceptance.py::test_a_changeset_that_can_not_be_applied_stops_nothing_else"
    ),
    "a local write is open while a message arrives": (
        "test_acceptance.py::test_a_message_that_arrives_during_a_local_write_is_taken_afterwards"
    ),
    "an unknown setting": (
        "test_settings.py::test_an_unknown_setting_is_refused_with_the_one_that_is_meant"
    ),
    "a broker without durable topics, selectors or acknowledgements": (
        "test_acceptance.py::test_nothing_is_expected_of_a_broker_but_to_send_on"
    ),
}

STEPS: Final = (
    "commit",
    "committed",
    "publish",
    "published",
    "received",
    "apply",
    "applied",
    "acknowledge",
)


@cache
def _tests_of(path: Path) -> frozenset[str]:
    """Return the names of the tests in a file."""
    body = ast.parse(path.read_text()).body
    names = {each.name for each in body if isinstance(each, ast.FunctionDef)}
    return frozenset(name for name in names if name.startswith("test_"))


def test_each_item_has_its_test() -> None:
    folder = Path(__file__).parent
    for item, where in COVERED.items():
        path, _, name = where.partition("::")
        assert name in _tests_of(folder / path), item


DATABASES: Final = Databases()


@pytest.fixture
def stage() -> Stage:
    """A world without random faults."""
    return Stage(World(1), DATABASES)


def nodes_of(
    stage: Stage, *branches: str, traits: Traits | None = None, **settings: Any
) -> list[Node]:
    """Return running nodes on one channel that know each other."""
    broker = stage.add_broker(traits)
    nodes = [stage.add_node(branch, [(broker, "c")], **settings) for branch in branches]
    stage.settle()
    return nodes


def apart(stage: Stage, nodes: Sequence[Node]) -> None:
    """Block all connections of nodes until they are settled."""
    for node in nodes:
        for port in node.ports:
            port.sever()


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_nodes_are_silent_when_all_have_everything(stage: Stage, count: int) -> None:
    nodes = nodes_of(stage, *"ABCDE"[:count])
    for number, node in enumerate(nodes):
        assert put(node, "notes", f"n{number}", title="new")
    stage.settle()
    check(nodes)
    before = stage.messages
    stage.world.run(1_000_000)
    assert stage.messages == before > 0


class _Holding(Broker):
    """Holds messages, and releases each of them twice and the last one first."""

    def __init__(self, broker: Broker, world: World) -> None:
        """Hold the messages to a broker."""
        self.kept: list[tuple[str, Packet]] = []
        self.is_holding = True
        super().__init__(world, broker.name, broker.traits, broker.faults)

    def publish(self, destination: str, packet: Packet) -> None:
        """Hold a message."""
        if self.is_holding:
            self.kept.append((destination, packet))
        else:
            super().publish(destination, packet)

    def release(self) -> None:
        """Release all held messages."""
        self.is_holding = False
        for destination, packet in reversed(self.kept):
            self.publish(destination, packet)
            self.publish(destination, packet)
        self.kept.clear()


def test_changesets_may_come_twice_and_in_reversed_order(stage: Stage) -> None:
    broker = _Holding(stage.add_broker(), stage.world)
    stage.brokers[0] = broker
    broker.is_holding = False
    nodes = [stage.add_node(branch, [(broker, "c")]) for branch in "AB"]
    stage.settle()
    broker.is_holding = True
    for number in range(5):
        for node in nodes:
            assert put(node, "notes", "n0", title=f"{number} of {node.name}")
        # Each transaction is sent in a separate message.
        stage.world.run(0.01)
    kinds = [packet.headers["stompkit-kind"] for _, packet in broker.kept]
    assert kinds.count("changes") == 10
    broker.release()
    stage.settle()
    check(nodes)


@pytest.mark.parametrize("traits", [Traits(), Traits(is_durable=True, acknowledges=True)])
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_loses_nothing(stage: Stage, step: str, traits: Traits) -> None:
    one, other = nodes_of(stage, "A", "B", traits=traits)
    dying = one if step in ("commit", "committed", "publish", "published") else other
    dying.dies_at = step
    is_committed = put(one, "notes", "n0", title="first")
    assert is_committed == (step != "commit")
    stage.world.run(1.0)
    assert dying.crashes[step] == 1
    stage.settle()
    assert put(one, "notes", "n1", title="second")
    assert put(other, "notes", "n2", title="third")
    stage.settle()
    check([one, other])
    assert (("doc.notes", "n0") in documents(other)) == is_committed


def test_nodes_go_on_after_a_restart_of_all(stage: Stage) -> None:
    nodes = nodes_of(stage, "A", "B", "C")
    for round in range(3):
        for node in nodes:
            assert put(node, "notes", "n0", title=f"{round} of {node.name}")
        for node in nodes:
            node.stop()
        assert not put(nodes[0], "notes", "n0", title="nobody is there")
        stage.settle()
        check(nodes)
    origins = {node.engine.origin for node in nodes if node.engine is not None}
    assert len(origins) == 3
    assert all(status_of(node).vector.keys() == origins for node in nodes)


def test_both_nodes_may_write_before_they_hear_of_each_other(stage: Stage) -> None:
    broker = stage.add_broker()
    nodes = [stage.add_node(branch, [(broker, "c")]) for branch in "AB"]
    for node in nodes:
        node.start()
        assert put(node, "notes", "n0", title=f"of {node.name}", body=node.name)
    stage.settle()
    check(nodes)
    assert documents(nodes[0])["doc.notes", "n0"]["title"] == "of n1"
    assert losers(nodes[0]) == {("doc.notes", "n0"): {"title": ["of n0"], "body": ["n0"]}}


def test_identical_edits_are_no_conflict(stage: Stage) -> None:
    nodes = nodes_of(stage, "A", "B")
    assert put(nodes[0], "notes", "n0", title="old", body="old")
    stage.settle()
    apart(stage, nodes)
    for node in nodes:
        assert put(node, "notes", "n0", title="new")
    stage.settle()
    check(nodes)
    assert losers(nodes[0]) == losers(nodes[1]) == {}
    assert documents(nodes[0]) == {("doc.notes", "n0"): {"title": "new", "body": "old"}}


def test_edits_of_different_members_are_both_there(stage: Stage) -> None:
    nodes = nodes_of(stage, "A", "B")
    assert put(nodes[0], "notes", "n0", title="old", body="old")
    stage.settle()
    apart(stage, nodes)
    assert put(nodes[0], "notes", "n0", title="new")
    assert put(nodes[1], "notes", "n0", body="new")
    stage.settle()
    check(nodes)
    assert losers(nodes[0]) == {}
    assert documents(nodes[0]) == {("doc.notes", "n0"): {"title": "new", "body": "new"}}


def test_of_two_edits_of_one_member_all_nodes_show_the_same_one(stage: Stage) -> None:
    nodes = nodes_of(stage, "A", "B", "C")
    assert put(nodes[0], "notes", "n0", title="old")
    stage.settle()
    apart(stage, nodes)
    # The clock of this node is ahead, so its write counts as the last.
    nodes[0].skew_s += 60
    for node in nodes:
        assert put(node, "notes", "n0", title=f"of {node.name}")
    stage.settle()
    check(nodes)
    for node in nodes:
        assert documents(node) == {("doc.notes", "n0"): {"title": "of n0"}}
        ((place, columns),) = losers(node).items()
        assert place == ("doc.notes", "n0")
        assert sorted(columns["title"]) == ["of n1", "of n2"]
    assert put(nodes[1], "notes", "n0", title="decided")
    stage.settle()
    assert [losers(node) for node in nodes] == [{}, {}, {}]


def test_an_update_that_is_made_while_others_delete_wins(stage: Stage) -> None:
    nodes = nodes_of(stage, "A", "B")
    for collection in ("notes", "strict", "latest"):
        assert put(nodes[0], collection, "x", title="old", body="old")
    stage.settle()
    apart(stage, nodes)
    for collection in ("notes", "strict", "latest"):
        assert put(nodes[1], collection, "x", title="new")
        stage.world.run(1)
        assert delete(nodes[0], collection, "x")
    stage.settle()
    check(nodes)
    # The other two columns have other rules.
    assert documents(nodes[0]) == {("doc.notes", "x"): {"title": "new", "body": "old"}}
    assert delete(nodes[0], "notes", "x")
    stage.settle()
    check(nodes)
    assert documents(nodes[1]) == {}


def test_a_node_that_was_away_catches_up_beyond_a_hundred_thousand(stage: Stage) -> None:
    nodes = nodes_of(stage, "A", "B")
    # As if there had been this many changesets, known to all nodes.
    origin = engine_of(nodes[0]).origin
    for node in nodes:
        node.stop()
        with node.database.store.transaction() as tx:
            last = OriginRecord(
                origin=origin, sequence=99_990, clock={origin: 99_990}, floor=99_990
            )
            tx.put_origins([last])
    nodes[0].start()
    for number in range(300):
        assert put(nodes[0], "notes", f"n{number % 7}", title=f"{number}")
    stage.settle()
    assert status_of(nodes[1]).vector == {origin: 100_290}
    assert documents(nodes[0]) == documents(nodes[1])
    assert documents(nodes[1])["doc.notes", "n5"] == {"title": "299"}


def test_ids_of_nodes_may_be_numbers_and_of_any_length(stage: Stage) -> None:
    nodes = nodes_of(stage, "0", "1", "01", "a-much-longer.name_" + 44 * "x")
    for number, node in enumerate((*reversed(nodes), *nodes)):
        assert put(node, "notes", "n0", title=f"{number}")
        stage.settle()
    check(nodes)
    assert documents(nodes[0])["doc.notes", "n0"] == {"title": "7"}
    assert losers(nodes[0]) == {}


def test_two_nodes_with_one_id_are_told_apart(stage: Stage) -> None:
    nodes = nodes_of(stage, "A", "A", "B")
    for node in nodes:
        assert put(node, "notes", "n0", title=f"of {node.name}")
        assert put(node, "notes", f"of {node.name}", title="mine")
    stage.settle()
    check(nodes)
    assert len(documents(nodes[2])) == 4
    for node in nodes:
        assert any("'A'" in warning for warning in status_of(node).warnings), node.name


def test_a_node_that_joins_late_gets_everything(stage: Stage) -> None:
    nodes = nodes_of(stage, "A", "B")
    for number in range(20):
        assert put(nodes[number % 2], "notes", f"n{number % 3}", title=f"{number}")
    stage.settle()
    late = stage.add_node("C", [(stage.brokers[0], "c")], window=3, max_body_bytes=400)
    late.start()
    assert put(late, "notes", "late", title="mine")
    stage.settle()
    check(stage.nodes)
    assert len(documents(late)) == 4


def test_relays_between_two_brokers_may_make_a_loop(stage: Stage) -> None:
    one, other = stage.add_broker(), stage.add_broker()
    both = [(one, "left"), (other, "right")]
    nodes = [stage.add_node(branch, both) for branch in ("R1", "R2")]
    nodes += [stage.add_node("A", [(one, "left")]), stage.add_node("B", [(other, "right")])]
    stage.settle()
    before = stage.messages
    for node in nodes:
        assert put(node, "notes", "n0", title=f"of {node.name}")
    stage.settle()
    check(nodes)
    changes = stage.messages - before
    assert changes < 100
    stage.world.run(100_000)
    assert stage.messages == before + changes


def test_a_broker_may_be_replaced_by_an_empty_one(stage: Stage) -> None:
    nodes = nodes_of(stage, "A", "B", traits=Traits(is_durable=True, acknowledges=True))
    broker = stage.brokers[0]
    nodes[1].stop()
    assert put(nodes[0], "notes", "n0", title="kept by the broker")
    stage.world.run(1)
    broker.is_up = False
    broker.replace()
    assert put(nodes[0], "notes", "n1", title="sent to nobody")
    stage.world.run(1)
    stage.settle()
    check(nodes)
    assert len(documents(nodes[1])) == 2


def test_a_changeset_that_can_not_be_applied_stops_nothing_else(stage: Stage) -> None:
    def validate(changeset: Changeset) -> None:
        if any((change.after or {}).get("title") == "poison" for change in changeset.changes):
            raise RefuseChangesetError("it is poison")

    broker = stage.add_broker()
    places = [(broker, "c")]
    nodes = [stage.add_node("A", places), stage.add_node("B", places)]
    careful = stage.add_node("C", places, hooks=Hooks(validate=validate))
    stage.settle()
    assert put(nodes[0], "notes", "n0", title="fine")
    assert put(nodes[0], "notes", "n1", title="poison")
    assert put(nodes[0], "notes", "n2", title="waits for what came before it")
    assert put(nodes[1], "notes", "n3", title="fine")
    stage.settle()
    assert documents(careful).keys() == {("doc.notes", "n0"), ("doc.notes", "n3")}
    ((dot, reason),) = status_of(careful).quarantined
    assert "poison" in reason
    origin, _, sequence = dot.rpartition(":")
    careful.skip((origin, int(sequence)))
    stage.settle()
    assert documents(careful).keys() == {("doc.notes", f"n{number}") for number in (0, 2, 3)}
    assert not status_of(careful).quarantined


def test_a_message_that_arrives_during_a_local_write_is_taken_afterwards(stage: Stage) -> None:
    nodes = nodes_of(stage, "A", "B")
    locks = 0

    def is_locked() -> bool:
        nonlocal locks
        locks += 1
        return locks < 20

    nodes[1].database.troubled_by(is_locked)
    assert put(nodes[0], "notes", "n0", title="new")
    stage.settle()
    assert locks >= 20
    check(nodes)
    assert len(documents(nodes[1])) == 1


@pytest.mark.parametrize("is_durable", [False, True])
@pytest.mark.parametrize("acknowledges", [False, True])
def test_nothing_is_expected_of_a_broker_but_to_send_on(
    stage: Stage, *, is_durable: bool, acknowledges: bool
) -> None:
    nodes = nodes_of(stage, "A", "B", "C", traits=Traits(is_durable, acknowledges))
    nodes[2].stop()
    stage.faults.loss = 0.3
    for number in range(10):
        for node in nodes[:2]:
            assert put(node, "notes", f"n{number}", title=f"of {node.name}")
        stage.world.run(0.5)
    stage.settle()
    check(nodes)
    assert len(documents(nodes[2])) == 10
