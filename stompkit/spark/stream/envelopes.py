"""Changesets in the bodies of messages; the values of rows remain JSON."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stompkit.replication.model.events import FORMAT, Action, EventError, decode
from stompkit.spark.stream.headers import as_array
from stompkit.spool import Texts

__all__ = ["NULL", "Change", "Envelope", "Source", "read_envelope", "read_envelopes"]

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Format = Annotated[int, msgspec.Meta(ge=FORMAT, le=FORMAT)]
#: Value of a row image that is not included.
NULL: Final = msgspec.Raw(b"null")


class Change(msgspec.Struct, gc=False):
    """A change whose values remain JSON."""

    table: str
    action: Action
    key: msgspec.Raw
    before: msgspec.Raw = NULL
    after: msgspec.Raw = NULL
    old_key: msgspec.Raw = NULL
    schema: str = ""


class Source(msgspec.Struct, gc=False):
    """Origin of a changeset, with the fields that have columns."""

    kind: str
    position: str = ""
    transaction: str = ""
    is_snapshot: bool = False


class Envelope(msgspec.Struct, gc=False):
    """A changeset, or a part of one."""

    format: _Format
    id: str
    origin: str
    sequence: _Int64
    #: Text, since many times are converted together.
    timestamp: str
    source: Source
    changes: list[Change]


_DECODER: Final = msgspec.json.Decoder(Envelope)
_NOT_DECODED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_OPENING, _CLOSING = b"{}"


def read_envelope(body: memoryview) -> Envelope:
    """Parse the JSON of a changeset, but not its values.

    Raises :class:`~stompkit.replication.model.events.EventError`.
    """
    try:
        return _DECODER.decode(body)
    except _NOT_DECODED as error:
        reason = str(error)
    # The full parser reports the cause best, for example a newer format.
    decode(bytes(body))
    raise EventError(f"this is no changeset: {reason}")


def read_envelopes(bodies: Texts) -> list[Envelope] | None:
    """Parse all bodies of a block together, which is faster for small ones.

    Returns None if a body cannot be parsed that way; :func:`read_envelope` then determines which.
    """
    offsets = np.frombuffer(bodies.offsets, np.uint32)
    data = np.frombuffer(bodies.data, np.uint8)
    firsts, ends = offsets[:-1], offsets[1:]
    # A raw line break occurs in no JSON string. So each body contains as many documents as it would
    # alone, which is one if there are no more documents than bodies.
    if (
        not (firsts < ends).all()
        or (data[firsts] != _OPENING).any()
        or (data[ends - 1] != _CLOSING).any()
    ):
        return None
    lines = pa.ListArray.from_arrays(
        pa.array([0, len(firsts)], pa.int32()), as_array(bodies, pa.binary())
    )
    try:
        found = _DECODER.decode_lines(pc.binary_join(lines, b"\n")[0].as_buffer())
    except _NOT_DECODED:
        return None
    return found if len(found) == len(firsts) else None
