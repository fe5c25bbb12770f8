"""The assignment of keys to workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from stompkit.replication.workers import HashRing
from stompkit.replication.workers.messages import key_octets

KEYS = [key_octets(key) for key in [*range(5_000), *map(str, range(5_000)), (1, "x"), None]]

IN_A_PROCESS = """
import json
from stompkit.replication.workers import HashRing
from stompkit.replication.workers.messages import key_octets
ring = HashRing(map(str, range(7)))
print(json.dumps([ring.node(key_octets(key)) for key in ["a b", "1", 1, None, *range(200)]]))
"""


def nodes_in_a_process(seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS], env=environment, capture_output=True, check=True
    )
    found: list[str] = json.loads(done.stdout)
    return found


def test_a_key_has_the_same_worker_in_every_process_and_run() -> None:
    """Bug of Meepo: its ring used hashes that Python salts in each process."""
    ring = HashRing(map(str, range(7)))
    here = [ring.node(key_octets(key)) for key in ["a b", "1", 1, None, *range(200)]]
    assert nodes_in_a_process("1") == nodes_in_a_process("2") == here


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 16])
def test_one_worker_more_moves_about_its_share_of_the_keys_and_only_to_itself(workers: int) -> None:
    before = HashRing(map(str, range(workers)))
    after = HashRing(map(str, range(workers + 1)))
    moved = [key for key in KEYS if before.node(key) != after.node(key)]
    assert {after.node(key) for key in moved} == {str(workers)}
    share = len(KEYS) / (workers + 1)
    assert 0.6 * share < len(moved) < 1.4 * share


def test_workers_have_about_as_many_keys_each() -> None:
    ring = HashRing(map(str, range(5)))
    shares = Counter(map(ring.node, KEYS))
    assert len(shares) == 5
    assert max(shares.values()) < 1.6 * min(shares.values())


@pytest.mark.parametrize("nodes", [[], ["a", "b", "a"]])
def test_a_ring_without_nodes_or_with_one_twice_is_refused(nodes: list[str]) -> None:
    with pytest.raises(ValueError, match="a ring has nodes"):
        HashRing(nodes)
