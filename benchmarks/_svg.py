"""Parts of SVG diagrams, and round numbers for their scales."""

from __future__ import annotations

import math
from html import escape
from typing import Final

__all__ = ["COLOURS", "round_step", "rule", "text"]

#: Colours that are safe for colour-blind readers (Okabe and Ito).
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def round_step(most: float, divisions: int) -> float:
    """Return a round step that divides ``most`` into at most ``divisions`` parts."""
    rough = max(most, 1e-9) / divisions
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(power * times for times in (1, 2, 5, 10) if power * times >= rough)


def text(x: float, y: float, words: str, more: str = "") -> str:
    """Return a text at a position; ``more`` are attributes."""
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}</text>'


def rule(x: float, y: float, to_x: float, to_y: float) -> str:
    """Return a thin line of a scale."""
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="#ddd"/>'
