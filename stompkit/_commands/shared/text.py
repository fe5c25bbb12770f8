"""Formatting of times, sizes, tables and advice for output."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

__all__ = ["aligned", "duration", "remedy_of", "size", "when"]

#: Time in seconds below which tenths are shown.
_PRECISE_S: Final = 10
_UNITS: Final = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_SIZES: Final = ("B", "kB", "MB", "GB", "TB")
_STEP: Final = 1000
#: Advice for error codes of the broker that the user can act on.
_REMEDIES: Final = {
    "unknown-host": "Add ?vhost=NAME to the URL, or set STOMPKIT_VHOST.",
}


def remedy_of(code: str | None) -> str:
    """Return advice for an error code, to append to the error; empty if there is none."""
    return f". {_REMEDIES[code]}" if code in _REMEDIES else ""


def when(seconds: float) -> str:
    """Return a time in UTC, from seconds since 1970."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(" ", "seconds")[:19]
    except (OverflowError, ValueError, OSError):
        return "?"  # from a clock that was never set


def duration(seconds: float) -> str:
    """Format a duration in at most two units: ``0.4 s``, ``3 min 20 s``, ``2 d 5 h``."""
    if seconds < _PRECISE_S:
        return f"{max(seconds, 0.0):.1f} s"
    rest = int(seconds)
    parts: list[str] = []
    for unit, length in _UNITS:
        count, rest = divmod(rest, length)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(filter(None, parts[:2]))


def size(octets: float) -> str:
    """Format a size in bytes with about three digits: ``512 B``, ``1.5 kB``, ``20 MB``."""
    number = float(octets)
    unit = 0
    while number >= _STEP - 0.5 and unit < len(_SIZES) - 1:
        number /= _STEP
        unit += 1
    return (
        f"{number:.1f} {_SIZES[unit]}" if unit and number < 9.95 else f"{number:.0f} {_SIZES[unit]}"
    )


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Format rows as aligned columns; those in ``right`` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
