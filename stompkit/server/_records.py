"""What the store keeps besides messages."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["DURABLE_RECORDS", "DurableRecord"]

#: What the keys of durable subscriptions begin with among the store's records.
DURABLE_RECORDS: Final = "durable/"


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
