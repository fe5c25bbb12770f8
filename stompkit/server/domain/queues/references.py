"""A message's place in a destination, and who has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompkit.server.domain.messages import Message

if TYPE_CHECKING:
    from stompkit.server.domain.destinations import Destination
    from stompkit.server.domain.queues.sub_queue import SubQueue
    from stompkit.server.domain.session.subscriptions import Subscription
    from stompkit.server.domain.session.transactions import Acknowledged, Settlement, Transaction

__all__ = ["MessageReference"]


class MessageReference:
    """One message in one destination, until it is settled."""

    __slots__ = ("deliveries", "holder", "home", "key", "lane", "message", "place", "subscription")

    def __init__(self, message: Message, home: Destination, place: int) -> None:
        """Take a place: a number that grows with each message of the destination."""
        self.message = message
        self.home = home
        self.place = place
        self.deliveries = 0
        #: The part of a queue that it stands in.
        self.lane: SubQueue | None = None
        #: The subscription that it was delivered to, with its key in that connection's ledger.
        self.subscription: Subscription | None = None
        self.key = ""
        #: The open transaction that has acknowledged it, or the frame of which it is a part and
        #: that is not done yet.
        self.holder: Transaction | Settlement | Acknowledged | None = None
