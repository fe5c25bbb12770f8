"""Recently forwarded messages."""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["Memory"]


class Memory:
    """Ids of the last messages that a destination has confirmed."""

    def __init__(self, most: int) -> None:
        """Start empty; keep at most *most* ids."""
        self._most = most
        self._ids: OrderedDict[str, None] = OrderedDict()

    def add(self, name: str) -> None:
        """Add an id; evict the oldest id if the limit is exceeded."""
        if name:
            self._ids[name] = None
            if len(self._ids) > self._most:
                self._ids.popitem(last=False)

    def __contains__(self, name: str) -> bool:
        """Return True if the id is known."""
        return name in self._ids
