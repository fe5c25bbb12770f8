"""Who gets a message of a queue: turns, selectors, groups, and consumers that are to be alone."""

from __future__ import annotations

from collections import deque
from typing import Final

from stompkit.server._config import Policy
from stompkit.server._entries import Entry
from stompkit.server._messages import Message
from stompkit.server._subscriptions import Subscription

__all__ = ["Sharing"]

#: Owners of message groups that a queue remembers; the oldest is forgotten first.
_MOST_GROUPS: Final = 10_000


class Sharing:
    """The subscriptions of one queue, and their turns."""

    def __init__(self, policy: Policy) -> None:
        """Begin with nobody."""
        #: Whoever is to be asked first is at the front.
        self.subscriptions: deque[Subscription] = deque()
        #: Whether it matters which subscription gets which message.
        self.is_picky = policy.exclusive
        self._is_exclusive = policy.exclusive
        self._groups: dict[str, Subscription] = {}
        self._has_groups = False

    def take(self, policy: Policy) -> None:
        """Go by other settings from now on."""
        self._is_exclusive = policy.exclusive
        self._look()

    def add(self, subscription: Subscription) -> None:
        """Let somebody take part."""
        self.subscriptions.append(subscription)
        self._look()

    def remove(self, subscription: Subscription) -> None:
        """Let somebody take part no more; its groups are free for others."""
        self.subscriptions.remove(subscription)
        if self._has_groups:
            gone = [name for name, owner in self._groups.items() if owner is subscription]
            for name in gone:
                del self._groups[name]
        self._look()

    def put_last(self, subscription: Subscription) -> None:
        """Have a subscription wait until all others have had their turn."""
        if subscription in self.subscriptions:
            self.subscriptions.remove(subscription)
            self.subscriptions.append(subscription)

    def notice(self, message: Message) -> None:
        """Learn whether there are groups to be kept together."""
        if message.group and not self._has_groups:
            self._has_groups = self.is_picky = True

    def _look(self) -> None:
        self.is_picky = (
            self._is_exclusive
            or self._has_groups
            or any(each.selector or each.is_exclusive for each in self.subscriptions)
        )

    def takers(self) -> deque[Subscription]:
        """Those that get messages: all, or only the oldest one where it is to be alone."""
        subscriptions = self.subscriptions
        if self._is_exclusive:
            return deque([min(subscriptions, key=lambda each: each.serial)])
        exclusive = [each for each in subscriptions if each.is_exclusive]
        if exclusive:
            return deque([min(exclusive, key=lambda each: each.serial)])
        return subscriptions

    def taker(
        self, entry: Entry, takers: deque[Subscription], eligible: deque[Subscription]
    ) -> Subscription | None:
        """The one of ``takers`` that gets an entry, unless another of ``eligible`` has to."""
        message = entry.message
        owner = self._groups.get(message.group) if message.group else None
        if owner not in eligible:
            owner = None
        if owner is not None and owner.takes(message):
            return owner if owner in takers and owner.wants() else None
        for _ in range(len(takers)):
            subscription = takers[0]
            takers.rotate(-1)
            if not (subscription.wants() and subscription.takes(message)):
                continue
            if message.group and owner is None:
                if len(self._groups) >= _MOST_GROUPS:
                    del self._groups[next(iter(self._groups))]
                self._groups[message.group] = subscription
            return subscription
        return None
