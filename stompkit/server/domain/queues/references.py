"""A reference to a message in a destination, with its holder."""

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
        """Start at a place: a number that increases with each message of the destination."""
        self.message = message
        self.home = home
        self.place = place
        self.deliveries = 0
        #: The sub-queue that contains it.
        self.lane: SubQueue | None = None
        #: The subscription that it was delivered to; its key among the pending acknowledgements
        #: follows.
        self.subscription: Subscription | None = None
        self.key = ""
        #: The open transaction that has acknowledged it, or the unfinished settlement that includes
        #: it.
        self.holder: Transaction | Settlement | Acknowledged | None = None
