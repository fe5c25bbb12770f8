"""Nodes in a simulated world with all kinds of faults, chosen by the seed.

These are the first seeds of a campaign, which the module's command line runs::

    python -m tests.replica.simulation --seeds 0-9999 --jobs 2
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

from stompkit.replica.data import Wanted
from stompkit.replica.store import row_id
from tests.effort import effort
from tests.replica.simulation.checks import check
from tests.replica.simulation.databases import Databases
from tests.replica.simulation.deeds import documents, put
from tests.replica.simulation.network import Traits
from tests.replica.simulation.node import Node
from tests.replica.simulation.running import run_seed, trace_of
from tests.replica.simulation.stage import Stage
from tests.replica.simulation.world import World

_CHUNK: Final = 10
_CHUNKS: Final = effort(6, 60)
#: Most lines of a trace that are shown.
_MOST_LINES: Final = 200


@pytest.mark.parametrize("chunk", range(_CHUNKS))
def test_nodes_converge_and_fall_silent_whatever_happens(chunk: int) -> None:
    for seed in range(chunk * _CHUNK, (chunk + 1) * _CHUNK):
        verdict = run_seed(seed)
        if verdict.problem:
            lines, problem = trace_of(seed)
            end = "\n".join(lines[-_MOST_LINES:])
            pytest.fail(
                f"seed {seed}: {problem or verdict.problem}\nThe end of what has happened; all of"
                f" it: python -m tests.replica.simulation --seed {seed}\n"
                f"{lines[0]}\n...\n{end}"
            )


def test_a_seed_is_replayed_exactly() -> None:
    seed = 3
    lines, problem = trace_of(seed)
    assert not problem
    assert len(lines) > 100
    for hashes in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.replica.simulation", "--seed", str(seed)],
            check=True,
            capture_output=True,
            text=True,
            # The run must not depend on the order of sets either.
            env={**os.environ, "PYTHONHASHSEED": hashes},
        )
        assert done.stdout.splitlines() == lines


@pytest.fixture
def nodes() -> list[Node]:
    """Two nodes with the same document."""
    stage = Stage(World(1), Databases())
    broker = stage.add_broker(Traits())
    nodes = [stage.add_node(branch, [(broker, "c")]) for branch in "AB"]
    stage.settle()
    assert put(nodes[0], "counters", "c0", title="one", total=1)
    stage.settle()
    check(nodes)
    return nodes


def test_a_document_that_is_not_as_it_should_be_is_found(nodes: list[Node]) -> None:
    database = nodes[1].database
    key = {"id": "c0"}
    wanted = Wanted(row_id("doc.counters", key), "doc.counters", key, {"title": "one", "total": 2})
    with database.engine.begin() as connection:
        database.data.write(connection, [wanted])
    assert documents(nodes[0]) != documents(nodes[1])
    with pytest.raises(AssertionError, match=r"documents differ.*n0 has.*n1 has"):
        check(nodes)


def test_a_state_that_is_wrong_everywhere_is_found(nodes: list[Node]) -> None:
    content = nodes[0].database.content()
    assert put(nodes[0], "counters", "c0", total=5)
    for node in nodes:
        node.database.put_back(content)
    with pytest.raises(AssertionError, match="committed and not there any more"):
        check(nodes)
