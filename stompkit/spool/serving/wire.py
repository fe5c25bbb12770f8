"""Requests to the server of a spool, and its answers: HTTP/1.1 with JSON, and octets of segments.

All requests have a token. Numbers name what is read, so no text of a request is a path::

    GET /v1/spool                                  the identity and the head
    GET /v1/epochs                                 the epochs
    GET /v1/partitions/P/segments                  the segments of a partition
    GET /v1/partitions/P/segments/FIRST/FORM?start=N&end=N   octets of a segment
    GET /v1/readers                                the registered readers
    POST /v1/readers/NAME                          the progress of a reader

FORM is ``log``, ``arrow`` or ``parquet``, with ``.idx`` for the index. Answers have the header
``stompkit-spool``, the id of the spool. Octets of segments have ``stompkit-size``, the size of the
file, and their CRC-32 follows them as four octets, little-endian: they are read while they are
sent. All other answers have it in the header ``stompkit-crc32``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct

from stompkit.spool._files import Segment, part_folder

__all__ = [
    "CRC",
    "FORMS",
    "INDEX",
    "MOST_BODY",
    "SIZE",
    "SPOOL",
    "TRAILER",
    "Epochs",
    "FileRequest",
    "Position",
    "Problem",
    "ReaderRequest",
    "Readers",
    "Registered",
    "Request",
    "Segments",
    "SegmentsRequest",
    "Spool",
    "encoded",
    "parse_path",
    "segment_at",
]

#: Names of headers: checksum of the body, size of the file, and id of the spool.
CRC: Final = "stompkit-crc32"
SIZE: Final = "stompkit-size"
SPOOL: Final = "stompkit-spool"
#: CRC-32 after the octets of a segment.
TRAILER: Final = struct.Struct("<I")
#: Suffix of the index of a segment.
INDEX: Final = ".idx"
#: Formats of segments.
FORMS: Final = ("log", "arrow", "parquet")
#: Maximum size of a request's body in bytes: the position of a reader in thousands of partitions.
MOST_BODY: Final = 256 * 1024

_Ordinal = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_NUMBER: Final = "([0-9]{1,19})"
_PATH: Final = re.compile(
    rf"/v1/(?:(?P<spool>spool)|(?P<epochs>epochs)|(?P<readers>readers)|readers/(?P<reader>[A-Za-z0-9._-]{{1,100}})"
    rf"|partitions/(?P<partition>{_NUMBER})/segments"
    rf"(?:/(?P<first>{_NUMBER})/(?P<form>{'|'.join(FORMS)})(?P<index>\.idx)?)?)"
).fullmatch


class Spool(Struct, frozen=True):
    """The identity of a spool, and its head."""

    id: str
    partitions: Annotated[int, Meta(ge=1)]
    head: tuple[_Ordinal, ...]


class Epochs(Struct, frozen=True):
    """The epochs of a spool, oldest first: id and first ordinals of each."""

    epochs: list[tuple[Annotated[str, Meta(pattern="^[0-9]+-")], tuple[_Ordinal, ...]]]


class Segments(Struct, frozen=True):
    """The segments of a partition, oldest first: first ordinal and format of each."""

    segments: list[tuple[_Ordinal, str]]
    #: First ordinal that retention has left; servers of earlier versions do not know it.
    floor: _Ordinal | None = None


class Registered(Struct, frozen=True):
    """A registered reader."""

    p: tuple[_Ordinal, ...]
    #: Time of the last report, in seconds since 1970.
    updated: float


class Readers(Struct, frozen=True):
    """All registered readers."""

    readers: dict[str, Registered]


class Position(Struct, frozen=True, forbid_unknown_fields=True):
    """The progress of a reader."""

    p: tuple[_Ordinal, ...]
    #: True to keep the position of a registered reader.
    is_first: bool = False


class Problem(Struct, frozen=True):
    """An error: a code for the client, and a message for people."""

    code: str
    message: str


class SegmentsRequest(NamedTuple):
    """A request for the segments of a partition."""

    partition: int


class FileRequest(NamedTuple):
    """A request for octets of a segment or of its index."""

    partition: int
    segment: int
    form: str
    is_index: bool


class ReaderRequest(NamedTuple):
    """A request about one reader."""

    name: str


#: A request: the name of one without parameters, or its parameters.
Request = str | SegmentsRequest | FileRequest | ReaderRequest


def parse_path(path: str) -> Request | None:
    """Return the request of a path; None if there is no such path."""
    found = _PATH(path)
    if found is None:
        return None
    given: Mapping[str, str | None] = found.groupdict()
    if given["partition"] is None:
        name = given["reader"]
        return given["spool"] or given["epochs"] or given["readers"] or ReaderRequest(name or "")
    partition = int(given["partition"])
    if given["first"] is None or given["form"] is None:
        return SegmentsRequest(partition)
    return FileRequest(partition, int(given["first"]), given["form"], given["index"] is not None)


def segment_at(folder: Path, partition: int, first: int, form: str) -> Segment:
    """Return the description of a segment, made of numbers and a known form."""
    assert form in FORMS
    return Segment(first, part_folder(folder, partition) / f"{first:020}.{form}")


def encoded(content: Struct) -> bytes:
    """Return an answer or a body as JSON."""
    return msgspec.json.encode(content)
