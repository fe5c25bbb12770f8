"""Diagrams of history: a column for each origin, time downwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from stompkit.replica.diagrams._drawing import (
    LANES,
    cut,
    document,
    dot_document,
    element,
    labels,
    plain,
    quoted,
    text,
    titled,
)
from stompkit.replica.history import Counts, Entry, Graph, GraphNode

__all__ = ["history_dot", "history_svg"]

#: Distances in SVG units: about a pixel each.
_ROW: Final = 24
_LANE: Final = 26
_MARGIN: Final = 24
_RADIUS: Final = 5.5
_CELL: Final = 7.2
#: Widths in terminal cells of the text columns beside the graph.
_TIME: Final = 19
_AUTHOR: Final = 16
_COMMENT: Final = 64
_LANE_NAME: Final = 14
#: Space between two entries of the legend, in terminal cells.
_LEGEND_GAP: Final = 5


# SVG.


def history_svg(graph: Graph, *, title: str = "History") -> str:
    """Draw a graph as SVG.

    A merge of several changesets is hollow; one that takes part in a current conflict has a ring
    around it. Each has a tooltip with its details.
    """
    return _Svg(graph).draw(title)


class _Svg:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._labels = labels(graph.origins)
        self._lanes = {origin: place for place, origin in enumerate(graph.origins)}
        header = max((len(cut(each, _LANE_NAME)) for each in self._labels.values()), default=0)
        # Column names are tilted to the right by 45 degrees.
        self._top = _MARGIN + header * _CELL * 0.75 + _ROW
        self._left = _MARGIN + max(len(self._lanes), 1) * _LANE
        self._places = {
            node.entry.id: (self._x(node.entry), self._top + _ROW * row)
            for row, node in enumerate(graph.nodes)
        }
        self._names = {node.entry.id: self._name(node.entry) for node in graph.nodes}
        name = max((len(cut(each, 24)) for each in self._names.values()), default=0)
        self._columns: list[float] = [self._left]
        for cells in (name, _TIME, _AUTHOR, _COMMENT):
            self._columns.append(self._columns[-1] + (cells + 2.5) * _CELL)

    def draw(self, title: str) -> str:
        bottom = self._top + _ROW * len(self._graph.nodes)
        return document(
            "history",
            self._columns[-1],
            bottom + 1.4 * _MARGIN + _ROW * len(self._legend_rows()),
            title,
            _description(self._graph),
            [
                *self._headers(bottom),
                *self._edges(),
                *self._nodes(),
                *self._end(bottom),
                *self._legend(bottom + 1.4 * _ROW),
            ],
        )

    def _x(self, entry: Entry) -> float:
        return _MARGIN + _LANE * self._lanes[entry.origin]

    def _name(self, entry: Entry) -> str:
        return f"{self._labels[entry.origin]}:{entry.sequence}"

    def _headers(self, bottom: float) -> Iterator[str]:
        """Yield the names of the columns, and a thin line down each."""
        top = self._top - _ROW
        for origin, place in self._lanes.items():
            x = _MARGIN + _LANE * place
            ends = {"x1": x, "x2": x, "y1": top + 6, "y2": bottom - _ROW / 2}
            name = element(
                "g",
                {"transform": f"translate({x + 3:.1f} {top:.1f}) rotate(-45)"},
                [text(0, 0, cut(self._labels[origin], _LANE_NAME), f"sk-name {_colour(place)}")],
            )
            yield titled([origin], [element("line", {**ends, "class": "sk-rule"}), name])

    def _edges(self) -> Iterator[str]:
        for edge in self._graph.edges:
            x, y = self._places[edge.parent]
            child_x, child_y = self._places[edge.child]
            style = f"sk-line {_colour(round((x - _MARGIN) / _LANE))}"
            path = f"M{x:.1f} {y:.1f}" + _way(x, y, child_x, child_y)
            names = f"{self._names[edge.parent]} → {self._names[edge.child]}"
            yield titled([names], [element("path", {"d": path, "class": style})])
        for node in self._graph.nodes:
            if node.parents_elsewhere:
                x, y = self._places[node.entry.id]
                style = f"sk-line sk-far {_colour(self._lanes[node.entry.origin])}"
                path = f"M{x:.1f} {y:.1f}l-7 -{_ROW * 0.6:.1f}"
                yield element("path", {"d": path, "class": style})

    def _nodes(self) -> Iterator[str]:
        for node in self._graph.nodes:
            entry = node.entry
            x, y = self._places[entry.id]
            colour = _colour(self._lanes[entry.origin])
            name, time, author, comment, _ = self._columns
            baseline = y + 4
            tags, width = _tags(node, comment, baseline)
            words = entry.comment or _summary(entry.tables) or "nothing said"
            said = "" if entry.comment else "sk-dim"
            yield titled(
                _tooltip(node),
                [
                    *_mark(node, x, y, colour),
                    text(name, baseline, cut(self._names[entry.id], 24), f"sk-name {colour}"),
                    text(time, baseline, f"{entry.time:%Y-%m-%d %H:%M:%S}", "sk-dim"),
                    text(author, baseline, cut(entry.author, _AUTHOR)),
                    *tags,
                    text(comment + width, baseline, cut(words, _COMMENT - int(width / 7)), said),
                ],
            )

    def _end(self, bottom: float) -> Iterator[str]:
        if not self._graph.nodes:
            yield text(_MARGIN, bottom, "No changesets.", "sk-dim")
        elif self._graph.is_cut:
            words = "Earlier changesets are not shown. Times are UTC."
            yield text(self._left, bottom + 8, words, "sk-dim")
        else:
            yield text(self._left, bottom + 8, "Times are UTC.", "sk-dim")

    def _legend_rows(self) -> list[list[tuple[str, str]]]:
        """Return rows of the legend that fit into the width: each kind of mark with its words."""
        rows: list[list[tuple[str, str]]] = []
        left = 0.0
        for kind, words in _kinds(self._graph):
            width = (len(words) + _LEGEND_GAP) * _CELL
            if not rows or width > left:
                rows.append([])
                left = self._columns[-1] - 2 * _MARGIN
            rows[-1].append((kind, words))
            left -= width
        return rows

    def _legend(self, y: float) -> Iterator[str]:
        for number, row in enumerate(self._legend_rows()):
            x: float = _MARGIN
            middle = y + _ROW * number
            for kind, words in row:
                yield from _sample(kind, x, middle)
                yield text(x + 14 if kind else x - _RADIUS, middle + 4, words, "sk-dim")
                x += (len(words) + _LEGEND_GAP) * _CELL


def _kinds(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield the kinds of marks in a graph, each with its meaning."""
    if graph.nodes:
        yield "dot", "changeset"
    if any(node.is_merge for node in graph.nodes):
        yield "open", "changeset on top of several others"
    if any(node.conflicts for node in graph.nodes):
        yield "ring", "takes part in a conflict"
    if any(node.parents_elsewhere for node in graph.nodes):
        yield "far", "earlier changesets not shown"
    if any(node.entry.is_head for node in graph.nodes):
        yield "", "head: nothing on top of it"
    counts = [each for node in graph.nodes for each in node.entry.tables.values()]
    if counts and not all(node.entry.comment for node in graph.nodes):
        yield "", "+ inserted, ~ updated, - deleted rows"


