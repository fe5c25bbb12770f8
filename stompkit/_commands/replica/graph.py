"""Text drawing of the changeset graph, for ``stompkit replica log --graph``.

A lane is a column with a line down to an older changeset. It never moves sideways, so that lines
are only vertical and horizontal::

    *      a child of two changesets
    |-.
    | *
    * |
    |-'
    *      the parent of both
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

__all__ = ["Drawn", "draw"]


class Drawn(NamedTuple):
    """The drawing in front of one changeset."""

    line: str
    """Prefix of the changeset's own line."""
    below: str
    """Additional line below it; empty if the lines only continue."""


def draw(nodes: Iterable[tuple[str, Sequence[str]]]) -> Iterator[Drawn]:
    """Draw changesets: each with its id and the ids of its parents, children before parents.

    Parents that are not in the list get no line.
    """
    listed = list(nodes)
    follows = {name: number for number, (name, _) in enumerate(listed)}
    lanes: list[str | None] = []
    #: Lane that ended in the line above: one that begins there would look connected to it.
    ended = -1
    for number, (name, parents) in enumerate(listed):
        if name not in lanes:
            _open(lanes, name, but=ended)
        own = lanes.index(name)
        line = " ".join(
            "*" if column == own else "|" if lane else " " for column, lane in enumerate(lanes)
        )
        known = [each for each in set(parents) if follows.get(each, -1) > number]
        # The lane continues to the parent that is furthest away.
        known.sort(key=follows.__getitem__, reverse=True)
        below = _below(lanes, own, known)
        yield Drawn(line, below)
        ended = own if lanes[own] is None and not below else -1
        while lanes and lanes[-1] is None:
            lanes.pop()


def _open(lanes: list[str | None], name: str, *, first: int = 0, but: int = -1) -> int:
    """Assign a free column from ``first`` on, except ``but``, to a changeset; returns it."""
    column = first
    while column == but or (column < len(lanes) and lanes[column] is not None):
        column += 1
    lanes += [None] * (column + 1 - len(lanes))
    lanes[column] = name
    return column


def _below(lanes: list[str | None], own: int, parents: Sequence[str]) -> str:
    """Connect the lane ``own`` to the parents of its changeset, and return the drawing."""
    joined = [lanes.index(each) for each in parents if each in lanes]
    new = [each for each in parents if each not in lanes]
    lanes[own] = new[0] if new else None
    opened = [_open(lanes, each, first=own + 1) for each in new[1:]]
    ends = [*joined, *opened]
    if not ends:
        return ""
    first, last = min(own, *ends), max(own, *ends)
    return "".join(
        _cell(column, lane, own=own, ends=ends, opened=opened, span=range(first, last))
        for column, lane in enumerate(lanes)
    ).rstrip()


def _cell(
    column: int,
    lane: str | None,
    *,
    own: int,
    ends: Sequence[int],
    opened: Sequence[int],
    span: range,
) -> str:
    """Return two characters of the line from lane ``own`` to ``ends``, across other lanes."""
    if column in opened:
        mark = "."
    elif column == own and lane is None:
        mark = "'"
    elif column in span and column != own and column not in ends:
        mark = "-"  # a crossed lane continues below
    else:
        mark = "|" if lane is not None else " "
    return mark + ("-" if column in span else " ")
