"""Diagrams of the topology: nodes above, their shared channels below."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from stompkit.replica.diagrams._drawing import (
    LANES,
    cut,
    document,
    dot_document,
    duration,
    element,
    labels,
    plain,
    quoted,
    text,
    titled,
    wrapped,
)
from stompkit.replica.engine import Status

__all__ = ["Hearing", "Topology", "TopologyNode", "topology_dot", "topology_of", "topology_svg"]


class TopologyNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node; the numbers are those of the first queried node."""

    origin: str
    #: True if the node was queried itself.
    is_asked: bool = False
    #: ``both``, ``send`` or ``receive``.
    direction: str = "both"
    #: Changesets that it lacks, and the age in seconds of the oldest one.
    behind: int = 0
    behind_s: float = 0.0
    #: Changesets that it has and the queried node lacks.
    ahead: int = 0
    #: Seconds since its last message; ``None`` if it is known only from others.
    heard_s: float | None = None
    #: Problems with its identity or its settings.
    warnings: tuple[str, ...] = ()


class Hearing(msgspec.Struct, frozen=True):
    """A node hears another one on a channel without a relay."""

    hearer: str
    heard: str
    channel: str


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes and channels, as seen by some of the nodes."""

    nodes: tuple[TopologyNode, ...]
    channels: tuple[str, ...]
    hearings: tuple[Hearing, ...]
    #: Known connections of nodes to channels: node, channel, and True if it is up.
    connections: tuple[tuple[str, str, bool], ...] = ()

    def channels_of(self, origin: str) -> list[str]:
        """Return the known channels of a node."""
        found = {channel for node, channel, _ in self.connections if node == origin}
        found |= {each.channel for each in self.hearings if each.heard == origin}
        return [channel for channel in self.channels if channel in found]

    def is_cut_off(self, origin: str, channel: str) -> bool:
        """Return True if a node reports that it is disconnected from one of its channels."""
        return (origin, channel, False) in self.connections


def topology_of(statuses: Sequence[Status], *, now: float) -> Topology:
    """Combine the statuses of nodes; ``now`` is in seconds since 1970.

    One status is enough. Channels of different nodes are matched by their names, and by their order
    if a node has several of the same name.
    """
    nodes: dict[str, TopologyNode] = {}
    channels: dict[str, None] = {}
    hearings: dict[Hearing, None] = {}
    connections: dict[tuple[str, str, bool], None] = {}
    for status in statuses:
        names = _channel_names([name for name, _ in status.channels])
        channels |= dict.fromkeys(names)
        for name, (_, is_connected) in zip(names, status.channels, strict=True):
            connections[status.origin, name, is_connected] = None
        nodes[status.origin] = TopologyNode(
            origin=status.origin, is_asked=True, warnings=tuple(status.warnings)
        )
        for peer in status.peers:
            for port in peer.ports:
                if port < len(names):
                    hearings[Hearing(status.origin, peer.origin, names[port])] = None
    for status in statuses:
        for peer in status.peers:
            known = nodes.get(peer.origin)
            if known is not None and (not known.is_asked or known.heard_s is not None):
                continue
            nodes[peer.origin] = TopologyNode(
                origin=peer.origin,
                is_asked=known is not None,
                direction=peer.direction,
                behind=peer.behind,
                behind_s=peer.behind_s,
                ahead=peer.ahead,
                heard_s=max(now - peer.heard_at, 0.0) if peer.heard_at else None,
                warnings=() if known is None else known.warnings,
            )
    return Topology(
        nodes=tuple(nodes.values()),
        channels=tuple(channels),
        hearings=tuple(hearings),
        connections=tuple(connections),
    )


def _channel_names(names: Sequence[str]) -> list[str]:
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


# Facts for both formats.


def _facts(node: TopologyNode) -> Iterator[tuple[str, bool]]:
    """Yield the lines of a node's box, each with True if it is a problem."""
    if node.direction == "send":
        yield "only sends", False
    if node.direction == "receive":
        yield "only receives", False
    if node.behind:
        yield f"lacks {node.behind:,}, for {duration(node.behind_s)}", True
    if node.ahead:
        yield f"has {node.ahead:,} more", False
    if node.heard_s is not None:
        if not node.behind and not node.ahead:
            yield "has the same", False
        yield f"heard {duration(node.heard_s)} ago", False
    elif not node.is_asked:
        yield "only heard of", False
    if node.warnings:
        yield "! " + node.warnings[0], True