def _sample(kind: str, x: float, y: float) -> Iterator[str]:
    """Draw a mark as it is in the diagram, without the colour of an origin."""
    place = {"cx": x, "cy": y}
    if kind == "far":
        yield element("path", {"d": f"M{x - 5:.1f} {y:.1f}h11", "class": "sk-bus sk-far"})
        return
    if kind == "ring":
        yield element("circle", {**place, "r": _RADIUS + 3, "class": "sk-box sk-bad"})
    if kind:
        style = "sk-key sk-hollow" if kind == "open" else "sk-key"
        yield element("circle", {**place, "r": _RADIUS - 1, "class": style})


def _colour(lane: int) -> str:
    return f"sk-{lane % LANES}"


def _way(x: float, y: float, to_x: float, to_y: float) -> str:
    """Return the path from a parent to its child: down its column, then over in two rows."""
    if x == to_x:
        return f"V{to_y:.1f}"
    turn = max(y, to_y - 2 * _ROW)
    # Offset from the column, so that the start of the path stays visible.
    beside = x + (5 if to_x > x else -5) if turn > y else x
    begin = f"Q{beside:.1f} {y + 8:.1f} {beside:.1f} {y + _ROW:.1f}V{turn:.1f}" if turn > y else ""
    middle = (turn + to_y) / 2
    return f"{begin}C{beside:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}"


