"""Lines over a logarithmic scale, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

__all__ = ["Line", "line_plot"]

_WIDTH: Final = 760
_HEIGHT: Final = 420
_LEFT: Final = 60
_RIGHT: Final = 260
_TOP: Final = 40
_BOTTOM: Final = 50
#: What the eye can tell apart, whether or not it sees colours well (Okabe and Ito).
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
#: Pixels between two entries of the legend.
_ENTRY: Final = 20
#: Divisions of the upright scale, at most.
_DIVISIONS: Final = 6


class Line(NamedTuple):
    """Points with a name."""

    title: str
    points: Sequence[tuple[int, float]]


def line_plot(title: str, across: str, upright: str, lines: Sequence[Line]) -> str:
    """Draw lines; ``across`` and ``upright`` say what the scales are of.

    The scale across is logarithmic, and begins with 0 in the place of 1. The upright one begins
    with 0, so that a line that looks flat is flat.
    """
    decades = max(1, math.ceil(max(_decade(x) for line in lines for x, _ in line.points)))
    step = _step(max(y for line in lines for _, y in line.points))
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
        _text(_LEFT, _TOP - 18, title, 'font-size="15"'),
        _text((_LEFT + right) / 2, _HEIGHT - 10, across, 'text-anchor="middle"'),
        _text(_LEFT, _TOP - 4, upright, 'fill="#555"'),
    ]
    for decade in range(decades + 1):
        x, _ = place(10**decade, 0)
        parts.append(_rule(x, _TOP, x, bottom))
        parts.append(_text(x, bottom + 18, f"{10**decade:,}", 'text-anchor="middle"'))
    for number in range(steps + 1):
        _, y = place(1, number * step)
        parts.append(_rule(_LEFT, y, right, y))
        parts.append(_text(_LEFT - 6, y + 4, f"{number * step:g}", 'text-anchor="end"'))
    for number, line in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [place(x, y) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        y = _TOP + 10 + number * _ENTRY
        parts.append(f'<circle cx="{right + 20}" cy="{y}" r="4" fill="{colour}"/>')
        parts.append(_text(right + 30, y + 4, line.title))
    return "\n".join([*parts, "</svg>", ""])


def _decade(x: float) -> float:
    return math.log10(max(1.0, x))


def _step(most: float) -> float:
    """A round number that goes into ``most`` a few times."""
    rough = max(most, 1e-9) / _DIVISIONS
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(power * times for times in (1, 2, 5, 10) if power * times >= rough)


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


def _rule(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="#ddd"/>'
