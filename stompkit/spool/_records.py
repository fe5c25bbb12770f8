"""What a spool keeps of a message."""

from __future__ import annotations

from typing import Final, NamedTuple
from zlib import crc32

__all__ = ["ORIGIN", "Record", "partition_of"]

#: The header that names whose changes a message has, which have an order among themselves.
ORIGIN: Final = "stompkit-origin"


class Record(NamedTuple):
    """A message as it was received."""

    #: Microseconds since 1970, by the receiver's clock.
    received_us: int
    destination: str
    #: Given by the broker; empty where it gave none.
    message_id: str
    #: Given by whoever made the event: the same when it is sent again. Empty where there is none.
    event_id: str
    content_type: str
    #: All headers of the MESSAGE frame in their order, decoded.
    headers: tuple[tuple[str, str], ...]
    body: bytes


def partition_of(record: Record, partitions: int) -> int:
    """The partition that a message belongs to.

    Messages that name their origin keep their order, as all of one origin are in one partition;
    all others are spread by destination and event id, so that those of one destination which have
    no event id are together.
    """
    if partitions == 1:
        return 0
    for name, value in record.headers:
        if name == ORIGIN:
            return crc32(value.encode()) % partitions
    return crc32(f"{record.destination}\0{record.event_id}".encode()) % partitions
