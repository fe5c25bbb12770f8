"""Pictures of history and of who hears whom: as SVG, and in the language of Graphviz.

Both are text that needs nothing else: an SVG has its style with it, for light and for dark
surroundings, and what it shows is in its title and description, too.
"""

from __future__ import annotations

from stompkit.replica.pictures._history import history_dot, history_svg
from stompkit.replica.pictures._topology import (
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
