"""Labels: the headers of a frame that identify its changeset and part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from stompkit.replication.model.events import FORMAT, Changeset, EventError, Source
from stompkit.replication.model.frames import CONTENT_TYPE

__all__ = ["Label", "label_of", "placeholder", "read_label"]

#: Programs that write changesets themselves may not set the content type.
_TYPES: Final = ("", CONTENT_TYPE, "application/json")
_NEEDED: Final = ("stompkit-changeset", "stompkit-origin", "stompkit-sequence")
#: Maximum number of digits: sequence numbers have 63 bits.
_MOST_DIGITS: Final = 19


@dataclass(frozen=True, slots=True)
class Label:
    """The origin, sequence number and part of a frame."""

    id: str
    origin: str
    sequence: int
    part: int = 1
    parts: int = 1

    def check(self, changeset: Changeset) -> None:
        """Raise EventError if the body is a different changeset from the headers."""
        found = (changeset.id, changeset.origin, changeset.sequence)
        if found != (self.id, self.origin, self.sequence):
            raise EventError(
                f"the headers are those of changeset {self.sequence} of {self.origin!r}, and the "
                f"body is {changeset.sequence} of {changeset.origin!r}, or has another id"
            )


def read_label(headers: Mapping[str, str]) -> Label | None:
    """Return the label of a frame, or ``None`` if only the body identifies the changeset.

    Raises EventError for headers of another kind of message.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _TYPES:
        raise EventError(f"its content-type is {headers['content-type']!r}, not {CONTENT_TYPE!r}")
    schema = headers.get("stompkit-schema", str(FORMAT))
    if not all(name in headers for name in _NEEDED):
        if schema != str(FORMAT):
            raise EventError(f"its stompkit-schema is {schema!r}, and {FORMAT} is known")
        return None
    part, parts = _number(headers, "stompkit-part", "1"), _number(headers, "stompkit-parts", "1")
    if not 0 < part <= parts:
        raise EventError(f"it is part {part} of {parts}")
    return Label(
        headers["stompkit-changeset"],
        headers["stompkit-origin"],
        _number(headers, "stompkit-sequence"),
        part,
        parts,
    )


def label_of(changeset: Changeset) -> Label:
    """Return the label of a changeset in one frame."""
    return Label(changeset.id, changeset.origin, changeset.sequence)


def placeholder(label: Label) -> Changeset:
    """Return a changeset without changes in place of one that cannot be decoded."""
    return Changeset(
        id=label.id,
        origin=label.origin,
        sequence=label.sequence,
        timestamp=datetime.now(UTC),
        changes=(),
        source=Source(kind="unreadable"),
    )


def _number(headers: Mapping[str, str], name: str, default: str = "") -> int:
    text = headers.get(name, default)
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise EventError(f"its {name} is {text!r}, which is no number")
    return int(text)
