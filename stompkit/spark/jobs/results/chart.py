"""Charts as SVG within an HTML page: columns and lines over time, without scripts.

Colours are those of the page's style sheet: the classes ``c0`` to ``c7``, by series.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final, NamedTuple

__all__ = ["COLORS", "Series", "columns", "lines"]

#: Number of distinct series colours.
COLORS: Final = 8
_WIDTH: Final = 720
_HEIGHT: Final = 200
#: Margins for the axes.
_LEFT: Final = 64
_BOTTOM: Final = 24
_TOP: Final = 8
_TICKS: Final = 4
_TIMES: Final = 6


class Series(NamedTuple):
    """Data of a chart, one value for each time; ``None`` is a gap."""

    name: str
    values: Sequence[float | None]


def columns(name: str, what: str, times: Sequence[int], series: Sequence[Series]) -> str:
    """Return a stacked column chart; ``what`` is its text alternative.

    ``times`` are in seconds since 1970, at equal intervals.
    """
    totals = [sum(each.values[place] or 0 for each in series) for place in range(len(times))]
    scale = _Scale(times, 0, max(totals, default=0))
    width = max(scale.step * 0.85, 0.5)
    shapes = []
    below = [0.0] * len(times)
    for color, each in enumerate(series):
        path = []
        for place, value in enumerate(each.values):
            if value:
                top = below[place] + value
                height = scale.y(below[place]) - scale.y(top)
                corner = f"{scale.x(place) - width / 2:.1f} {scale.y(below[place]):.1f}"
                path.append(f"M{corner}v{-height:.1f}h{width:.1f}v{height:.1f}z")
                below[place] = top
        if path:
            shapes.append(f'<path class="c{color % COLORS}" d="{"".join(path)}"/>')
    return _svg(name, what, scale, shapes) + _legend(series)


def lines(name: str, what: str, times: Sequence[int], series: Sequence[Series]) -> str:
    """Return a line chart; a missing value interrupts a line. See :func:`columns`."""
    values = [value for each in series for value in each.values if value is not None]
    scale = _Scale(times, min([0.0, *values]), max([0.0, *values]))
    shapes = []
    for color, each in enumerate(series):
        path, is_on = [], False
        for place, value in enumerate(each.values):
            if value is None:
                is_on = False
                continue
            path.append(f"{'L' if is_on else 'M'}{scale.x(place):.1f} {scale.y(value):.1f}")
            if not is_on:
                # A single point is visible, too: lines have round ends.
                path.append("h0")
            is_on = True
        if path:
            shapes.append(f'<path class="line l{color % COLORS}" d="{"".join(path)}"/>')
    return _svg(name, what, scale, shapes) + _legend(series)


class _Scale:
    """Mapping of times and values to coordinates."""

    def __init__(self, times: Sequence[int], low: float, high: float) -> None:
        self.times = times
        step = _nice((high - low) / _TICKS)
        self.low = math.floor(low / step) * step
        self.high = max(math.ceil(high / step) * step, self.low + step)
        count = round((self.high - self.low) / step)
        self.ticks = [self.low + number * step for number in range(count + 1)]
        self.step = (_WIDTH - _LEFT) / max(len(times), 1)

    def x(self, place: int) -> float:
        return _LEFT + (place + 0.5) * self.step

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)


def _nice(step: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least *step*."""
    if step <= 0:
        return 1
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * each for each in (1, 2, 5, 10) if power * each >= step * (1 - 1e-9))


def _svg(name: str, what: str, scale: _Scale, shapes: Sequence[str]) -> str:
    axes = []
    for tick in scale.ticks:
        y = f"{scale.y(tick):.1f}"
        axes.append(f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y}" y2="{y}"/>')
        axes.append(f'<text x="{_LEFT - 6}" y="{y}" dy=".32em">{_told(tick)}</text>')
    every = max(math.ceil(len(scale.times) / _TIMES), 1)
    for place in range(0, len(scale.times), every):
        time = datetime.fromtimestamp(scale.times[place], UTC)
        axes.append(
            f'<text class="time" x="{scale.x(place):.1f}" y="{_HEIGHT - 6}">{time:%H:%M}</text>'
        )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(name)}">'
        f"<title>{escape(name)}</title><desc>{escape(what)}</desc>"
        f'<g class="axes" aria-hidden="true">{"".join(axes)}</g>{"".join(shapes)}</svg>'
    )


def _told(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _legend(series: Sequence[Series]) -> str:
    names = (
        f'<span><i class="c{color % COLORS}"></i>{escape(each.name)}</span>'
        for color, each in enumerate(series)
    )
    return f'<p class="legend">{"".join(names)}</p>'