def _mark(node: GraphNode, x: float, y: float, colour: str) -> Iterator[str]:
    place = {"cx": x, "cy": y}
    if node.conflicts:
        ring = {**place, "r": _RADIUS + 4.5, "class": "sk-box sk-bad sk-ring"}
        yield element("circle", ring)
    style = f"sk-mark {colour} sk-open" if node.is_merge else f"sk-mark {colour}"
    yield element("circle", {**place, "r": _RADIUS, "class": style})


def _tags(node: GraphNode, x: float, y: float) -> tuple[list[str], float]:
    """Return the tags before the comment, and their width."""
    tags = []
    width = 0.0
    if node.entry.is_head:
        tags.append(text(x, y, "head", "sk-name"))
        width += 6 * _CELL
    if node.conflicts:
        words = _number(node.conflicts, "conflict")
        tags.append(text(x + width, y, words, "sk-name sk-bad"))
        width += (len(words) + 1.5) * _CELL
    return tags, width


def _description(graph: Graph) -> str:
    merges = sum(node.is_merge for node in graph.nodes)
    conflicts = sum(bool(node.conflicts) for node in graph.nodes)
    return (
        f"{_number(len(graph.nodes), 'changeset')} of {_number(len(graph.origins), 'node')}, time "
        f"downwards, one lane for each node. {_number(merges, 'changeset')} joined several lines; "
        f"{_number(conflicts, 'changeset')} took part in conflicts that there are now."
        + (" Earlier ones are not shown." if graph.is_cut else "")
    )


def _tooltip(node: GraphNode) -> Iterator[str]:
    entry = node.entry
    yield f"{entry.name} ({entry.short_id})"
    yield f"{entry.time:%Y-%m-%d %H:%M:%S} UTC" + (f", {entry.author}" if entry.author else "")
    yield entry.comment
    yield _summary(entry.tables) or _number(entry.changes, "change")
    if node.is_merge:
        yield f"on top of {len(entry.parents)} others"
    if node.conflicts:
        yield f"takes part in {_number(node.conflicts, 'conflict')}"
    if entry.is_head:
        yield "a head: nothing is known that was made on top of it"
    if entry.via:
        yield f"came from {entry.via}"


def _summary(tables: Mapping[str, Counts]) -> str:
    return ", ".join(f"{name} {_signs(counts)}" for name, counts in tables.items())


def _signs(counts: Counts) -> str:
    numbers = (("+", counts.written), ("~", counts.updated), ("-", counts.deleted))
    return " ".join(f"{sign}{number}" for sign, number in numbers if number)


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


# Graphviz.


def history_dot(graph: Graph, *, title: str = "History") -> str:
    """Draw a graph in Graphviz format, for ``dot -Tsvg``."""
    return dot_document("history", _statements(graph, title))


def _statements(graph: Graph, title: str) -> Iterator[str]:
    names = labels(graph.origins)
    yield f"graph [label={quoted(title)}, labelloc=t, rankdir=TB, tooltip={quoted(title)}]"
    yield 'node [shape=box, style=rounded, fontname="sans-serif", fontsize=10]'
    for node in graph.nodes:
        entry = node.entry
        lines = [
            f"{names[entry.origin]}:{entry.sequence}  {entry.time:%Y-%m-%d %H:%M:%S}",
            cut(entry.author, _AUTHOR),
            cut(entry.comment or _summary(entry.tables), 40),
        ]
        given = {
            "label": quoted("\n".join(filter(None, lines))),
            # Changesets of one origin stay below each other.
            "group": quoted(entry.origin),
            "tooltip": quoted("\n".join(line for each in _tooltip(node) if (line := plain(each)))),
        }
        if node.conflicts:
            given |= {"color": "red", "penwidth": "2"}
        if node.is_merge:
            given["peripheries"] = "2"
        yield f"{quoted(entry.id)} [{', '.join(f'{key}={each}' for key, each in given.items())}]"
    for edge in graph.edges:
        yield f"{quoted(edge.parent)} -> {quoted(edge.child)}"
