"""Deliveries of a connection that wait for ACK or NACK."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from mypy_extensions import mypyc_attr

from stompkit.frames import Frame, Version
from stompkit.server.domain.ack_mode import AckMode
from stompkit.server.domain.deliveries import (
    MessageReference,
    PendingAcksBase,
    Subscription,
)
from stompkit.server.domain.errors import RefusedError

__all__ = ["PendingAcks"]

#: Maximum number of withdrawn deliveries whose late acknowledgement is ignored.
_MOST_LAPSED: Final = 10_000


@mypyc_attr(allow_interpreted_subclasses=True)
class PendingAcks(PendingAcksBase):
    """Finds a delivery by the key that ACK gives, which differs between the versions.

    ====  ==========================================  ==============
    1.2   ``id``: the MESSAGE's ``ack`` header        any mode
    1.1   ``subscription`` and ``message-id``
    1.0   ``message-id``
    ====  ==========================================  ==============

    On 1.0, two subscriptions of one topic share the key of a message, so that the second delivery
    gets a separate id. The same applies on 1.1 if one subscription gets several copies of a message
    from the children of a fan-out destination.

    An entry outlives its subscription: after UNSUBSCRIBE it can still be acknowledged.
    """

    def __init__(
        self, version: Version, most: int = sys.maxsize, most_octets: int = sys.maxsize
    ) -> None:
        """Start empty, for a session of ``version``, with its limits."""
        self._version = version
        self._most = most
        self._most_octets = most_octets
        self._octets = 0
        self.is_full = False
        self._entries: dict[str, MessageReference] = {}
        self._last_key = 0
        #: Number of withdrawals by key; before 1.2 a new delivery can have the same key.
        self._lapsed: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of pending deliveries."""
        return len(self._entries)

    def __iter__(self) -> Iterator[MessageReference]:
        """Yield the pending deliveries, oldest first."""
        return iter(self._entries.values())

    def add(self, entry: MessageReference, subscription: Subscription) -> str:
        """Add a delivery; return the header lines with which the client can acknowledge it."""
        message_id = entry.message.id
        lines = f"message-id:{message_id}\n"
        if self._version == "1.2":
            self._last_key += 1
            key = str(self._last_key)
            lines += f"ack:{key}\n"
        else:
            key = self._key(subscription.id, message_id)
            if key in self._entries:
                self._last_key += 1
                named = f"{message_id}-{self._last_key}"
                key = self._key(subscription.id, named)
                lines = f"message-id:{named}\n"
        entry.key = key
        entry.subscription = subscription
        self._entries[key] = entry
        octets = self._octets + entry.message.size
        self._octets = octets
        if octets >= self._most_octets or len(self._entries) >= self._most:
            self.is_full = True
        subscription.unsettled[key] = entry
        return lines

    def _key(self, subscription_id: str | None, message_id: str) -> str:
        if self._version == "1.1":
            return f"{message_id} {subscription_id}"
        return message_id

    def find(self, frame: Frame) -> list[MessageReference]:
        """Return the entries that an ACK or NACK frame settles, oldest first.

        In the mode ``client`` these are all that the subscription delivered up to the given one
        (1.2, "SUBSCRIBE ack Header"). Entries that an open transaction has acknowledged are left
        out. The list is empty if the delivery was withdrawn meanwhile. Raises :class:`RefusedError`
        if it never existed, or has been settled.
        """
        headers = frame.headers
        if self._version == "1.2":
            named = headers["id"]
            key = named
        else:
            named = headers["message-id"]
            key = self._key(headers.get("subscription"), named)
        entry = self._entries.get(key)
        if entry is None and key in self._lapsed:
            self._lapsed[key] -= 1
            if not self._lapsed[key]:
                del self._lapsed[key]
            return []
        if entry is None or entry.holder is not None:
            raise RefusedError(
                f"{frame.command} of {named[:100]!a}, which is not waiting for it. It was settled"
                " before, came on another connection, or its subscription is in the mode auto",
                "unknown-acknowledgement",
            )
        subscription = entry.subscription
        assert subscription is not None  # add() has set it
        # Before 1.2 a late acknowledgement of a withdrawn delivery matches the next one of the same
        # message. It then says nothing about the deliveries in between.
        if subscription.mode is not AckMode.CLIENT or key in self._lapsed:
            return [entry]
        entries = []
        for other in subscription.unsettled.values():
            if other.holder is None:
                entries.append(other)
            if other is entry:
                break
        return entries

    def discard(self, entry: MessageReference) -> None:
        """Remove a settled entry."""
        del self._entries[entry.key]
        self._octets -= entry.message.size
        if self.is_full:
            self.is_full = self._octets >= self._most_octets or len(self._entries) >= self._most
        assert entry.subscription is not None  # add() has set it
        del entry.subscription.unsettled[entry.key]
        entry.key = ""

    def lapse(self, entry: MessageReference) -> None:
        """Withdraw an entry; a late acknowledgement of it is ignored."""
        self._lapsed[entry.key] = self._lapsed.pop(entry.key, 0) + 1
        if len(self._lapsed) > _MOST_LAPSED:
            del self._lapsed[next(iter(self._lapsed))]
        self.discard(entry)

    def clear(self) -> list[MessageReference]:
        """Remove and return all entries, since the connection has ended."""
        entries = list(self._entries.values())
        self._entries.clear()
        self._octets = 0
        self.is_full = False
        # There may be many entries, and few subscriptions.
        for subscription in {entry.subscription for entry in entries}:
            assert subscription is not None  # add() has set it
            subscription.unsettled.clear()
        for entry in entries:
            entry.key = ""
        return entries
