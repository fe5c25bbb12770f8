"""The history of a run: events in the order in which one observer saw them.

An operation is a frame that changes something, or a transaction with all its frames. It is
requested, and then done (a RECEIPT came) or refused (an ERROR with its receipt id came). An
operation without either is in doubt: it may have been applied or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

__all__ = [
    "Asked",
    "Began",
    "Closed",
    "Delivered",
    "Done",
    "Drained",
    "Ended",
    "Event",
    "Note",
    "Opened",
    "Refused",
    "Setting",
    "Staged",
    "Wrote",
    "dead_letters_of",
    "read",
    "write",
]

#: The end of a broker's process: a clean stop; or a crash, which loses its memory.
Ending = Literal["stop", "crash"]


class Setting(Struct, frozen=True, tag=True):
    """Routing of messages that are not sent to a queue; the first event."""

    #: The children of fan-out destinations.
    children: dict[str, tuple[str, ...]]
    #: The topics of durable subscriptions, by the places where their messages collect.
    topics: dict[str, str]


class Began(Struct, frozen=True, tag=True):
    """A broker answers for the first time; each life has a number."""

    life: int


class Ended(Struct, frozen=True, tag=True):
    """A broker's life has ended."""

    life: int
    how: Ending


class Opened(Struct, frozen=True, tag=True):
    """A client has connected; ``auto`` is the place that it is about to consume in that mode."""

    connection: int
    client: str
    life: int
    auto: str = ""


class Closed(Struct, frozen=True, tag=True):
    """A client has disconnected, or has lost its connection."""

    connection: int
    is_clean: bool


class Staged(Struct, frozen=True, tag=True):
    """Messages were sent in an open transaction; no consumer may see them before COMMIT."""

    connection: int
    messages: tuple[int, ...]


class Asked(Struct, frozen=True, tag=True):
    """An operation was requested: its messages with their destinations, and its acknowledgements.

    ``settles`` has the acknowledged deliveries, and ``rejects`` those of NACK. ``durable`` is the
    place of a durable subscription.
    """

    operation: int
    connection: int
    sends: tuple[tuple[int, str], ...] = ()
    settles: tuple[int, ...] = ()
    rejects: tuple[int, ...] = ()
    durable: str = ""
    is_transaction: bool = False


class Done(Struct, frozen=True, tag=True):
    """The receipt of an operation has come."""

    operation: int


class Refused(Struct, frozen=True, tag=True):
    """An operation was answered by ERROR, with this code."""

    operation: int
    code: str


class Delivered(Struct, frozen=True, tag=True):
    """A client received a message from a place: a queue or a durable subscription.

    ``count`` is the delivery count of the broker.
    """

    delivery: int
    connection: int
    place: str
    message: int
    is_redelivered: bool
    count: int
    is_auto: bool


class Drained(Struct, frozen=True, tag=True):
    """A message was in a place at the end, when no other client was connected."""

    place: str
    message: int
    is_redelivered: bool
    count: int


class Note(Struct, frozen=True, tag=True):
    """A remark for readers, such as a fault of the broker."""

    text: str


class Wrote(Struct, frozen=True, tag=True):
    """Consecutive commits of one term of a broker, as the database has recorded them."""

    epoch: int
    term: str


Event = (
    Setting
    | Began
    | Ended
    | Opened
    | Closed
    | Staged
    | Asked
    | Done
    | Refused
    | Delivered
    | Drained
    | Note
    | Wrote
)

_DECODER: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)


def dead_letters_of(place: str) -> str:
    """Return the place of the dead letters of *place*."""
    return f"/dlq/{place.split('/', 2)[2]}" if place.startswith("/queue/") else f"/dlq{place}"


def write(path: Path, events: Iterable[Struct]) -> None:
    """Write events to a file, one JSON object in a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.Encoder().encode_lines(list(events)))


def read(path: Path) -> list[Event]:
    """Read the events of a file."""
    return _DECODER.decode_lines(path.read_bytes())