def _hears(topology: Topology, origin: str) -> str:
    """Return a text that lists the nodes heard by a node; empty if it was not queried."""
    names = labels(node.origin for node in topology.nodes)
    heard = dict.fromkeys(names[h.heard] for h in topology.hearings if h.hearer == origin)
    return "hears " + ", ".join(heard) if heard else ""


def _title(topology: Topology, node: TopologyNode) -> list[str]:
    words = [node.origin, *(fact for fact, _ in _facts(node)), _hears(topology, node.origin)]
    return [*words, *node.warnings[1:]]


def _description(topology: Topology) -> str:
    late = sum(bool(node.behind) for node in topology.nodes)
    far = sum(not topology.channels_of(node.origin) for node in topology.nodes)
    return (
        f"{len(topology.nodes)} nodes on {len(topology.channels)} channels: "
        f"{'; '.join(topology.channels)}. {late} lack changesets; {far} are reached by relays only."
    )


# SVG.

#: Distances in SVG units: about a pixel each.
_WIDTH: Final = 168
_GAP: Final = 24
_MARGIN: Final = 24
_LINE: Final = 17
_BUS: Final = 48
_STUB: Final = 16
_CELL: Final = 7.2
#: Space for text in a box, and beside a channel, in cells and lines.
_CELLS: Final = 22
_LINES: Final = 3
_CHANNEL: Final = 24


def topology_svg(topology: Topology, *, title: str = "Topology") -> str:
    """Draw nodes, the channels below them, and a line from each node to each of its channels.

    An arrow at the channel's end means that the node sends, one at the node's end that it receives.
    Nodes known only through relays are on a dashed line.
    """
    return _Svg(topology).draw(title)


