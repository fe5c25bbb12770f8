"""Changesets in several messages: the points where a partition can be cut without splitting one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from stompkit.spool._errors import BrokenSpoolError
from stompkit.spool._reading import SpoolReader
from stompkit.spool.segments.blocks import Block, Texts
from stompkit.spool.segments.records import ORIGIN

__all__ = ["uncut"]

_PARTS: Final = "stompkit-parts"
_PART: Final = "stompkit-part"
_SEQUENCE: Final = "stompkit-sequence"
_ID: Final = "stompkit-changeset"
_MOST_DIGITS: Final = 9
#: Number of cached segments: retained segments are examined each time.
_REMEMBERED: Final = 4096

#: Changeset, origin and number, as in the headers.
_Name = tuple[str, str, str]


class _Part(NamedTuple):
    name: _Name
    number: int
    of: int


def uncut(reader: SpoolReader, partition: int, bounds: Sequence[int]) -> int:
    """Return how many segments can be removed without splitting a changeset.

    ``bounds`` are the first ordinals of consecutive segments from the floor on, and the ordinal
    after the last one. An incomplete changeset is kept as well. A changeset without its first part
    in the partition is already split, and keeps no segment.
    """
    #: Parts of incomplete changesets by number of parts: a publisher that is restarted may split a
    #: changeset in another way.
    found: dict[_Name, dict[int, set[int]]] = {}
    begins: dict[_Name, int] = {}
    wholes: set[_Name] = set()
    spans: list[tuple[int, int]] = []
    for number, (start, end) in enumerate(pairwise(bounds)):
        for part in _parts(reader.folder, reader.id, partition, start, end):
            if part.name in wholes:
                continue
            begin = begins.setdefault(part.name, number)
            have = found.setdefault(part.name, {}).setdefault(part.of, set())
            have.add(part.number)
            if len(have) == part.of:
                spans.append((begin, number))
                wholes.add(part.name)
                del found[part.name], begins[part.name]
    count = len(bounds) - 1
    torn: set[_Name] = set()
    if bounds[0]:
        torn = {name for name, copies in found.items() if all(1 not in n for n in copies.values())}
    if torn:
        # The first part may have arrived after the others.
        torn -= {
            part.name
            for part in _read(reader, partition, bounds[-1], reader.head()[partition])
            if part.number == 1
        }
    spans += [(begin, count) for name, begin in begins.items() if name not in torn]
    while begun := [begin for begin, last in spans if begin < count <= last]:
        count = min(begun)
    return count


@lru_cache(_REMEMBERED)
def _parts(folder: Path, spool: str, partition: int, start: int, end: int) -> tuple[_Part, ...]:
    """Return the changeset parts in a closed segment; of a damaged one, the readable parts."""
    found: list[_Part] = []
    with suppress(BrokenSpoolError):
        found.extend(_read(SpoolReader(folder, expect_id=spool), partition, start, end))
    return tuple(found)


def _read(reader: SpoolReader, partition: int, start: int, end: int) -> Iterator[_Part]:
    for block in reader.blocks(partition, start, end):
        for row in _rows(block):
            headers = _headers(block, row)
            number, of = headers.get(_PART, "1"), headers[_PARTS]
            if _is_number(number) and _is_number(of) and 1 <= int(number) <= int(of):
                changeset, origin, sequence = (
                    headers.get(each, "") for each in (_ID, ORIGIN, _SEQUENCE)
                )
                yield _Part((changeset, origin, sequence), int(number), int(of))


def _rows(block: Block) -> Iterator[int]:
    """Yield the rows of a block that are one of several parts."""
    rows, names, values = block.headers
    wanted = _PARTS.encode()
    data = bytes(names.data)
    at = data.find(wanted)
    last = -1
    while at >= 0:
        # Match whole names only: a match may be part of one name, or span two.
        place = bisect_right(names.offsets, at) - 1
        if names.offsets[place : place + 2].tolist() == [at, at + len(wanted)]:
            row = bisect_right(rows, place) - 1
            if _text(values, place) != b"1" and 0 <= row < block.count and row != last:
                last = row
                yield row
        at = data.find(wanted, at + 1)


def _headers(block: Block, row: int) -> dict[str, str]:
    """Return the headers of one message; for a repeated name, the first value."""
    rows, names, values = block.headers
    found: dict[str, str] = {}
    for place in range(rows[row], rows[row + 1]):
        name, value = (str(_text(each, place), "utf-8", "replace") for each in (names, values))
        found.setdefault(name, value)
    return found


def _text(texts: Texts, place: int) -> bytes:
    return bytes(texts.data[texts.offsets[place] : texts.offsets[place + 1]])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
