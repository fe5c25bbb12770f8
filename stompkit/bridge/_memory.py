"""Recently forwarded messages."""

from __future__ import annotations

from collections import OrderedDict

from stompkit.bridge._headers import DeliveryKey

__all__ = ["Memory"]


class Memory:
    """Keys of the last messages that a destination has confirmed."""

    def __init__(self, most: int) -> None:
        """Start empty; keep at most *most* keys."""
        self._most = most
        self._keys: OrderedDict[DeliveryKey, None] = OrderedDict()

    def add(self, key: DeliveryKey) -> None:
        """Add a key; evict the oldest key if the limit is exceeded."""
        if key:
            self._keys[key] = None
            if len(self._keys) > self._most:
                self._keys.popitem(last=False)

    def __contains__(self, key: DeliveryKey) -> bool:
        """Return True if the key is known."""
        return key in self._keys
