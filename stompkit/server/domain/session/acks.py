"""The deliveries of a connection that wait for ACK or NACK."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from stompkit.frames import Frame, Version
from stompkit.server.domain.errors import Refused
from stompkit.server.domain.session.subscriptions import AckMode

if TYPE_CHECKING:
    from stompkit.server.domain.queues.references import MessageReference
    from stompkit.server.domain.session.subscriptions import Subscription

__all__ = ["PendingAcks"]

#: Deliveries that were taken from a client, of which its acknowledgement is still expected.
_MOST_LAPSED: Final = 10_000


@mypyc_attr(allow_interpreted_subclasses=True)
class PendingAcks:
    """Finds a delivery by what ACK names it with, which differs between the versions.

    ====  ==========================================  ==============
    1.2   ``id``: the MESSAGE's ``ack`` header        any mode
    1.1   ``subscription`` and ``message-id``
    1.0   ``message-id``
    ====  ==========================================  ==============

    On 1.0 two subscriptions of one topic have nothing but that to tell their deliveries of a
    message apart, so the second gets an id of its own; on 1.1, too, where one subscription gets
    several copies of a message, out of the children of a fan-out destination.

    An entry outlives its subscription: after UNSUBSCRIBE it can still be acknowledged.
    """

    def __init__(
        self, version: Version, most: int = sys.maxsize, most_octets: int = sys.maxsize
    ) -> None:
        """Make an empty ledger for a session of ``version``, with its limits."""
        self._version = version
        self._most = most
        self._most_octets = most_octets
        self._octets = 0
        #: Whether nothing more is to be delivered before something is settled.
        self.is_full = False
        self._entries: dict[str, MessageReference] = {}
        self._last_key = 0
        #: How often each was taken away; before 1.2 a new delivery can have the same key.
        self._lapsed: dict[str, int] = {}

    def __len__(self) -> int:
        """How many deliveries wait."""
        return len(self._entries)

    def __iter__(self) -> Iterator[MessageReference]:
        """The deliveries that wait, oldest first."""
        return iter(self._entries.values())

    def add(self, entry: MessageReference, subscription: Subscription) -> str:
        """Enter a delivery; gives the header lines that tell the client how to name it."""
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
        """The entries that an ACK or NACK frame speaks of, oldest first.

        In the mode ``client`` these are all that the subscription delivered up to the one named
        (1.2, "SUBSCRIBE ack Header"). Those that an open transaction has acknowledged are left
        out, and nothing is found of what was taken from the client meanwhile. Raises
        :class:`Refused` if the one named was never waiting, or has been settled.
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
            raise Refused(
                f"{frame.command} of {named[:100]!a}, which is not waiting for it",
                "unknown-acknowledgement",
            )
        subscription = entry.subscription
        assert subscription is not None  # add() has set it
        # Before 1.2 a late answer to a delivery that was taken away names the next one of the same
        # message, and says nothing of what was delivered between the two.
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
        """Take a settled entry out."""
        del self._entries[entry.key]
        self._octets -= entry.message.size
        if self.is_full:
            self.is_full = self._octets >= self._most_octets or len(self._entries) >= self._most
        assert entry.subscription is not None  # add() has set it
        del entry.subscription.unsettled[entry.key]
        entry.key = ""

    def lapse(self, entry: MessageReference) -> None:
        """Take an entry out whose acknowledgement, should it come, is to be ignored."""
        self._lapsed[entry.key] = self._lapsed.pop(entry.key, 0) + 1
        if len(self._lapsed) > _MOST_LAPSED:
            del self._lapsed[next(iter(self._lapsed))]
        self.discard(entry)

    def clear(self) -> list[MessageReference]:
        """Take everything out: the connection has ended."""
        entries = list(self._entries.values())
        self._entries.clear()
        self._octets = 0
        self.is_full = False
        # They may be very many, and few subscriptions.
        for subscription in {entry.subscription for entry in entries}:
            assert subscription is not None  # add() has set it
            subscription.unsettled.clear()
        for entry in entries:
            entry.key = ""
        return entries
