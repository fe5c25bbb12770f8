"""Spools: segments are read or reported as damaged, and recovered after a crash.

Checksums would reject all blocks except intact ones. If the input says so, the checksum is
corrected first.
"""

from __future__ import annotations

import logging
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Final
from zlib import crc32

from fuzz._driver import main
from stompkit.spool import BrokenSpoolError, Record, SpoolError, SpoolReader, SpoolWriter
from stompkit.spool.segments.blocks import Block, DamagedBlockError, decode, encode
from stompkit.spool.segments.place import Place

__all__ = ["SEEDS", "check"]

#: Shared memory, if there is some: the files are temporary.
_SHARED: Final = Path("/dev/shm")
_BETWEEN: Final = b"STB"
#: Id of the spool in the input's blocks.
_SPOOL: Final = "0" * 32
_SEED: Final = Place(_SPOOL, 0).seed()
_OUTSIDE: Final = 12

_PLAIN: Final = Record(1_000_000, "/queue/a", "m-1", "", "text/plain", (("a", "b"),), b"body")
_OTHER: Final = Record(2_000_000, "/queue/\u00e9", "m-2", "e-2", "", (), b"\0\xff")
_ONE: Final = encode(0, [_PLAIN], _SEED)
_TWO: Final = encode(1, [_OTHER, _PLAIN], _SEED)
#: A block of an earlier version.
_FORMER: Final = b"STB1" + _ONE[4:8] + struct.pack("<I", crc32(_ONE[12:])) + _ONE[12:]
SEEDS: Final = tuple(
    bytes((flags, published)) + octets
    for flags, published in ((0, 0), (1, 1), (2, 3), (3, 0))
    for octets in (
        _ONE,
        _ONE + _TWO,
        _ONE + _TWO[:-9],
        _TWO,
        b"",
        _FORMER + _TWO,
        encode(0, [_PLAIN, _OTHER] * 3, _SEED),
    )
)


def check(data: bytes) -> None:
    """Read blocks; then open a spool that ends with them, and append to it."""
    flags, published, octets = *data[:2].ljust(2, b"\0"), data[2:]
    if flags & 1:
        octets = b"".join(_summed(each) for each in _cut(octets))
    for each in _cut(octets):
        _read(each)
    base = _SHARED if _SHARED.is_dir() else None
    logging.disable(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="stompkit-fuzz-", dir=base))
    try:
        _recover(folder, octets, published % 4 if flags & 2 else 0)
    finally:
        shutil.rmtree(folder)
        logging.disable(logging.NOTSET)


def _cut(octets: bytes) -> list[bytes]:
    before, *others = octets.split(_BETWEEN)
    return [each for each in (before, *(_BETWEEN + other for other in others)) if each]


def _summed(block: bytes) -> bytes:
    """Return a block with the right length and checksum."""
    rest = block[_OUTSIDE:]
    seed = 0 if block.startswith(b"STB1") else _SEED
    return block[:4] + struct.pack("<II", len(rest), crc32(rest, seed)) + rest


def _read(octets: bytes) -> None:
    try:
        block = decode(octets, _SEED)
    except DamagedBlockError as error:
        assert str(error)
        return
    assert block.count > 0 and block.octets <= 2 * len(octets)
    block.checksum()
    _records(block)
    assert block.slice(block.first, block.end) is block


def _records(block: Block) -> list[Record]:
    try:
        return list(block.records())
    except DamagedBlockError:  # texts are checked on demand
        return []


def _recover(folder: Path, octets: bytes, published: int) -> None:
    with SpoolWriter(folder, sync=False) as writer:
        writer.append([_PLAIN._replace(message_id=f"old-{n}") for n in range(published)])
    identity = folder / "spool.json"
    identity.write_bytes(identity.read_bytes().replace(writer.id.encode(), _SPOOL.encode()))
    segment = folder / "p0" / f"{0:020}.log"
    segment.write_bytes(octets)
    segment.with_name(segment.name + ".idx").unlink()
    try:
        with SpoolWriter(folder, sync=False) as writer:
            (before,) = writer.head
            assert before >= published
            writer.append([_PLAIN._replace(message_id="new")])
            assert writer.head == (before + 1,)
        reader = SpoolReader(folder)
        found = [each for block in reader.blocks(0, 0, before + 1) for each in _records(block)]
        assert found[-1].message_id == "new"
        reader.position_at(1.5)
    except (BrokenSpoolError, SpoolError) as problem:
        assert str(folder) in str(problem)


if __name__ == "__main__":
    main(__file__)
