"""Messages of topics that are not offered to all subscribers yet."""

from __future__ import annotations

from stompkit.server.domain.deliveries import Subscription
from stompkit.server.domain.hosts.choices import Choice
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues.durables import DurableQueue

__all__ = ["PendingOffer"]


class PendingOffer:
    """A message of a topic whose offering to subscribers is not complete."""

    __slots__ = (
        "choice",
        "durables",
        "has_durables",
        "index",
        "is_gone",
        "is_late",
        "is_reserved",
        "last_serial",
        "message",
        "place",
        "takers",
        "was_asked",
    )

    def __init__(
        self, message: Message, place: int, last_serial: int, choice: Choice | None
    ) -> None:
        """Start without subscribers; ``last_serial`` is that of the last entitled subscription."""
        self.message = message
        #: True if the selectors of durable subscriptions were evaluated before the message arrived.
        self.was_asked = choice is not None
        self.choice = Choice(message) if choice is None else choice
        self.place = place
        self.last_serial = last_serial
        self.takers: list[Subscription] | None = None
        self.index = 0
        self.durables: list[DurableQueue] | None = None
        #: True if all durable subscriptions that take the message have it.
        self.has_durables = False
        #: True if it was not offered to all subscribers in the cycle of its arrival.
        self.is_late = False
        #: True until the store has recorded the rest of its transaction.
        self.is_reserved = False
        #: True if the store could not record the transaction: nobody gets the message.
        self.is_gone = False
