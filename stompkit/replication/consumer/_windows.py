"""Prefetch of a consumer, and its growth by further subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stompkit.client.blocking import Delivery, Inbox, Link
from stompkit.replication.consumer.retry_policy import ConsumerStoppedError, Stopping

__all__ = ["Windows"]


class Windows:
    """Subscriptions to one destination: one, and more only if necessary.

    A broker limits the unacknowledged frames of a subscription. If all of them wait for a missing
    frame, the broker cannot send that frame. A changeset may have more frames than the limit. Or a
    killed consumer had received the frame, and its successor was sent later frames. Another
    subscription receives the frames that were returned to the head of the queue.
    """

    def __init__(
        self,
        link: Link,
        destination: str,
        *,
        ack: bool,
        prefetch: int,
        headers: Mapping[str, str],
        most: int,
        stopping: Stopping,
    ) -> None:
        """Start without subscriptions; ``most`` limits the total prefetch in frames."""
        self._link = link
        self._destination = destination
        self._ack = ack
        self._prefetch = prefetch
        self._headers = headers
        self._most = most
        self._stopping = stopping
        self._inboxes: list[Inbox] = []

    @property
    def count(self) -> int:
        """Number of subscriptions."""
        return len(self._inboxes)

    @property
    def frames(self) -> int | None:
        """Number of frames that the broker prefetches; ``None`` if it does not count them."""
        return self._prefetch * self.count if self._ack else None

    @property
    def can_grow(self) -> bool:
        """True if another subscription is allowed; a durable subscription has only one."""
        return self.frames is not None and self.frames < self._most and "id" not in self._headers

    def grow(self) -> None:
        """Open another subscription, when a broker is connected.

        Raises ConsumerStoppedError, and the errors of Link.subscribe.
        """
        try:
            inbox = self._link.subscribe(
                self._destination,
                ack=self._ack,
                prefetch=self._prefetch,
                headers=self._headers,
                timeout_s=None,
                stop=lambda: self._stopping.is_set,
            )
        except TimeoutError:
            raise ConsumerStoppedError from None
        self._inboxes.append(inbox)

    def get(self, timeout_s: float) -> Delivery | None:
        """Return the next frame of any subscription; raises the errors of Inbox.get."""
        for inbox in self._inboxes[:-1]:
            delivery = inbox.get(0.0)
            if delivery is not None:
                return delivery
        return self._inboxes[-1].get(timeout_s)

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """Acknowledge frames without waiting."""
        for inbox in self._inboxes[:1]:
            inbox.ack(deliveries)

    def close(self) -> None:
        """Close the subscriptions; unacknowledged frames stay with the broker."""
        for inbox in self._inboxes:
            inbox.close()
