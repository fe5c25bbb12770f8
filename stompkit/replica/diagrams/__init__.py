"""Diagrams of history and of the topology, as SVG and in Graphviz format.

Both are self-contained text. An SVG includes its style, for light and dark themes, and describes
its contents in its title and description.
"""

from __future__ import annotations

from stompkit.replica.diagrams._history import history_dot, history_svg
from stompkit.replica.diagrams._topology import (
    Hearing,
    Topology,
    TopologyNode,
    topology_dot,
    topology_of,
    topology_svg,
)

__all__ = [
    "Hearing",
    "Topology",
    "TopologyNode",
    "history_dot",
    "history_svg",
    "topology_dot",
    "topology_of",
    "topology_svg",
]
