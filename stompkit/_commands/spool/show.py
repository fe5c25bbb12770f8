"""Output and verification of a spool's messages, for ``stompkit spool show`` and ``verify``."""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from stompkit._commands.spool.options import SpoolUsageError
from stompkit._common.spelling import amount
from stompkit._common.text import shown
from stompkit.spool import BrokenSpoolError, Record, SpoolReader

__all__ = ["show", "verify"]

#: Number of bytes shown of a binary body.
_SHOWN: Final = 64
#: Number of messages between progress updates.
_REPORT_EVERY: Final = 100_000


def show(
    reader: SpoolReader, partition: int | None, start: int | None, end: int | None, *, as_json: bool
) -> int:
    """Print messages of one partition or all; without a range, all kept messages.

    Raises :class:`SpoolUsageError` and :class:`~stompkit.spool.SpoolError`.
    """
    if partition is not None and not 0 <= partition < reader.partitions:
        raise SpoolUsageError(
            f"--partition: there are {amount(reader.partitions, 'partition')}, from 0"
        )
    for number in range(reader.partitions) if partition is None else [partition]:
        floor, head = reader.floor()[number], reader.head()[number]
        first = floor if start is None else start
        last = head if end is None else min(end, head)
        for ordinal, record in _records(reader, number, first, last):
            line = _as_json if as_json else _as_text
            print(line(number, ordinal, record))
    return 0


def _records(
    reader: SpoolReader, partition: int, start: int, end: int
) -> Iterator[tuple[int, Record]]:
    for block in reader.blocks(partition, start, end):
        yield from enumerate(block.records(), block.first)


def _as_text(partition: int, ordinal: int, record: Record) -> str:
    received = datetime.fromtimestamp(record.received_us / 1e6, UTC)
    name = record.event_id or record.message_id
    lines = [
        f"{partition}:{ordinal}  {received.isoformat(' ', 'milliseconds')[:-6]}"
        f"  {shown(record.destination)}  {shown(name)}"
    ]
    lines += (f"  {shown(each)}:{shown(value)}" for each, value in record.headers)
    try:
        body = shown(record.body.decode())
    except UnicodeDecodeError:
        more = "..." if len(record.body) > _SHOWN else ""
        body = f"{amount(len(record.body), 'octet')}: {record.body[:_SHOWN].hex(' ', 4)}{more}"
    return "\n".join([*lines, f"  {body}", ""])


def _as_json(partition: int, ordinal: int, record: Record) -> str:
    fields = {
        "partition": partition,
        "ordinal": ordinal,
        "received": datetime.fromtimestamp(record.received_us / 1e6, UTC),
        "destination": record.destination,
        "message_id": record.message_id,
        "event_id": record.event_id,
        "content_type": record.content_type,
        "headers": dict(record.headers),
    }
    try:
        fields["body"] = record.body.decode()
    except UnicodeDecodeError:
        fields["body_base64"] = b64encode(record.body).decode()
    return msgspec.json.encode(fields).decode()


def verify(reader: SpoolReader) -> int:
    """Read everything to verify each checksum; prints all damage, and returns 1 if there is any."""
    faults = 0
    total = 0
    for partition in range(reader.partitions):
        start, head = reader.floor()[partition], reader.head()[partition]
        while start < head:
            try:
                for block in reader.blocks(partition, start, head):
                    if total // _REPORT_EVERY < (total + block.count) // _REPORT_EVERY:
                        _progress(total)
                    total += block.count
                    start = block.end
            except BrokenSpoolError as error:
                lost, start = start, reader.after_damage(partition, start, head)
                _progress(None)
                print(f"partition {partition}: ordinals {lost} to {start - 1}: {error}")
                faults += 1
    _progress(None)
    if not faults:
        print(f"{reader.place}: {amount(total, 'message')}: OK")
    return 1 if faults else 0


def _progress(total: int | None) -> None:
    """Show the number of read messages on a terminal; clears it at the end."""
    if sys.stderr.isatty():
        text = "" if total is None else f"{total:,} messages"
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
