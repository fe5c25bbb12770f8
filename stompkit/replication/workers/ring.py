"""Assignment of keys to workers: the same in every process, and in every run."""

from __future__ import annotations

import hashlib
from bisect import bisect
from collections.abc import Iterable
from typing import Final

__all__ = ["HashRing"]

#: Number of points for each node; the shares of the nodes then differ by about a tenth.
_POINTS: Final = 160


class HashRing:
    """Consistent hashing by BLAKE2b: a node more or less of ``n`` moves about 1/n of the keys.

    Python's own ``hash`` differs between processes.
    """

    def __init__(self, nodes: Iterable[str], *, points: int = _POINTS) -> None:
        """Place nodes on the ring, at ``points`` points each.

        Raises ``ValueError`` if there are no nodes, or two of the same name.
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
        """Return the node of a key, given as bytes."""
        return self._names[bisect(self._places, _hash(octets)) % len(self._names)]


def _hash(octets: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(octets, digest_size=8).digest(), "big")
