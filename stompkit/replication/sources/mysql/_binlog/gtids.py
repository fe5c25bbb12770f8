"""Sets of MySQL's GTIDs: the transactions that a reader has read."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["GtidSet"]

_NUMBERS: Final = re.compile(r"(\d+)(?:-(\d+))?")


class GtidSet:
    """GTIDs by their sources, and by their tags: ``UUID:1-5:7,UUID:TAG:1-3``."""

    def __init__(self, text: str) -> None:
        """Parse the server's text."""
        self._intervals: dict[str, list[list[int]]] = {}
        for part in text.split(","):
            source, *words = part.strip().lower().split(":")
            name = source
            for word in words:
                found = _NUMBERS.fullmatch(word)
                if found is None:
                    name = f"{source}:{word}"
                    continue
                first = int(found[1])
                self._intervals.setdefault(name, []).append([first, int(found[2] or first)])

    def __str__(self) -> str:
        """Return the text for a server."""
        return ",".join(
            f"{name}:{':'.join(f'{first}-{last}' for first, last in intervals)}"
            for name, intervals in sorted(self._intervals.items())
        )

    def add(self, gtid: str) -> None:
        """Add a transaction."""
        name, _, text = gtid.lower().rpartition(":")
        number = int(text)
        intervals = self._intervals.setdefault(name, [])
        if intervals and intervals[-1][1] == number - 1:
            intervals[-1][1] = number
            return
        # The GTIDs of a replica are not in numerical order.
        merged: list[list[int]] = []
        for first, last in sorted([*intervals, [number, number]]):
            if merged and first <= merged[-1][1] + 1:
                merged[-1][1] = max(merged[-1][1], last)
            else:
                merged.append([first, last])
        self._intervals[name] = merged
