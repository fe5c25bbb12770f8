"""Transactions that MySQL has compressed, as the events that they are made of."""

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

#: Whether what is compressed can be read here.
CAN_READ: Final = zstd is not None
HOW_TO_READ: Final = "install backports.zstd, as stompkit[mysql] does"
#: The type of the event that such a transaction is.
PAYLOAD: Final = 0x28

_HEADER: Final = 19
_SIZE_AT: Final = slice(9, 13)
_POSITION_AT: Final = slice(13, 17)
# What is said of the compressed octets, in front of them.
_END: Final = 0
_COMPRESSION: Final = 2
_ZSTD: Final = 0
_AS_IT_IS: Final = 255


def events_within(event: bytes, checksum: int) -> Iterator[bytes]:
    """Yield the events of a compressed transaction one by one, as they would come on their own.

    ``event`` is that of the transaction, with its header. Each event that is made says that the
    log goes on behind the whole, and has a checksum of so many octets, which is none. Raises
    :class:`ValueError` for what is not as MySQL writes it.
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
    """What was compressed, as it was."""
    compression = _ZSTD
    at = 0
    while at < len(body) and body[at] != _END:
        begin = at + 2
        end = begin + body[at + 1]
        if body[at] == _COMPRESSION:
            # Small numbers are one octet, and larger ones follow an octet that says how long.
            compression = int.from_bytes(body[begin + (end > begin + 1) : end], "little")
        at = end
    content = BytesIO(body[at + 1 :])
    if compression == _AS_IT_IS:
        return content
    if compression != _ZSTD:
        raise ValueError(f"a transaction is compressed in a way that is not known, {compression}")
    return zstd.ZstdFile(content)
