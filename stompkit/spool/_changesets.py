"""Changesets in several messages: where a partition can be cut without parting one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from stompkit.spool._blocks import Block, Texts
from stompkit.spool._problems import BrokenSpool
from stompkit.spool._reading import SpoolReader
from stompkit.spool._records import ORIGIN

__all__ = ["uncut"]

_PARTS: Final = "stompkit-parts"
_PART: Final = "stompkit-part"
_SEQUENCE: Final = "stompkit-sequence"
_ID: Final = "stompkit-changeset"
_MOST_DIGITS: Final = 9
#: So many segments are remembered: those that are kept are looked at each time.
_REMEMBERED: Final = 4096

#: Changeset, origin and number, as the headers have them.
_Name = tuple[str, str, str]


class _Part(NamedTuple):
    name: _Name
    number: int
    of: int


def uncut(reader: SpoolReader, partition: int, bounds: Sequence[int]) -> int:
    """Return how many segments can be removed so that no changeset loses some of its parts.

    ``bounds`` are the first ordinals of segments that follow each other from the floor on, and the
    ordinal behind the last one. A changeset whose parts are not all there is kept as well. One
    whose first part is nowhere in the partition has lost it already, and keeps nothing.
    """
    found: dict[_Name, set[int]] = {}
    begins: dict[_Name, int] = {}
    spans: list[tuple[int, int]] = []
    for number, (start, end) in enumerate(pairwise(bounds)):
        for part in _parts(reader.folder, reader.id, partition, start, end):
            begin = begins.setdefault(part.name, number)
            have = found.setdefault(part.name, set())
            have.add(part.number)
            if len(have) == part.of:
                spans.append((begin, number))
                del found[part.name], begins[part.name]
    count = len(bounds) - 1
    torn = {name for name, have in found.items() if 1 not in have} if bounds[0] else set()
    if torn:
        # Perhaps the first part has come behind the others.
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
    """What a segment has that is not written to any more; of a damaged one as far as it goes."""
    found: list[_Part] = []
    with suppress(BrokenSpool):
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
    """The messages of a block that are one of several parts."""
    rows, names, values = block.headers
    wanted = _PARTS.encode()
    data = bytes(names.data)
    at = data.find(wanted)
    last = -1
    while at >= 0:
        # Whole names only: what is found may be a piece of one, or of two.
        place = bisect_right(names.offsets, at) - 1
        if names.offsets[place : place + 2].tolist() == [at, at + len(wanted)]:
            row = bisect_right(rows, place) - 1
            if _text(values, place) != b"1" and 0 <= row < block.count and row != last:
                last = row
                yield row
        at = data.find(wanted, at + 1)


def _headers(block: Block, row: int) -> dict[str, str]:
    """The headers of one message; of several with one name the first."""
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
