"""Blocks: the messages of one partition that were appended together, by columns.

Readers create arrays from a block without examining single messages, so its parts have the Arrow
layout. All numbers are little-endian::

    magic "STB2", u32 length of the rest, u32 CRC-32 of the place and the rest
    the rest: u32 count, u64 first ordinal, then each part as u64 length, bytes, padding to 8:
        received                                          i64 for each message
        destination, message_id, event_id, content_type   texts
        headers                                           u32 row offsets, one more than messages
        names and values of headers                       texts, one for each header
        body                                              texts, but of bytes instead of UTF-8

where texts are u32 offsets, one more than there are texts, followed by the bytes of all texts. The
place is that of the partition, see :mod:`stompkit.spool.segments.place`. Blocks of earlier versions
begin with "STB1", and their CRC-32 is of the rest alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Final, NamedTuple
from zlib import crc32

from stompkit.spool.segments.records import Record

__all__ = [
    "FIXED",
    "TEXTS",
    "Block",
    "DamagedBlockError",
    "Headers",
    "Heading",
    "Texts",
    "decode",
    "encode",
]

_MAGIC: Final = b"STB2"
#: Begin of blocks of earlier versions, whose checksum does not include the place.
_MAGIC_1: Final = b"STB1"
_HEADING: Final = struct.Struct("<4sIIIQ")
#: Number of bytes of the heading that its length field does not count.
_OUTSIDE: Final = 12
_LENGTH: Final = struct.Struct("<Q")
#: Names of the parts that have one text for each message, in order.
TEXTS: Final = ("destination", "message_id", "event_id", "content_type")
#: Size in bytes of a block's heading and the reception time of its first message.
FIXED: Final = _HEADING.size + _LENGTH.size + 8
#: Maximum size in bytes of a text part: Arrow reads offsets as signed 32-bit numbers.
_MOST_OCTETS: Final = 2**31 - 1


class DamagedBlockError(ValueError):
    """The bytes are not a valid block."""


class Heading(NamedTuple):
    """The heading of a block."""

    #: Size of the whole block in bytes.
    length: int
    crc: int
    messages: int
    first: int
    #: True if the checksum includes the place.
    has_place: bool

    @classmethod
    def read(cls, octets: bytes | memoryview) -> Heading:
        """Parse the heading of a block; raises :class:`DamagedBlockError`."""
        if len(octets) < _HEADING.size:
            raise DamagedBlockError("the heading of a block is cut off")
        magic, length, crc, count, first = _HEADING.unpack_from(octets)
        if magic not in (_MAGIC, _MAGIC_1):
            raise DamagedBlockError("no block begins here")
        # The length covers all reception times, which are read without the rest.
        if count == 0 or length % 8 != 4 or length < FIXED - _OUTSIDE + 8 * (count - 1):
            raise DamagedBlockError("the heading of the block makes no sense")
        return cls(_OUTSIDE + length, crc, count, first, magic == _MAGIC)


class Texts(NamedTuple):
    """Texts or binary values: item ``i`` is ``data[offsets[i]:offsets[i + 1]]``."""

    #: Unsigned 32-bit numbers, one more than there are texts; the first need not be 0.
    offsets: memoryview
    data: memoryview

    def octets(self) -> list[bytes]:
        """Return copies of all items as bytes."""
        offsets, data = self.offsets, self.data
        return [bytes(data[start:end]) for start, end in pairwise(offsets)]

    def strings(self) -> list[str]:
        """Return all items decoded; raises :class:`DamagedBlockError` for invalid UTF-8."""
        offsets = self.offsets.tolist()
        first, last = offsets[0], offsets[-1]
        try:
            text = str(self.data[first:last], "utf-8")
            if len(text) == last - first:
                return [text[start - first : end - first] for start, end in pairwise(offsets)]
            return [octets.decode() for octets in self.octets()]
        except UnicodeDecodeError as error:
            raise DamagedBlockError(f"a text of the block is no UTF-8: {error}") from None


class Headers(NamedTuple):
    """Headers: those of message ``i`` are ``rows[i]`` to ``rows[i + 1]`` of names and values."""

    rows: memoryview
    names: Texts
    values: Texts


class Block:
    """Consecutive messages of one partition as columns, which are not copied."""

    __slots__ = ("_texts", "body", "count", "first", "headers", "received")

    def __init__(
        self,
        first: int,
        received: memoryview,
        texts: Sequence[Texts],
        headers: Headers,
        body: Texts,
    ) -> None:
        """Create a block from columns; ``texts`` are in the order of :data:`TEXTS`."""
        self.first: Final = first
        self.count: Final = len(received)
        #: Reception times in microseconds since 1970, as 64-bit numbers.
        self.received: Final = received
        self._texts: Final = texts
        self.headers: Final = headers
        self.body: Final = body

    @property
    def end(self) -> int:
        """The ordinal after the last message."""
        return self.first + self.count

    def text(self, name: str) -> Texts:
        """Return the column of a name in :data:`TEXTS`; raises ValueError for any other name."""
        return self._texts[TEXTS.index(name)]

    @property
    def octets(self) -> int:
        """Approximate size in bytes, without headings and padding."""
        return sum(column.nbytes for column in self._columns())

    def checksum(self) -> int:
        """Return the CRC-32 of the columns."""
        crc = 0
        for column in self._columns():
            crc = crc32(column, crc)
        return crc

    def slice(self, start: int, end: int) -> Block:
        """Return the messages with ordinals from ``start`` up to but not including ``end``."""
        low = min(max(start - self.first, 0), self.count)
        high = max(min(end - self.first, self.count), low)
        if (low, high) == (0, self.count):
            return self
        headers = self.headers
        return Block(
            self.first + low,
            self.received[low:high],
            [_cut(texts, low, high) for texts in self._texts],
            Headers(headers.rows[low : high + 1], headers.names, headers.values),
            _cut(self.body, low, high),
        )

    def moved(self, first: int) -> Block:
        """Return the same messages with ordinals that start at ``first``."""
        return Block(first, self.received, self._texts, self.headers, self.body)

    def _columns(self) -> Iterator[memoryview]:
        yield self.received
        yield self.headers.rows
        for texts in (*self._texts, self.headers.names, self.headers.values, self.body):
            yield texts.offsets
            yield texts.data

    def records(self) -> Iterator[Record]:
        """Yield the messages one by one, which is slow."""
        rows = self.headers.rows
        pairs = tuple(zip(self.headers.names.strings(), self.headers.values.strings(), strict=True))
        headers = (pairs[start:end] for start, end in pairwise(rows))
        texts = (column.strings() for column in self._texts)
        columns = zip(self.received, *texts, headers, self.body.octets(), strict=True)
        return map(Record._make, columns)


def encode(first: int, records: Sequence[Record], seed: int) -> bytes:
    """Return the encoded block; raises ValueError for no message or an excessive size.

    ``seed`` is that of the partition, see :class:`~stompkit.spool.segments.place.Place`.
    """
    if not records:
        raise ValueError("a block has at least one message")
    received, *texts, headers, bodies = zip(*records, strict=True)
    count = len(records)
    rows = _offsets(map(len, headers), count)
    pairs = list(chain.from_iterable(headers))
    names, values = zip(*pairs, strict=True) if pairs else ((), ())
    parts = [struct.pack("<IQ", count, first)]
    _add(parts, struct.pack(f"<{count}q", *received))
    for column in (*texts, rows, names, values):
        _add(parts, column if isinstance(column, bytes) else _of_strings(column))
    _add(parts, _of_octets(bodies))
    length = sum(map(len, parts))
    if length > _MOST_OCTETS:
        raise ValueError(f"{length} octets of messages are too much for one block")
    crc = seed
    for part in parts:
        crc = crc32(part, crc)
    return b"".join((struct.pack("<4sII", _MAGIC, length, crc), *parts))


def decode(octets: bytes | memoryview, seed: int) -> Block:
    """Return the decoded block of a partition with this seed.

    Raises :class:`DamagedBlockError` for invalid bytes, and for a block of another partition.
    """
    view = memoryview(octets)
    heading = Heading.read(view)
    if heading.length != len(view):
        raise DamagedBlockError(f"the block has {len(view)} octets instead of {heading.length}")
    if crc32(view[_OUTSIDE:], seed if heading.has_place else 0) != heading.crc:
        reason = ", or the block is of another partition or spool" if heading.has_place else ""
        raise DamagedBlockError(f"the checksum of the block does not match{reason}")
    try:
        return _block(view, heading)
    except (struct.error, StopIteration, IndexError, TypeError, ValueError):
        # The checksum is correct, so no writer of this format produced the block.
        raise DamagedBlockError("the parts of the block do not fit together") from None


def _block(view: memoryview, heading: Heading) -> Block:
    parts = _parts(view)
    count = heading.messages
    received = next(parts).cast("q")
    if len(received) != count:
        raise ValueError("another number of times than of messages")
    texts = [_texts(next(parts), count) for _ in TEXTS]
    rows = next(parts).cast("I")
    if len(rows) != count + 1:
        raise ValueError("another number of rows of headers than of messages")
    names = _texts(next(parts), rows[count])
    values = _texts(next(parts), rows[count])
    return Block(
        heading.first, received, texts, Headers(rows, names, values), _texts(next(parts), count)
    )


def _cut(texts: Texts, low: int, high: int) -> Texts:
    return Texts(texts.offsets[low : high + 1], texts.data)


def _add(parts: list[bytes], octets: bytes) -> None:
    parts += (_LENGTH.pack(len(octets)), octets, bytes(-len(octets) % 8))


def _offsets(lengths: Iterable[int], count: int) -> bytes:
    try:
        return struct.pack(f"<{count + 1}I", *accumulate(lengths, initial=0))
    except struct.error:
        raise ValueError("too many octets of messages for one block") from None


def _of_strings(texts: Sequence[str]) -> bytes:
    together = "".join(texts)
    if together.isascii():
        return _offsets(map(len, texts), len(texts)) + together.encode()
    return _of_octets([text.encode() for text in texts])


def _of_octets(items: Sequence[bytes]) -> bytes:
    return b"".join((_offsets(map(len, items), len(items)), *items))


def _parts(view: memoryview) -> Iterator[memoryview]:
    at = _HEADING.size
    while at < len(view):
        (length,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        yield view[at : at + length]
        at += length + -length % 8


def _texts(part: memoryview, count: int) -> Texts:
    end = 4 * (count + 1)
    offsets, data = part[:end].cast("I"), part[end:]
    if len(offsets) != count + 1 or offsets[count] != len(data):
        raise ValueError("texts that are not as long as their offsets say")
    return Texts(offsets, data)
