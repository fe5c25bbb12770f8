"""Messages, and the contents of a spool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
