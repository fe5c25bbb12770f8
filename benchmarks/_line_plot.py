"""Line charts with a logarithmic x axis, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from benchmarks._svg import COLOURS, round_step, rule, text

__all__ = ["Line", "line_plot"]

_WIDTH: Final = 760
_HEIGHT: Final = 420
_LEFT: Final = 60
_RIGHT: Final = 260
_TOP: Final = 40
_BOTTOM: Final = 50
#: Pixels between two entries of the legend.
_ENTRY: Final = 20
#: Most divisions of the y axis.
_DIVISIONS: Final = 6


class Line(NamedTuple):
    """Points with a name."""

    title: str
    points: Sequence[tuple[int, float]]


def line_plot(title: str, across: str, upright: str, lines: Sequence[Line]) -> str:
    """Draw lines; ``across`` and ``upright`` are the titles of the x and y axes.

    The x axis is logarithmic, and begins with 0 in the place of 1. The y axis begins with 0, so
    that a line that looks flat is flat.
    """
    decades = max(1, math.ceil(max(_decade(x) for line in lines for x, _ in line.points)))
    step = round_step(max(y for line in lines for _, y in line.points), _DIVISIONS)
    steps = max(1, math.ceil(max(y for line in lines for _, y in line.points) / step))
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + _decade(x) / decades * (right - _LEFT),
            bottom - y / (step * steps) * (bottom - _TOP),
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        text(_LEFT, _TOP - 18, title, 'font-size="15"'),
        text((_LEFT + right) / 2, _HEIGHT - 10, across, 'text-anchor="middle"'),
        text(_LEFT, _TOP - 4, upright, 'fill="#555"'),
    ]
    for decade in range(decades + 1):
        x, _ = place(10**decade, 0)
        parts.append(rule(x, _TOP, x, bottom))
        parts.append(text(x, bottom + 18, f"{10**decade:,}", 'text-anchor="middle"'))
    for number in range(steps + 1):
        _, y = place(1, number * step)
        parts.append(rule(_LEFT, y, right, y))
        parts.append(text(_LEFT - 6, y + 4, f"{number * step:g}", 'text-anchor="end"'))
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        places = [place(x, y) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        y = _TOP + 10 + number * _ENTRY
        parts.append(f'<circle cx="{right + 20}" cy="{y}" r="4" fill="{colour}"/>')
        parts.append(text(right + 30, y + 4, line.title))
    return "\n".join([*parts, "</svg>", ""])


def _decade(x: float) -> float:
    return math.log10(max(1.0, x))
