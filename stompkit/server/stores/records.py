"""Records that the store keeps besides messages."""

from __future__ import annotations

import json
from typing import Final, TypeVar

import msgspec

__all__ = ["DURABLE_RECORDS", "MAKER_RECORDS", "DurableRecord", "MakerRecord", "packed", "unpacked"]

_T = TypeVar("_T")

#: Prefix of the keys of durable subscriptions among the store's records.
DURABLE_RECORDS: Final = "durable/"

#: Prefix of the keys of the users who created queues.
MAKER_RECORDS: Final = "maker/"


class DurableRecord(msgspec.Struct, frozen=True):
    """A durable subscription as stored, without its messages."""

    host: str
    key: str
    topic: str
    selector: str
    is_shared: bool
    used_at: float
    #: Incremented when the name is reused with another topic or selector: messages collected before
    #: are in lanes with another name.
    generation: int = 0
    #: The user who owns it; ``None`` until an authenticated user uses it.
    owner: str | None = None


class MakerRecord(msgspec.Struct, frozen=True):
    """The creator of a queue, if that is a user with a name."""

    host: str
    name: str
    user: str
    is_for_letters: bool


def packed(record: msgspec.Struct) -> bytes:
    """Return a record as JSON, including names that were not UTF-8 when received."""
    return json.dumps(msgspec.to_builtins(record)).encode("ascii")


def unpacked(value: bytes, kind: type[_T]) -> _T:
    """Return a record that the store has kept."""
    return msgspec.convert(json.loads(value), kind)
