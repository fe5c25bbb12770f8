"""What was seen in a run: events in the order in which they were seen, by one observer.

An operation is a frame that changes something, or that and all that is in its transaction. It is
asked for, and may be done, as its receipt tells, or refused, as an ERROR with its receipt's name
tells. One of which neither is heard is in doubt: it may have been done or not.
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
    "dead_letters_of",
    "read",
    "write",
]

#: How a broker's process ended: in good order; or in any other way, its memory lost.
Ending = Literal["stop", "crash"]


class Setting(Struct, frozen=True, tag=True):
    """Where messages go that are not sent to a queue; the first event."""

    #: The children of fan-out destinations.
    children: dict[str, tuple[str, ...]]
    #: The topics of durable subscriptions, by the places where these collect.
    topics: dict[str, str]


class Began(Struct, frozen=True, tag=True):
    """A broker has begun to answer; each life has a number."""

    life: int


class Ended(Struct, frozen=True, tag=True):
    """A broker's life has ended."""

    life: int
    how: Ending


class Opened(Struct, frozen=True, tag=True):
    """A client was let in; ``auto`` is the place that it is about to read in that mode."""

    connection: int
    client: str
    life: int
    auto: str = ""


class Closed(Struct, frozen=True, tag=True):
    """A client has left, or has lost its connection."""

    connection: int
    is_clean: bool


class Staged(Struct, frozen=True, tag=True):
    """Messages were sent in a transaction that is open; nobody is to see them before COMMIT."""

    connection: int
    messages: tuple[int, ...]


class Asked(Struct, frozen=True, tag=True):
    """An operation was asked for: its messages with their destinations, what it acknowledges.

    ``settles`` has the deliveries that it acknowledges, and ``rejects`` those of NACK. ``durable``
    is the place of a durable subscription.
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
    """An operation was answered by ERROR, with the code that it has."""

    operation: int
    code: str


class Delivered(Struct, frozen=True, tag=True):
    """A client was given a message out of a place: a queue, or what is durably subscribed to.

    ``count`` says for how many times it has been delivered, as the broker counts.
    """

    delivery: int
    connection: int
    place: str
    message: int
    is_redelivered: bool
    count: int
    is_auto: bool


class Drained(Struct, frozen=True, tag=True):
    """A message was there in the end, when nobody else was."""

    place: str
    message: int
    is_redelivered: bool
    count: int


class Note(Struct, frozen=True, tag=True):
    """What else is worth knowing, for a reader: what was done to the broker."""

    text: str


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
)

_DECODER: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)


def dead_letters_of(place: str) -> str:
    """Where what is rejected goes."""
    return f"/dlq/{place.split('/', 2)[2]}" if place.startswith("/queue/") else f"/dlq{place}"


def write(path: Path, events: Iterable[Struct]) -> None:
    """Write events to a file, one JSON object in a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.Encoder().encode_lines(list(events)))


def read(path: Path) -> list[Event]:
    """Read what was written."""
    return _DECODER.decode_lines(path.read_bytes())
