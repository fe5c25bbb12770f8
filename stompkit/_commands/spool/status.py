"""Contents and readers of a spool, for ``stompkit spool status`` and ``readers``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from stompkit._commands.shared.text import aligned, duration, when
from stompkit._commands.spool.options import SpoolUsageError
from stompkit._common.spelling import amount
from stompkit.spool import DataLostError, SpoolReader, is_in_use
from stompkit.spool.readers import Reader, forget, listed

__all__ = [
    "PartitionStatus",
    "ReaderStatus",
    "forget_reader",
    "partitions_of",
    "print_readers",
    "print_status",
    "readers_of",
]

_MIB: Final = 1 << 20


class ReaderStatus(msgspec.Struct, frozen=True):
    """The progress of a reader."""

    name: str
    positions: Sequence[int]
    updated_s: float
    lag_messages: int
    lag_s: float
    """Age of the oldest unread message in seconds."""
    lost_messages: int
    """Number of messages that were removed unread."""


class PartitionStatus(msgspec.Struct, frozen=True):
    """The contents of a partition."""

    floor: int
    head: int
    octets: int
    oldest_s: float | None
    """Time of receipt of the oldest message, in seconds since 1970."""


class _Status(msgspec.Struct, frozen=True):
    """The status of a spool."""

    id: str
    is_receiving: bool | None
    """None for the spool of a server, which does not say it."""
    messages: int
    octets: int
    partitions: list[PartitionStatus]
    readers: list[ReaderStatus]


def print_status(reader: SpoolReader, *, as_json: bool) -> int:
    """Print the status; raises :class:`~stompkit.spool.SpoolError`."""
    partitions = partitions_of(reader)
    status = _Status(
        id=reader.id,
        is_receiving=is_in_use(reader.folder) if reader.access is None else None,
        messages=sum(each.head - each.floor for each in partitions),
        octets=sum(each.octets for each in partitions),
        partitions=partitions,
        readers=readers_of(reader),
    )
    if as_json:
        print(_json(status))
        return 0
    states = {True: "a process receives", False: "nobody receives", None: "served"}
    print(f"{reader.place}  {status.id}  {states[status.is_receiving]}")
    print(f"  {amount(status.messages, 'message')}, {status.octets / _MIB:,.1f} MiB")
    rows = [("partition", "floor", "head", "MiB", "oldest")]
    rows += (
        (
            str(number),
            f"{each.floor:,}",
            f"{each.head:,}",
            f"{each.octets / _MIB:,.1f}",
            "" if each.oldest_s is None else f"{duration(time.time() - each.oldest_s)} ago",
        )
        for number, each in enumerate(status.partitions)
    )
    _print_table(rows, right=(1, 2, 3))
    _print_readers(status.readers)
    return 0


def print_readers(reader: SpoolReader, *, as_json: bool) -> int:
    """Print the registered readers; raises :class:`~stompkit.spool.SpoolError`."""
    found = readers_of(reader)
    if as_json:
        print(_json(found))
    else:
        _print_readers(found)
    return 0


def forget_reader(reader: SpoolReader, name: str) -> int:
    """Remove a reader's registration; raises as :func:`print_readers`, and SpoolUsageError."""
    if reader.access is not None:
        raise SpoolUsageError(
            f"--forget: {reader.place} is a server, which only reads. Give the command the folder,"
            " on the machine of the server"
        )
    there = sorted(listed(reader.folder))
    if name not in there:
        raise SpoolUsageError(
            f"no reader is called {name}; there are: {', '.join(there) or 'none'}"
        )
    forget(reader.folder, name)
    print(f"{name}: forgotten")
    return 0


def partitions_of(reader: SpoolReader) -> list[PartitionStatus]:
    """Return the contents of the partitions of a spool."""
    return [
        PartitionStatus(
            floor=floor,
            head=head,
            octets=reader.size(number, floor, head),
            oldest_s=_received_s(reader, number, floor, head),
        )
        for number, (floor, head) in enumerate(zip(reader.floor(), reader.head(), strict=True))
    ]


def readers_of(reader: SpoolReader) -> list[ReaderStatus]:
    """Return the progress of the registered readers of a spool."""
    return [_reader_status(reader, name, found) for name, found in sorted(reader.readers().items())]


def _reader_status(reader: SpoolReader, name: str, found: Reader) -> ReaderStatus:
    now = time.time()
    lag = lost = 0
    oldest_s = now
    for number, (position, floor, head) in enumerate(
        zip(found.positions, reader.floor(), reader.head(), strict=True)
    ):
        lag += max(head - position, 0)
        lost += max(floor - position, 0)
        received_s = _received_s(reader, number, max(position, floor), head)
        oldest_s = min(oldest_s, now if received_s is None else received_s)
    return ReaderStatus(name, found.positions, found.updated_s, lag, now - oldest_s, lost)


def _received_s(reader: SpoolReader, partition: int, ordinal: int, head: int) -> float | None:
    """Return the time of receipt of a message; ``None`` if it is not available."""
    with suppress(DataLostError):
        for block in reader.blocks(partition, ordinal, min(ordinal + 1, head)):
            return block.received[0] / 1e6
    return None


def _print_readers(found: Sequence[ReaderStatus]) -> None:
    if not found:
        print("  no reader is registered: what is read is not kept for anybody")
        return
    rows = [("reader", "behind", "for", "seen")]
    for each in found:
        lost = f", {each.lost_messages:,} lost" if each.lost_messages else ""
        behind = f"{amount(each.lag_messages, 'message')}{lost}"
        since = duration(each.lag_s) if each.lag_messages else ""
        rows.append((each.name, behind, since, when(each.updated_s)))
    _print_table(rows)


def _print_table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    for line in aligned(rows, right):
        print(f"  {line}")


def _json(status: object) -> str:
    return msgspec.json.format(msgspec.json.encode(status), indent=1).decode()
