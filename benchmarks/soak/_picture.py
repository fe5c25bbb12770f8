"""The series of a run as a diagram: a panel for each, with the slope that it is judged by."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from benchmarks._svg import COLOURS, round_step, rule, text
from benchmarks.soak._flatness import SERIES, second_half, slope

__all__ = ["soak_plot"]

_COLUMNS: Final = 3
_WIDTH: Final = 270
_HEIGHT: Final = 170
_LEFT: Final = 46
_TOP: Final = 34
_BOTTOM: Final = 30
_GAP: Final = 14
_HEAD: Final = 34
#: Most divisions of the scales.
_DIVISIONS: Final = 4
#: Series that are drawn without being judged: name and title.
_RATES: Final = (("delivered_per_s", "deliveries a second"),)


def soak_plot(samples: Mapping[str, Sequence[float]]) -> str:
    """Draw the series of :func:`benchmarks.soak._samples.columns`; raise ValueError if empty."""
    times_s = samples.get("s", ())
    if len(times_s) < 2:
        raise ValueError("nothing was sampled")
    named = [(each.name, each.title) for each in SERIES] + list(_RATES)
    found = [(name, title) for name, title in named if name in samples]
    lines = -(-len(found) // _COLUMNS)
    width, height = _COLUMNS * (_WIDTH + _GAP) + _GAP, _HEAD + lines * (_HEIGHT + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        text(_GAP, 22, "A broker under a steady mixed load, over minutes", 'font-size="15"'),
        text(width - _GAP, 22, "shaded: what is judged, and its slope", 'text-anchor="end"'),
    ]
    for number, (name, title) in enumerate(found):
        row, column = divmod(number, _COLUMNS)
        x, y = _GAP + column * (_WIDTH + _GAP), _HEAD + row * (_HEIGHT + _GAP)
        points = list(zip(times_s, samples[name], strict=True))
        is_judged = number < len(found) - sum(rate in samples for rate, _ in _RATES)
        parts.append(f'<g transform="translate({x} {y})">')
        parts += _panel(title, points, is_judged=is_judged)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _panel(title: str, points: Sequence[tuple[float, float]], *, is_judged: bool) -> list[str]:
    """Draw one series; the y axis begins with 0, so that a line that looks flat is flat."""
    step = round_step(max(1.0, *(y for _, y in points)), _DIVISIONS)
    top_value = step * max(1, math.ceil(max(y for _, y in points) / step))
    began_s, ended_s = points[0][0], points[-1][0]
    minute_step = round_step((ended_s - began_s) / 60, _DIVISIONS)
    right, bottom = _WIDTH, _HEIGHT - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + (x - began_s) / (ended_s - began_s) * (right - _LEFT),
            bottom - y / top_value * (bottom - _TOP),
        )

    half = second_half(points)
    parts = []
    if is_judged:
        x, _ = place(half[0][0], 0)
        parts.append(
            f'<rect x="{x:.1f}" y="{_TOP}" width="{right - x:.1f}" height="{bottom - _TOP}"'
            ' fill="#f2f2f2"/>'
        )
    parts.append(text(_LEFT, _TOP - 8, title))
    for number in range(round(top_value / step) + 1):
        _, y = place(began_s, number * step)
        parts.append(rule(_LEFT, y, right, y))
        parts.append(text(_LEFT - 5, y + 4, f"{number * step:,g}", 'text-anchor="end"'))
    for number in range(math.floor((ended_s - began_s) / 60 / minute_step + 1e-9) + 1):
        x, _ = place(began_s + number * minute_step * 60, 0)
        parts.append(text(x, bottom + 15, f"{number * minute_step:g}", 'text-anchor="middle"'))
    path = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in points)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[0]}"/>')
    if is_judged:
        # The line of Theil and Sen goes through the medians.
        steep, middle_x = slope(half), median(x for x, _ in half)
        middle_y = median(y for _, y in half)
        ends = [(x, middle_y + steep * (x - middle_x)) for x in (half[0][0], half[-1][0])]
        path = " ".join("{:.1f},{:.1f}".format(*place(x, max(0.0, y))) for x, y in ends)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{COLOURS[1]}" stroke-width="2"/>'
        )
    return parts
