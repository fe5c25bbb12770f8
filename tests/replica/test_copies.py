"""Databases of replicas that were copied or restored from a backup, while messages are lost."""

from __future__ import annotations

from typing import Final

import pytest

from tests.replica.simulation.checks import check
from tests.replica.simulation.databases import Databases
from tests.replica.simulation.deeds import documents, put, status_of
from tests.replica.simulation.stage import Stage
from tests.replica.simulation.world import World

DATABASES: Final = Databases()


@pytest.fixture
def stage() -> Stage:
    """A world without random faults."""
    return Stage(World(1), DATABASES)


def test_a_copy_that_nobody_has_heard_learns_that_it_is_one(stage: Stage) -> None:
    """By the known numbers it has everything, but those of its own were never sent."""
    broker = stage.add_broker()
    places = [(broker, "c")]
    one, original = stage.add_node("A", places), stage.add_node("B", places)
    stage.settle()
    assert put(original, "notes", "n0", title="both have it")
    stage.settle()

    copy = stage.add_node("B", places)
    copy.database.put_back(original.database.content())
    stage.faults.loss = 1.0
    copy.start()
    stage.world.run(0.1)
    stage.faults.loss = 0.0
    assert put(original, "notes", "n1", title="after the copy was made")
    stage.settle()
    check([one, original, copy])
    assert len(documents(copy)) == 2
    names = {status_of(each).origin for each in stage.nodes}
    assert len(names) == 3


@pytest.mark.parametrize("has_begun", [False, True])
def test_nobody_waits_for_a_name_that_went_with_what_a_backup_replaced(
    stage: Stage, *, has_begun: bool
) -> None:
    broker = stage.add_broker()
    one = stage.add_node("A", [(broker, "c")])
    other = stage.add_node("B", [(broker, "c")])
    if has_begun:
        stage.settle()
    one.start()
    content = other.database.content()
    other.start()
    stage.world.run(5.0)
    assert put(other, "notes", "n0", title="lost")
    stage.world.run(5.0)
    other.stop()
    assert put(one, "notes", "n1", title="new")
    other.database.put_back(content)
    stage.settle()
    check([one, other])
    assert [each.origin for each in status_of(one).peers] == [status_of(other).origin]
    before = stage.messages
    stage.world.run(1_000_000)
    assert stage.messages == before


@pytest.mark.parametrize("writes", [True, False])
def test_an_original_is_told_from_its_copy_that_was_heard_first(
    stage: Stage, *, writes: bool
) -> None:
    """The copy has higher message numbers, by which other nodes recognise old messages."""
    broker = stage.add_broker()
    places = [(broker, "c")]
    one, original = stage.add_node("A", places), stage.add_node("B", places)
    stage.settle()
    assert put(original, "notes", "n0", title="both have it")
    stage.settle()

    original.ports[0].sever()
    copy = stage.add_node("B", places)
    copy.database.put_back(original.database.content())
    copy.start()
    stage.world.run(10.0)
    if writes:
        assert put(original, "notes", "n1", title="after the copy was made")
    assert put(one, "notes", "n2", title="for both")
    stage.world.run(10.0)
    original.ports[0].mend(is_noticed=True)
    stage.settle()
    check([one, original, copy])
    assert len(documents(one)) == 2 + writes
    if writes:
        assert len({status_of(each).origin for each in stage.nodes}) == 3


def test_a_node_that_comes_back_asks_at_once_what_it_has_missed(stage: Stage) -> None:
    """The others query it ever more rarely."""
    broker = stage.add_broker()
    nodes = [stage.add_node(branch, [(broker, "c")]) for branch in "AB"]
    stage.settle()
    nodes[1].ports[0].sever()
    assert put(nodes[0], "notes", "n0", title="while it was away")
    stage.world.run(10_000.0)
    nodes[1].ports[0].mend(is_noticed=True)
    stage.world.run(5.0)
    check(nodes)


def test_what_followed_on_a_changeset_that_was_lost_with_its_database_is_not_waited_for(
    stage: Stage,
) -> None:
    """The number is reused by a change after the restore."""
    broker = stage.add_broker()
    one = stage.add_node("A", [(broker, "c")])
    other = stage.add_node("B", [(broker, "c")])
    stage.settle()
    content = other.database.content()
    stage.faults.loss = 1.0
    assert put(other, "notes", "n0", title="lost")
    stage.world.run(0.05)
    stage.faults.loss = 0.0
    assert put(other, "notes", "n1", title="follows on that")
    stage.world.run(0.05)
    assert status_of(one).held == 1
    other.stop()
    other.database.put_back(content)
    other.start()
    for number in range(3):
        assert put(other, "notes", f"n{2 + number}", title="after the backup was put back")
        stage.world.run(0.05)
        stage.faults.loss = 1.0
    lost = other.committed[:2]
    stage.settle()
    check([one, other], lost)
    assert len(documents(one)) == 3
    assert status_of(one).held == 0
