"""Reduce the size of browser screenshots without visible loss.

Chromium optimises its screenshots for speed, not for size. They have few colours. An image with at
most 256 colours gets a palette; with more, rare colours are replaced by the nearest ones. Source:
the PNG specification, third edition, https://www.w3.org/TR/png-3/.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Final

__all__ = ["comment_of", "smaller"]

_COMMENT: Final = b"Comment\0"
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_COLOURS: Final = 256
#: Number of the most common colours in the palette; the others are those farthest from them.
_COMMON: Final = 160

Colour = tuple[int, int, int]


def smaller(png: bytes, comment: str = "") -> bytes:
    """Return the same picture, of 8-bit RGB or RGBA without transparency, with a palette.

    The *comment*, in Latin-1, is stored in the file; :func:`comment_of` returns it.
    """
    width, height, pixels = _pixels(png)
    counted = Counter(pixels)
    palette, index = _palette(counted)
    octets = bytes(index[pixel] for pixel in pixels)
    rows = b"".join(b"\0" + octets[at : at + width] for at in range(0, len(octets), width))
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    return b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", header),
            *([_chunk(b"tEXt", _COMMENT + comment.encode("latin-1"))] if comment else []),
            _chunk(b"PLTE", bytes(value for colour in palette for value in colour)),
            _chunk(b"IDAT", zlib.compress(rows, 9)),
            _chunk(b"IEND", b""),
        )
    )


def comment_of(png: bytes) -> str:
    """Return the comment in a picture, or an empty text; raise ValueError if it is no PNG."""
    for kind, data in _chunks(png):
        if kind == b"tEXt" and data.startswith(_COMMENT):
            return data.removeprefix(_COMMENT).decode("latin-1")
    return ""


def _palette(counted: Counter[Colour]) -> tuple[list[Colour], dict[Colour, int]]:
    """Return the colours of a palette, and the palette index for each existing colour."""
    palette: list[Colour] = []
    #: For each colour the distance to the palette, and its nearest entry.
    nearest = dict.fromkeys(counted, (1 << 20, 0))
    common = [colour for colour, _ in counted.most_common(_COMMON)]
    while len(palette) < min(_COLOURS, len(counted)):
        # A rare colour may be important, such as a green dot.
        is_common = len(palette) < len(common)
        added = common[len(palette)] if is_common else max(nearest, key=lambda each: nearest[each])
        for colour, known in nearest.items():
            nearest[colour] = min(known, (_distance(colour, added), len(palette)))
        palette.append(added)
    return palette, {colour: number for colour, (_, number) in nearest.items()}


def _distance(one: Colour, other: Colour) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the kind and the data of each chunk; raise ValueError."""
    if not png.startswith(_SIGNATURE):
        raise ValueError("not a PNG")
    at = len(_SIGNATURE)
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += length + 12


def _pixels(png: bytes) -> tuple[int, int, list[Colour]]:
    """Return width, height and the colours in reading order; raise ValueError."""
    packed = b""
    width = height = octets = 0
    for kind, data in _chunks(png):
        if kind == b"IHDR":
            width, height, depth, colours, _, _, interlaced = struct.unpack(">IIBBBBB", data)
            if depth != 8 or colours not in (2, 6) or interlaced:
                raise ValueError("not of 8-bit RGB or RGBA")
            octets = 3 if colours == 2 else 4
        elif kind == b"IDAT":
            packed += data
    rows = _unfiltered(zlib.decompress(packed), width * octets, octets)
    return (
        width,
        height,
        [
            (row[place], row[place + 1], row[place + 2])
            for row in rows
            for place in range(0, width * octets, octets)
        ],
    )


def _unfiltered(data: bytes, width: int, step: int) -> list[bytearray]:
    """Return the unfiltered rows of ``width`` bytes, with ``step`` bytes for each pixel."""
    rows: list[bytearray] = []
    above = bytearray(width)
    for start in range(0, len(data), width + 1):
        row = bytearray(data[start + 1 : start + 1 + width])
        kind = data[start]
        for place in range(width):
            left = row[place - step] if place >= step else 0
            corner = above[place - step] if place >= step else 0
            match kind:
                case 0:
                    break
                case 1:
                    add = left
                case 2:
                    add = above[place]
                case 3:
                    add = (left + above[place]) // 2
                case _:
                    add = _paeth(left, above[place], corner)
            row[place] = (row[place] + add) & 0xFF
        rows.append(row)
        above = row
    return rows


def _paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    return min((left, above, corner), key=lambda value: abs(guess - value))
