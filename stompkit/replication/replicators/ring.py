"""Which worker a key belongs to: the same one in every process, and in every run."""

from __future__ import annotations

import hashlib
from bisect import bisect
from collections.abc import Iterable
from typing import Final

__all__ = ["HashRing"]

#: Shares of the nodes differ by about a tenth with so many points each.
_POINTS: Final = 160


class HashRing:
    """Consistent hashing by BLAKE2b: of ``n`` nodes, one more or less moves about 1/n of the keys.

    Python's own ``hash`` differs from process to process.
    """

    def __init__(self, nodes: Iterable[str], *, points: int = _POINTS) -> None:
        """Put nodes on the ring, at ``points`` places each.

        Raises ``ValueError`` where there are no nodes, or two of the same name.
        """
        names = list(nodes)
        if not names or len(set(names)) < len(names):
            raise ValueError("a ring has nodes, each with a name of its own")
        places = sorted(
            (_hash(f"{name}:{n}".encode()), name) for name in names for n in range(points)
        )
        self._places: Final = [place for place, _ in places]
        self._names: Final = [name for _, name in places]

    def node(self, octets: bytes) -> str:
        """The node that a key, as octets, belongs to."""
        return self._names[bisect(self._places, _hash(octets)) % len(self._names)]


def _hash(octets: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(octets, digest_size=8).digest(), "big")
