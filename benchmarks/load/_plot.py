"""Diagrams of the results: brokers side by side on a logarithmic scale, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks.load._tables import PERCENTILES

__all__ = ["latency_plot", "throughput_plot"]

_WIDTH: Final = 860
_NAMES: Final = 110
_BARS: Final = 600
_ROW: Final = 15
_HEAD: Final = 30
_TOP: Final = 50
#: Colours by position among all brokers, safe for colour-blind readers (Okabe and Ito).
_COLOURS: Final = (
    "#0072b2", "#e69f00", "#d55e00", "#cc79a7", "#009e73", "#999999", "#56b4e9",
)  # fmt: skip


class _Row(NamedTuple):
    """A broker in a cell."""

    cell: str
    about: str
    broker: str
    values: Sequence[float]
    """One value for a bar, or more for dots with a line from the first to the last."""
    text: str


def throughput_plot(results: Iterable[dict[str, Any]]) -> str:
    """Draw bars of messages per second from the output of ``--json``.

    Relays are left out: all brokers would look alike beside them. So are the forms of cells that
    are not the headline.
    """
    rows = []
    for each in _headline(results):
        if each["rate"] or each["kind"] in ("backlog", "idle") or not _is_broker(each):
            continue
        rate = median(run["per_second"] for run in each["runs"])
        rows.append(_Row(each["cell"], each["about"], each["broker"], [rate], f"{rate:,.0f}"))
    return _drawn("Messages, deliveries or connections a second", rows)


def latency_plot(results: Iterable[dict[str, Any]]) -> str:
    """Draw the percentiles of the cells that have a rate."""
    rows = []
    for each in _headline(results):
        if each["rate"] and _is_broker(each):
            values = [
                median(run["latency_us"][name] for run in each["runs"]) for name in PERCENTILES
            ]
            text = " / ".join(f"{value:,.0f}" for value in values)
            rows.append(_Row(each["cell"], each["about"], each["broker"], values, text))
    title = "Microseconds from SEND to delivery: median, slowest hundredth and thousandth"
    return _drawn(title, rows)


def _headline(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the results of headline forms; all results if only others were measured."""
    every = list(results)
    return [each for each in every if each.get("is_headline")] or every


def _is_broker(result: dict[str, Any]) -> bool:
    return bool(result["runs"]) and not result["broker"].startswith("relay-")


def _drawn(title: str, rows: Sequence[_Row]) -> str:
    """Return a group for each cell; raise ValueError if there is nothing to draw."""
    if not rows:
        raise ValueError(f"nothing was measured of: {title}")
    colours: dict[str, str] = {}
    for row in rows:
        colours.setdefault(row.broker, _COLOURS[len(colours) % len(_COLOURS)])
    values = [value for row in rows for value in row.values]
    low = math.floor(math.log10(max(1.0, min(values))) - 1e-9)
    high = max(low + 1, math.ceil(math.log10(max(10.0, max(values)))))

    def place(value: float) -> float:
        return _NAMES + (math.log10(max(value, 10.0**low)) - low) / (high - low) * _BARS

    body, top = "", _TOP
    for _, group in groupby(rows, lambda row: row.cell):
        group_rows = list(group)
        heading = f"{group_rows[0].cell}: {group_rows[0].about}"
        body += _text(0, top + _HEAD - 8, heading, 'font-weight="bold"')
        top += _HEAD
        for row in group_rows:
            x = [place(value) for value in row.values]
            body += _text(0, top + 11, row.broker)
            body += "".join(_marks(x, top, colours[row.broker]))
            body += _text(x[-1] + 8, top + 11, row.text)
            top += _ROW
    scale = "".join(_rule(place(10.0**power), power, top) for power in range(low, high + 1))
    height = top + _ROW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
        ' font-family="sans-serif" font-size="12">\n'
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>\n'
        + _text(0, 18, title, 'font-size="15"')
        + f"{scale}{body}</svg>\n"
    )


def _marks(places: Sequence[float], top: int, colour: str) -> Iterator[str]:
    """Return a bar, or a line with dots."""
    if len(places) == 1:
        width = places[0] - _NAMES
        place = f'x="{_NAMES}" y="{top + 1}" width="{width:.1f}" height="{_ROW - 3}"'
        yield f'<rect class="bar" {place} fill="{colour}"/>\n'
        return
    y = top + _ROW / 2
    line = f"M{places[0]:.1f},{y}H{places[-1]:.1f}"
    yield f'<path d="{line}" stroke="{colour}" stroke-width="3"/>\n'
    for x in places:
        yield f'<circle cx="{x:.1f}" cy="{y}" r="4" fill="{colour}"/>\n'


def _rule(x: float, power: int, bottom: int) -> str:
    """Return a line of the scale, with its number above."""
    line = f'<path d="M{x:.1f},{_TOP}V{bottom}" stroke="#ddd"/>\n'
    return line + _text(x, _TOP - 6, f"{10**power:,}", 'text-anchor="middle" fill="#555"')


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y}" {more}>{escape(text)}</text>\n'
