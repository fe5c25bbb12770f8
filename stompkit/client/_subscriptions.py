"""All subscriptions of a client."""

from __future__ import annotations

from stompkit.client._errors import ClientClosedError
from stompkit.client._gate import ReadingGate
from stompkit.client._outbox import Outbox
from stompkit.client._removals import Removals
from stompkit.client._subscription import Subscription, Terms
from stompkit.frames import Frame

__all__ = ["Subscriptions"]


class Subscriptions:
    """The subscriptions of a client."""

    def __init__(self, outbox: Outbox, gate: ReadingGate) -> None:
        """Start without subscriptions."""
        self._outbox = outbox
        self._gate = gate
        self._by_id: dict[str, Subscription] = {}
        self._last_id = 0
        self._removals = Removals(outbox, self._by_id.__contains__, self._announce)

    def new_id(self) -> str:
        """Return an unused subscription id."""
        while True:
            self._last_id += 1
            if str(self._last_id) not in self._by_id:
                return str(self._last_id)

    def add(self, terms: Terms) -> Subscription:
        """Add a subscription, on the current connection and all later ones.

        Raises ``ValueError`` if the id is in use.
        """
        if terms.id in self._by_id:
            raise ValueError(f"there is a subscription with the id {terms.id!a} already")
        subscription = Subscription(terms, self._outbox, self._gate, self._remove, self._removals)
        self._by_id[subscription.id] = subscription
        self._announce(subscription.id)  # where there is a connection
        return subscription

    def _announce(self, id: str) -> None:
        """Send SUBSCRIBE, unless messages of an earlier subscription may still have its id."""
        subscription = self._by_id.get(id)
        if subscription is not None and not self._removals.is_leaving(id):
            subscription.announce()

    def _remove(self, subscription: Subscription) -> None:
        # Another one may have got the id, if the broker refuses this one late.
        if self._by_id.get(subscription.id) is subscription:
            del self._by_id[subscription.id]

    def announce_all(self) -> None:
        """Send SUBSCRIBE for all subscriptions on a new connection."""
        self._removals.send_all()
        for id in list(self._by_id):
            self._announce(id)

    def connection_lost(self) -> None:
        """Drop the messages that the broker redelivers."""
        for subscription in self._by_id.values():
            subscription.connection_lost()

    def close(self, closed: ClientClosedError) -> None:
        """End all subscriptions of a client that is closed."""
        subscriptions = list(self._by_id.values())
        self._by_id.clear()
        self._removals.close(closed)
        for subscription in subscriptions:
            subscription.end(closed.reason, closed)

    def deliver(self, frame: Frame) -> bool:
        """Pass a MESSAGE to its subscription; return False if there is none."""
        subscription = self._find(frame.headers)
        if subscription is None:
            return False
        subscription.deliver(frame)
        return True

    def _find(self, headers: dict[str, str]) -> Subscription | None:
        key = headers.get("subscription")
        if key is not None:
            return None if self._removals.is_leaving(key) else self._by_id.get(key)
        # Only 1.0 brokers omit the header; the destination identifies the subscription then.
        destination = headers["destination"]
        return next(
            (
                each
                for each in self._by_id.values()
                if each.destination == destination and not self._removals.is_leaving(each.id)
            ),
            None,
        )
