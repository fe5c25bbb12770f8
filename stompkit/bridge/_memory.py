"""What was forwarded lately."""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["Memory"]


class Memory:
    """The ids of the last messages that a destination has confirmed."""

    def __init__(self, most: int) -> None:
        """Remember so many."""
        self._most = most
        self._ids: OrderedDict[str, None] = OrderedDict()

    def add(self, name: str) -> None:
        """Remember an id, and forget the oldest where there are too many."""
        if name:
            self._ids[name] = None
            if len(self._ids) > self._most:
                self._ids.popitem(last=False)

    def __contains__(self, name: str) -> bool:
        """Whether an id is among them."""
        return name in self._ids
