"""The records of messages in a spool."""

from __future__ import annotations

from typing import Final, NamedTuple
from zlib import crc32

__all__ = ["ORIGIN", "Record", "partition_of"]

#: Header with the origin of a message's changes; changes of one origin are ordered.
ORIGIN: Final = "stompkit-origin"


class Record(NamedTuple):
    """A message as it was received."""

    #: Reception time in microseconds since 1970, by the receiver's clock.
    received_us: int
    destination: str
    #: Message id from the broker; empty if the broker set none.
    message_id: str
    #: Event id from the producer, which is the same when the event is sent again; empty if none.
    event_id: str
    content_type: str
    #: All headers of the MESSAGE frame in order, decoded.
    headers: tuple[tuple[str, str], ...]
    body: bytes


def partition_of(record: Record, partitions: int) -> int:
    """Return the partition of a message.

    Messages with an origin keep their order, since one origin maps to one partition. Other messages
    are distributed by destination and event id. Those of one destination without event id share one
    partition.
    """
    if partitions == 1:
        return 0
    for name, value in record.headers:
        if name == ORIGIN:
            return crc32(value.encode()) % partitions
    return crc32(f"{record.destination}\0{record.event_id}".encode()) % partitions
