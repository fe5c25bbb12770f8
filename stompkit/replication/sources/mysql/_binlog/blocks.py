"""Packets of the MySQL protocol, read from a connection by large blocks."""

from __future__ import annotations

from io import BufferedReader
from typing import Final

__all__ = ["PacketReader"]

#: Bytes before each packet: its length and its number.
_HEADER: Final = 4
#: Length of a packet that another one continues.
_MAX: Final = 0xFFFFFF
#: Number of bytes to read at once.
_BLOCK: Final = 64 * 1024


class PacketReader:
    """Successive packets of a connection. A block has many small ones."""

    def __init__(self, file: BufferedReader, number: int) -> None:
        """Start with the packet of this number; ``file`` may have buffered a part of it."""
        self._file = file
        self._number = number
        self._block = b""
        #: Index of the next packet in the block.
        self._at = 0

    def packet(self) -> bytes:
        """Return the content of the next packet, joined if the protocol has split it.

        Raises ``OSError`` if the connection is lost or not in order.
        """
        parts: list[bytes] = []
        while True:
            if len(self._block) < self._at + _HEADER:
                self._fill(_HEADER)
            begin = self._at + _HEADER
            header = int.from_bytes(self._block[self._at : begin], "little")
            size = header & _MAX
            if header >> 24 != self._number:
                raise ConnectionError(f"packet {header >> 24} follows where {self._number} is due")
            self._number = (self._number + 1) & 0xFF
            if len(self._block) < begin + size:
                self._fill(_HEADER + size)
                begin = _HEADER
            self._at = end = begin + size
            part = self._block[begin:end]
            if size > _BLOCK:
                # Do not keep the bytes of a large packet twice.
                self._block, self._at = self._block[end:], 0
            if size < _MAX and not parts:
                return part
            parts.append(part)
            if size < _MAX:
                return b"".join(parts)

    def _fill(self, size: int) -> None:
        """Read until the block begins with the next packet and has at least ``size`` bytes."""
        chunks = [self._block[self._at :]]
        missing = size - len(chunks[0])
        while missing > 0:
            # read1 returns what has arrived.
            more = self._file.read(missing) if missing > _BLOCK else self._file.read1(_BLOCK)
            if not more:
                raise ConnectionError("the server has closed the connection")
            chunks.append(more)
            missing -= len(more)
        self._block = b"".join(chunks)
        self._at = 0
