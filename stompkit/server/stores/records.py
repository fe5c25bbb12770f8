"""What the store keeps besides messages."""

from __future__ import annotations

import json
from typing import Final, TypeVar

import msgspec

__all__ = ["DURABLE_RECORDS", "MAKER_RECORDS", "DurableRecord", "MakerRecord", "packed", "unpacked"]

_T = TypeVar("_T")

#: What the keys of durable subscriptions begin with among the store's records.
DURABLE_RECORDS: Final = "durable/"

#: What the keys of the users begin with for whom queues were made.
MAKER_RECORDS: Final = "maker/"


class DurableRecord(msgspec.Struct, frozen=True):
    """What the store keeps of a durable subscription besides its messages."""

    host: str
    key: str
    topic: str
    selector: str
    is_shared: bool
    used_at: float
    #: Another one when the name goes on with another topic or selector: messages that were
    #: collected for the one before are in lanes of another name.
    generation: int = 0
    #: The user to whom it belongs; ``None`` until somebody uses it whose login was checked.
    owner: str | None = None


class MakerRecord(msgspec.Struct, frozen=True):
    """What the store keeps of who has a queue, where that is a user with a name."""

    host: str
    name: str
    user: str
    is_for_letters: bool


def packed(record: msgspec.Struct) -> bytes:
    """Return a record as JSON, which has names as well that were no UTF-8 when they came."""
    return json.dumps(msgspec.to_builtins(record)).encode("ascii")


def unpacked(value: bytes, kind: type[_T]) -> _T:
    """Return a record that the store has kept."""
    return msgspec.convert(json.loads(value), kind)
