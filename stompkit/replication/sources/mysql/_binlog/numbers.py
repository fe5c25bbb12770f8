"""Length-encoded integers of the MySQL protocol."""

from __future__ import annotations

from typing import Final

__all__ = ["number_at"]

#: Number of bytes after the first byte, by the first byte.
_WIDTHS: Final = {0xFC: 2, 0xFD: 3, 0xFE: 8}
_LEAST_WIDE: Final = 0xFB


def number_at(data: bytes, at: int) -> tuple[int, int]:
    """Return a length-encoded integer and the index after it; raise ``ValueError`` if invalid."""
    first = data[at]
    if first < _LEAST_WIDE:
        return first, at + 1
    if first not in _WIDTHS:
        raise ValueError("a length in the log is none")
    end = at + 1 + _WIDTHS[first]
    return int.from_bytes(data[at + 1 : end], "little"), end
