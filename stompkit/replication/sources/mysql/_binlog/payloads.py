"""Compressed transactions of MySQL, decompressed to their events."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import BufferedIOBase, BytesIO
from typing import Final

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    try:
        from backports import zstd
    except ImportError:
        zstd = None  # type: ignore[assignment]

__all__ = ["CAN_READ", "HOW_TO_READ", "PAYLOAD", "events_within"]

#: True if compressed transactions can be read: zstd is installed.
CAN_READ: Final = zstd is not None
HOW_TO_READ: Final = "install backports.zstd, as stompkit[mysql] does"
#: Type of the event with a compressed transaction.
PAYLOAD: Final = 0x28

_HEADER: Final = 19
_SIZE_AT: Final = slice(9, 13)
_POSITION_AT: Final = slice(13, 17)
# Types of the header fields before the compressed bytes.
_END: Final = 0
_COMPRESSION: Final = 2
_ZSTD: Final = 0
_AS_IT_IS: Final = 255


def events_within(event: bytes, checksum: int) -> Iterator[bytes]:
    """Yield the events of a compressed transaction as uncompressed events.

    ``event`` is that of the transaction, with its header. Each yielded event has the end position
    of the whole transaction, and a dummy checksum of that many bytes. Raises :class:`ValueError`
    for an invalid event.
    """
    size = int.from_bytes(event[_SIZE_AT], "little")
    with _opened(event[_HEADER : size - checksum]) as stream:
        while header := stream.read(_HEADER):
            length = int.from_bytes(header[_SIZE_AT], "little")
            body = stream.read(length - _HEADER) if length >= _HEADER else b""
            if len(header) + len(body) != length:
                raise ValueError("a compressed transaction ends within an event")
            made = bytearray(header)
            made[_SIZE_AT] = (length + checksum).to_bytes(4, "little")
            made[_POSITION_AT] = event[_POSITION_AT]
            yield bytes(made) + body + bytes(checksum)


def _opened(body: bytes) -> BufferedIOBase:
    """Return the decompressed contents."""
    compression = _ZSTD
    at = 0
    while at < len(body) and body[at] != _END:
        begin = at + 2
        end = begin + body[at + 1]
        if body[at] == _COMPRESSION:
            # Small numbers take one byte; larger ones follow a byte with their length.
            compression = int.from_bytes(body[begin + (end > begin + 1) : end], "little")
        at = end
    content = BytesIO(body[at + 1 :])
    if compression == _AS_IT_IS:
        return content
    if compression != _ZSTD:
        raise ValueError(f"a transaction is compressed in a way that is not known, {compression}")
    return zstd.ZstdFile(content)
