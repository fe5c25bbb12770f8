"""Nodes whose missing changesets are no longer kept copy the state of another node."""

from __future__ import annotations

from typing import Final

import pytest

from tests.replica.simulation.checks import check
from tests.replica.simulation.databases import Databases
from tests.replica.simulation.deeds import documents, put
from tests.replica.simulation.stage import Stage
from tests.replica.simulation.world import World

DATABASES: Final = Databases()


@pytest.mark.parametrize("seed", range(6))
def test_what_one_node_has_and_nobody_keeps_comes_as_its_state(seed: int) -> None:
    """Other nodes that lack it, too, could only send their own."""
    stage = Stage(World(seed), DATABASES)
    broker = stage.add_broker()
    nodes = [stage.add_node(branch, [(broker, "c")]) for branch in "ABCD"]
    stage.settle()
    assert put(nodes[0], "notes", "n0", title="all have it")
    stage.settle()
    for node in nodes:
        if node is not nodes[1]:
            node.ports[0].sever()
    assert put(nodes[1], "notes", "n1", title="only one has it")
    nodes[1].compact(is_careful=False)
    stage.world.run(5.0)
    stage.settle()
    check(nodes)
    assert all(len(documents(node)) == 2 for node in nodes)
