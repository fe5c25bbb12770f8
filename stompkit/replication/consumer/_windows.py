"""How much a consumer has the broker send ahead, and how that grows where it is not enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stompkit.link import Delivery, Inbox, Link
from stompkit.replication.consumer._retry_policy import Stopped, Stopping

__all__ = ["Windows"]


class Windows:
    """Subscriptions to one destination: one, and more of them where it can't be helped.

    A broker sends so many frames ahead of their acknowledgements, and no more. Where all of them
    wait for one that is missing, that one can't come, even if the broker has it: because there are
    more frames to a changeset, or because a consumer that has just been killed had it, and its
    successor was sent what is behind it. Another subscription gets what has come back to the head
    of the queue.
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
        """Begin with none; ``most`` frames may be sent ahead at all."""
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
        """How many there are."""
        return len(self._inboxes)

    @property
    def frames(self) -> int | None:
        """How many frames the broker sends ahead; ``None`` where it does not count them."""
        return self._prefetch * self.count if self._ack else None

    @property
    def can_grow(self) -> bool:
        """Whether there may be another one; of a durable subscription there can be only one."""
        return self.frames is not None and self.frames < self._most and "id" not in self._headers

    def grow(self) -> None:
        """Subscribe once more, when a broker is there.

        Raises Stopped, and as Link.subscribe does.
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
            raise Stopped from None
        self._inboxes.append(inbox)

    def get(self, timeout_s: float) -> Delivery | None:
        """What has come, of any of them; raises as Inbox.get does."""
        for inbox in self._inboxes[:-1]:
            delivery = inbox.get(0.0)
            if delivery is not None:
                return delivery
        return self._inboxes[-1].get(timeout_s)

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """Acknowledge frames, and don't wait for it."""
        for inbox in self._inboxes[:1]:
            inbox.ack(deliveries)

    def close(self) -> None:
        """End them; what is not acknowledged is left to the broker."""
        for inbox in self._inboxes:
            inbox.close()
