"""Spools, and the messages in them, for the tests of Spark's source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from stompkit.replication.model.frames import packets
from stompkit.spool import Record, SpoolWriter

__all__ = ["changeset", "fill", "plain", "records_of"]

#: Time of reception of the first message; the interval is a second.
BEGIN = datetime(2026, 11, 21, 12, tzinfo=UTC)
_BEGIN_US = int(BEGIN.timestamp()) * 1_000_000


def plain(first: int, end: int, *, size: int = 0) -> list[Record]:
    """Return messages ``m-FIRST`` to before ``m-END``, of at least ``size`` bytes."""
    return [
        Record(
            _BEGIN_US + number * 1_000_000,
            "/queue/orders",
            f"m-{number}",
            f"e-{number}",
            "text/plain",
            (("priority", str(number % 10)), ("stompkit-origin", f"origin-{number % 7}")),
            f"body {number}".encode().ljust(size, b"."),
        )
        for number in range(first, end)
    ]


def changeset(number: int, *, changes: int = 1, origin: str = "shop") -> Changeset:
    """Return updates of ``changes`` rows of the table orders, with ids from ``100 * number`` on."""
    return make_changeset(
        origin,
        number,
        [
            RowChange(
                schema="public",
                table="orders",
                action="update",
                key={"id": 100 * number + each},
                before={"state": "new"},
                after={"state": "paid", "note": "größer"},
            )
            for each in range(changes)
        ],
        Source(kind="postgresql", position=f"0/{number:X}", transaction=f"t-{number}"),
        id=f"changeset-{number}",
        timestamp=BEGIN,
    )


def records_of(sets: Iterable[Changeset], *, max_body_bytes: int = 1 << 20) -> Iterator[Record]:
    """Return the messages that carry changesets."""
    for each in sets:
        for packet in packets(each, max_body_bytes=max_body_bytes):
            yield Record(
                _BEGIN_US,
                "/queue/changes",
                f"m-{packet.headers['event-id']}",
                packet.headers["event-id"],
                packet.headers["content-type"],
                tuple(packet.headers.items()),
                packet.body,
            )


def fill(
    folder: Path, *groups: Sequence[Record], partitions: int = 1, segment_bytes: int = 64 << 20
) -> Path:
    """Append groups to a spool, each as a block for each partition."""
    with SpoolWriter(
        folder, partitions=partitions, segment_bytes=segment_bytes, sync=False
    ) as writer:
        for group in groups:
            writer.append(group)
    return folder
