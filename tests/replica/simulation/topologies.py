"""Topologies: channels, and the ports of each node."""

from __future__ import annotations

from random import Random
from typing import Final

__all__ = ["TOPOLOGIES", "Topology", "topology"]

#: For each node the channels of its ports.
Topology = list[list[int]]

#: Names of topologies, with their minimum number of nodes.
TOPOLOGIES: Final = {"bus": 2, "two ways": 2, "chain": 3, "star": 3, "ring": 3, "two relays": 3}


def topology(name: str, nodes: int, random: Random) -> Topology:
    """Return the ports of each node; all topologies but the bus need relaying nodes."""
    match name:
        case "two ways":  # two channels that all subscribe to: everything is relayed back
            return [[0, 1] for _ in range(nodes)]
        case "chain":
            return [[each for each in (n - 1, n) if 0 <= each < nodes - 1] for n in range(nodes)]
        case "star":
            return [list(range(nodes - 1)), *([n] for n in range(nodes - 1))]
        case "ring":
            return [[n, (n + 1) % nodes] for n in range(nodes)]
        case "two relays":
            return [[0, 1], [0, 1], *([random.randrange(2)] for _ in range(nodes - 2))]
    return [[0] for _ in range(nodes)]
