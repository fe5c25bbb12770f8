"""The place of a segment, which its checksums include: a copied file cannot take another's place.

Each block, index entry and sealed segment is valid only in the spool and partition in which it was
written. Files of earlier versions do not name their place.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

__all__ = ["Place"]


class Place(NamedTuple):
    """A partition of a spool."""

    #: Identity of the spool.
    spool: str
    partition: int

    def seed(self, name: str = "") -> int:
        """Return the CRC-32 with which checksums of this partition, or of one of its files, begin.

        Checksums of equal bytes differ if they begin with different numbers.
        """
        return crc32(f"{self.spool}/{self.partition}/{name}".encode())
