"""Changesets as STOMP frames: one frame each, or several if a transaction is large."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from stompkit.replication.model.events import (
    FORMAT,
    Changeset,
    EncodedChangeset,
    EventError,
    decode,
    encode_parts,
)

__all__ = ["CONTENT_TYPE", "MAX_BODY_BYTES", "Packet", "Reassembler", "packets"]

CONTENT_TYPE: Final = "application/vnd.stompkit.changeset+json"
#: Well below the default limit of every broker: RabbitMQ's limit for a whole frame is 4 MiB.
MAX_BODY_BYTES: Final = 1024 * 1024


class Packet(msgspec.Struct, frozen=True, gc=False):
    """Content of one SEND frame, without its destination."""

    headers: dict[str, str]
    body: bytes


def packets(
    changeset: Changeset | EncodedChangeset, *, max_body_bytes: int = MAX_BODY_BYTES
) -> Iterator[Packet]:
    """Split a changeset into frames of at most ``max_body_bytes``; a single change may be larger.

    The headers make the body's metadata available without parsing: ``stompkit-schema`` (the
    format), ``stompkit-changeset``, ``stompkit-origin``, ``stompkit-sequence``, ``stompkit-part``
    and ``stompkit-parts`` (from 1), ``persistent:true``. ``event-id`` is the same each time this
    part is sent, and another one if the changeset is split into another number of parts.
    """
    bodies = encode_parts(changeset, max_body_bytes)
    of = f"/{len(bodies)}" if len(bodies) > 1 else ""
    for number, each in enumerate(bodies, 1):
        yield Packet(
            {
                "content-type": CONTENT_TYPE,
                "stompkit-schema": str(FORMAT),
                "stompkit-changeset": changeset.id,
                "stompkit-origin": changeset.origin,
                "stompkit-sequence": str(changeset.sequence),
                "stompkit-part": str(number),
                "stompkit-parts": str(len(bodies)),
                "event-id": f"{changeset.id}.{number}{of}",
                "persistent": "true",
            },
            each,
        )


@dataclass(slots=True)
class _Partial:
    """A changeset of which some parts have arrived."""

    parts: int
    found: dict[int, Changeset] = field(default_factory=dict)
    size: int = 0


class Reassembler:
    """Reassembles changesets; parts may arrive in any order, and more than once."""

    def __init__(self, *, max_bytes: int = 256 * 1024 * 1024) -> None:
        """Start empty; ``max_bytes`` limits the total size of incomplete changesets."""
        self._max_bytes = max_bytes
        self._size = 0
        self._waiting: OrderedDict[str, _Partial] = OrderedDict()

    @property
    def waiting(self) -> list[str]:
        """Ids of incomplete changesets, oldest first."""
        return list(self._waiting)

    def add(self, headers: Mapping[str, str], body: bytes) -> Changeset | None:
        """Add a frame; return the changeset that it completes, or None.

        Raises :class:`~stompkit.replication.EventError` for a frame that is not part of a
        changeset, and if incomplete changesets exceed ``max_bytes``.
        """
        changeset = decode(body)
        number, parts = _number(headers, "stompkit-part"), _number(headers, "stompkit-parts")
        if number > parts:
            raise EventError(f"part {number} of {parts}")
        if parts == 1:
            return changeset
        partial = self._waiting.setdefault(changeset.id, _Partial(parts))
        if partial.parts != parts:
            raise EventError(
                f"changeset {changeset.id} had {partial.parts} parts, and has {parts} now"
            )
        if number not in partial.found:
            if self._size + len(body) > self._max_bytes:
                raise EventError(
                    f"parts of {len(self._waiting)} changesets that are not whole take more than "
                    f"{self._max_bytes} octets"
                )
            partial.found[number] = changeset
            partial.size += len(body)
            self._size += len(body)
        if len(partial.found) < parts:
            return None
        self.forget(changeset.id)
        changes = [change for n in range(1, parts + 1) for change in partial.found[n].changes]
        return msgspec.structs.replace(changeset, changes=tuple(changes))

    def forget(self, changeset_id: str) -> None:
        """Drop the parts of a changeset that will not be completed."""
        partial = self._waiting.pop(changeset_id, None)
        if partial is not None:
            self._size -= partial.size


def _number(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name, "1")
    # Check the length first: int() raises another error for thousands of digits.
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0):
        raise EventError(f"the header {name} is {text[:20]!r}, which is no number of a part")
    return int(text)
