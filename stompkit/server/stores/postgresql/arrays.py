"""Arrays as PostgreSQL transfers them in binary: a batch of rows takes one of them a column."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, pack
from typing import Final

from psycopg import Connection
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

__all__ = ["Numbers", "Octets", "register"]

#: Numbers of the types in PostgreSQL's catalogue; they never change.
_INT8: Final = 20
_INT8_ARRAY: Final = 1016
_BYTEA: Final = 17
_BYTEA_ARRAY: Final = 1001

#: Dimensions, null flag and type; then, for the one dimension, its length and its first index.
_HEAD: Final = Struct(">iiIii")
_EMPTY: Final = Struct(">iiI")
_LENGTH: Final = Struct(">i")
_NUMBER_BYTES: Final = 8


class Numbers:
    """An array of ``int8``."""

    __slots__ = ("data",)

    def __init__(self, numbers: Sequence[int]) -> None:
        """Encode the numbers, from -2**63 to 2**63 - 1; raises ``struct.error`` for others."""
        count = len(numbers)
        pairs = [_NUMBER_BYTES] * (2 * count)
        pairs[1::2] = numbers
        self.data = _head(count, _INT8) + pack(">" + "iq" * count, *pairs)


class Octets:
    """An array of ``bytea``."""

    __slots__ = ("data",)

    def __init__(self, values: Sequence[bytes]) -> None:
        """Encode the values."""
        length = _LENGTH.pack
        pieces = [_head(len(values), _BYTEA)]
        for value in values:
            pieces.append(length(len(value)))
            pieces.append(value)
        self.data = b"".join(pieces)


def _head(count: int, kind: int) -> bytes:
    if not count:
        return _EMPTY.pack(0, 0, kind)
    return _HEAD.pack(1, 0, kind, count, 1)


class _NumbersDumper(Dumper):
    """Passes an array on."""

    format = Format.BINARY
    oid = _INT8_ARRAY

    def dump(self, obj: Numbers) -> Buffer:
        return obj.data


class _OctetsDumper(Dumper):
    """Passes an array on."""

    format = Format.BINARY
    oid = _BYTEA_ARRAY

    def dump(self, obj: Octets) -> Buffer:
        return obj.data


def register(connection: Connection[object]) -> None:
    """Make a connection accept these arrays as parameters."""
    connection.adapters.register_dumper(Numbers, _NumbersDumper)
    connection.adapters.register_dumper(Octets, _OctetsDumper)