class _Svg:
    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._names = labels(node.origin for node in topology.nodes)
        self._lines = {node.origin: list(self._text(node)) for node in topology.nodes}
        most = max(map(len, self._lines.values()), default=0)
        self._bottom = _MARGIN + 22 + _LINE * most + 12
        self._buses = {name: cut(name, _CHANNEL) for name in topology.channels}
        if any(not topology.channels_of(node.origin) for node in topology.nodes):
            # No channel has this name.
            self._buses[""] = "behind relays"
        cells = max((len(name) for name in self._buses.values()), default=0)
        self._left = _MARGIN + (cells + 2) * _CELL
        self._ys = {
            name: self._bottom + _BUS * (place + 1) for place, name in enumerate(self._buses)
        }

    def draw(self, title: str) -> str:
        count = max(len(self._topology.nodes), 1)
        right = self._left + count * (_WIDTH + _GAP) - _GAP
        content = [*self._bus_lines(right)]
        for place, node in enumerate(self._topology.nodes):
            content.append(self._node(node, self._left + place * (_WIDTH + _GAP), place))
        if not self._topology.nodes:
            content.append(text(self._left, 2 * _MARGIN, "No nodes.", "sk-dim"))
        bottom = max(self._ys.values(), default=self._bottom)
        description = _description(self._topology)
        return document("topology", right + _MARGIN, bottom + _MARGIN, title, description, content)

    def _text(self, node: TopologyNode) -> Iterator[tuple[str, str]]:
        """Yield the lines in a node's box, each with its style."""
        for fact, is_bad in _facts(node):
            for line in wrapped(fact, _CELLS, _LINES):
                yield line, "sk-bad" if is_bad else "sk-dim"
        for line in wrapped(_hears(self._topology, node.origin), _CELLS, _LINES):
            yield line, ""

    def _bus_lines(self, right: float) -> Iterator[str]:
        for name, words in self._buses.items():
            y = self._ys[name]
            ends = {"x1": self._left - _GAP / 2, "x2": right, "y1": y, "y2": y}
            style = "sk-line sk-bus" if name else "sk-line sk-bus sk-far"
            line = element("line", {**ends, "class": style})
            yield titled([name or words], [line, text(_MARGIN, y + 4, words, "sk-name")])

    def _node(self, node: TopologyNode, x: float, place: int) -> str:
        colour = f"sk-{place % LANES}"
        style = f"sk-box {'sk-bad' if node.warnings else colour}"
        box = {"x": x, "y": _MARGIN, "width": _WIDTH, "height": self._bottom - _MARGIN, "rx": 8}
        y = _MARGIN + 22
        parts = [
            *self._stubs(node, x, colour),
            element("rect", {**box, "class": style + (" sk-here" if node.is_asked else "")}),
            text(x + 12, y, cut(self._names[node.origin], 18), f"sk-name {colour}"),
        ]
        if node.is_asked:
            is_alone = sum(each.is_asked for each in self._topology.nodes) == 1
            words = "here" if is_alone else "asked"
            parts.append(text(x + _WIDTH - 12, y, words, "sk-dim", anchor="end"))
        for line, style in self._lines[node.origin]:
            y += _LINE
            parts.append(text(x + 12, y, line, style))
        return titled(_title(self._topology, node), parts)

    def _stubs(self, node: TopologyNode, x: float, colour: str) -> Iterator[str]:
        """Yield the lines from a node to its channels."""
        channels = self._topology.channels_of(node.origin) or [""]
        for place, name in enumerate(channels):
            # The first channel is the nearest, and its line is the rightmost.
            at = x + _WIDTH / 2 - (place - (len(channels) - 1) / 2) * _STUB
            y = self._ys[name]
            is_off = self._topology.is_cut_off(node.origin, name)
            style = "sk-bad" if is_off else colour
            far = " sk-far" if is_off or not name else ""
            ends = {"x1": at, "x2": at, "y1": self._bottom, "y2": y}
            yield element("line", {**ends, "class": f"sk-line {style}{far}"})
            if is_off:
                yield text(at + 6, y - 8, "not connected", "sk-bad")
                continue
            if node.direction == "receive":
                yield element("circle", {"cx": at, "cy": y, "r": 3, "class": f"sk-mark {style}"})
            else:
                yield element("path", {"d": _arrow(at, y, -9), "class": f"sk-mark {style}"})
            if node.direction != "send":
                arrow = _arrow(at, self._bottom, 9)
                yield element("path", {"d": arrow, "class": f"sk-mark {style}"})


def _arrow(x: float, y: float, height: float) -> str:
    """Return the tip of an arrow; a negative height points down."""
    return f"M{x:.1f} {y:.1f}l-4 {height:.1f}h8z"


# Graphviz.


def topology_dot(topology: Topology, *, title: str = "Topology") -> str:
    """Draw nodes and channels in Graphviz format, for ``dot -Tsvg``."""
    return dot_document("topology", _statements(topology, title))


def _statements(topology: Topology, title: str) -> Iterator[str]:
    names = labels(node.origin for node in topology.nodes)
    yield f"graph [label={quoted(title)}, labelloc=t, rankdir=LR]"
    yield 'node [fontname="sans-serif", fontsize=10]'
    for place, channel in enumerate(topology.channels):
        yield f"channel{place} [shape=ellipse, label={quoted(channel)}]"
    for node in topology.nodes:
        lines = [names[node.origin], *(fact for fact, _ in _facts(node))]
        lines.append(_hears(topology, node.origin))
        given = {
            "shape": "box",
            "label": quoted("\n".join(filter(None, map(plain, lines)))),
            "tooltip": quoted("\n".join(filter(None, _title(topology, node)))),
        }
        if node.warnings:
            given |= {"color": "red", "penwidth": "2"}
        elif not topology.channels_of(node.origin):
            given["style"] = "dashed"
        yield f"{quoted(node.origin)} [{', '.join(f'{key}={each}' for key, each in given.items())}]"
        way = {"send": "forward", "receive": "back"}.get(node.direction, "both")
        for channel in topology.channels_of(node.origin):
            off = ", style=dashed, color=red" if topology.is_cut_off(node.origin, channel) else ""
            number = topology.channels.index(channel)
            yield f"{quoted(node.origin)} -> channel{number} [dir={way}{off}]"
