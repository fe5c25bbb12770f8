"""Messages, and the contents of a spool."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

from stompkit.spool import Record, SpoolReader, SpoolWriter

#: Time of reception of message 0, in seconds since 1970; each later one is a second after.
BEGIN_S = 1_700_000_000


def record(
    number: int,
    *,
    destination: str = "/queue/a",
    event_id: str | None = None,
    headers: tuple[tuple[str, str], ...] = (("priority", "4"),),
    body: bytes | None = None,
) -> Record:
    return Record(
        (BEGIN_S + number) * 1_000_000,
        destination,
        f"m-{number}",
        f"e-{number}" if event_id is None else event_id,
        "text/plain",
        headers,
        b"body %d" % number if body is None else body,
    )


def several(start: int, end: int) -> list[Record]:
    return [record(number) for number in range(start, end)]


def fill(folder: Path, *sizes: int, segment_bytes: int = 64 << 20) -> list[Record]:
    """Append groups of these sizes, and return all messages."""
    made: list[Record] = []
    with SpoolWriter(folder, segment_bytes=segment_bytes) as writer:
        for size in sizes:
            group = several(len(made), len(made) + size)
            assert writer.append(group) == size
            made += group
    return made


def contents(folder: Path, partition: int = 0, start: int | None = None) -> list[Record]:
    """Return all messages of a partition, from an ordinal on."""
    reader = SpoolReader(folder)
    begin = reader.floor()[partition] if start is None else start
    return between(reader, begin, reader.head()[partition], partition)


def between(reader: SpoolReader, start: int, end: int, partition: int = 0) -> list[Record]:
    return [one for block in reader.blocks(partition, start, end) for one in block.records()]


def numbers(records: Sequence[Record]) -> list[int]:
    """Return the numbers of messages."""
    return [int(one.message_id.removeprefix("m-")) for one in records]


def logs(folder: Path, partition: int = 0) -> list[Path]:
    """Return the segments that are logs, the oldest first."""
    return sorted((folder / f"p{partition}").glob("*.log"))


def former(folder: Path) -> None:
    """Turn the logs of a spool into those of format 1, which earlier versions have written."""
    identity = folder / "spool.json"
    identity.write_bytes(identity.read_bytes().replace(b'"format":2', b'"format":1'))
    (folder / "floor.json").unlink()
    (folder / "epochs.json").unlink()
    for path in folder.glob("p*/*.log"):
        _, *blocks = path.read_bytes().split(b"STB2")
        path.write_bytes(b"".join(_former_block(each) for each in blocks))
        index = path.with_name(path.name + ".idx")
        rows = index.read_bytes()[8:]
        entries = (rows[at : at + 40] for at in range(0, len(rows), 44))
        index.write_bytes(
            b"stompidx" + b"".join(each + struct.pack("<I", crc32(each)) for each in entries)
        )


def _former_block(after_magic: bytes) -> bytes:
    rest = after_magic[8:]
    return b"STB1" + struct.pack("<II", len(rest), crc32(rest)) + rest
