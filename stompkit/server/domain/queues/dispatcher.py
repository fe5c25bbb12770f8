"""Dispatch messages of a queue: rotation, selectors, groups and exclusive consumers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from stompkit.server.domain.deliveries import MessageReference, Subscription
from stompkit.server.domain.messages import Message
from stompkit.server.domain.scheduling.selector_time import SelectorTime
from stompkit.server.settings.broker import Policy

__all__ = ["Dispatcher"]

#: Maximum number of group owners that a queue remembers; the oldest is forgotten first.
_MOST_GROUPS: Final = 10_000


class Dispatcher:
    """The subscriptions of one queue, and their order of service."""

    def __init__(self, policy: Policy) -> None:
        """Start without subscriptions."""
        #: Subscriptions in order of service, the next one first.
        self.subscriptions: deque[Subscription] = deque()
        #: True if the choice of the subscription depends on the message.
        self.is_picky = policy.exclusive
        self._is_exclusive = policy.exclusive
        self._groups: dict[str, Subscription] = {}
        self.has_groups = False
        #: For subscriptions with selectors: by index of the sub-queue, the place up to which no
        #: waiting message matches.
        self._seen: dict[Subscription, dict[int, int]] = {}
        #: For owners of groups with selectors: by index of the sub-queue, the verdicts on messages
        #: of their groups by place.
        self._verdicts: dict[Subscription, dict[int, dict[int, bool]]] = {}

    def take(self, policy: Policy) -> None:
        """Apply new settings."""
        self._is_exclusive = policy.exclusive
        self._look()

    def add(self, subscription: Subscription) -> None:
        """Add a subscription."""
        self.subscriptions.append(subscription)
        self._look()

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription, and release its groups."""
        self.subscriptions.remove(subscription)
        self._seen.pop(subscription, None)
        self._verdicts.pop(subscription, None)
        if self.has_groups:
            gone = [name for name, owner in self._groups.items() if owner is subscription]
            for name in gone:
                del self._groups[name]
        self._look()

    def put_last(self, subscription: Subscription) -> None:
        """Move a subscription to the end of the rotation."""
        if subscription in self.subscriptions:
            self.subscriptions.remove(subscription)
            self.subscriptions.append(subscription)

    def put_all_last(self, served: Iterable[Subscription]) -> None:
        """Move served subscriptions to the end of the rotation, in order."""
        if len(self.subscriptions) > 1:
            for subscription in served:
                self.put_last(subscription)

    def notice(self, message: Message) -> None:
        """Record that messages have groups, if this one has."""
        if message.group and not self.has_groups:
            self.has_groups = self.is_picky = True

    def _look(self) -> None:
        self.is_picky = (
            self._is_exclusive
            or self.has_groups
            or any(each.selector or each.is_exclusive for each in self.subscriptions)
        )

    def takers(self) -> deque[Subscription]:
        """Return the subscriptions that get messages: all, or only the oldest exclusive one."""
        subscriptions = self.subscriptions
        if self._is_exclusive:
            return deque([min(subscriptions, key=lambda each: each.serial)])
        exclusive = [each for each in subscriptions if each.is_exclusive]
        if exclusive:
            return deque([min(exclusive, key=lambda each: each.serial)])
        return subscriptions

    # Places seen by selectors.

    def seen(self, subscription: Subscription, sub_queue: int) -> int:
        """Return the place up to which a selector matches no waiting message of a sub-queue."""
        places = self._seen.get(subscription)
        return 0 if places is None else places.get(sub_queue, 0)

    def look_again(self, sub_queue: int, place: int) -> None:
        """Show selectors a message again that has returned to a place of a sub-queue."""
        for places in self._seen.values():
            if places.get(sub_queue, 0) >= place:
                places[sub_queue] = place - 1

    def round(
        self, sub_queue: int, takers: Iterable[Subscription], time: SelectorTime, window: int
    ) -> _Round:
        """Start to offer the messages of a sub-queue, in order, to interested subscriptions.

        At most *window* messages are offered.
        """
        return _Round(self, sub_queue, takers, time, window)

    def verdicts(self, owner: Subscription, sub_queue: int, window: int) -> dict[int, bool]:
        """Return what the selector of an owner has said of messages that wait for it, by place.

        Those of messages that have left are dropped when they are many.
        """
        verdicts = self._verdicts.setdefault(owner, {}).setdefault(sub_queue, {})
        if len(verdicts) >= 2 * window:
            verdicts.clear()
        return verdicts

    def owner(self, group: str) -> Subscription | None:
        """Return the subscription that currently owns a message group."""
        return self._groups.get(group)

    def own(self, group: str, subscription: Subscription) -> bool:
        """Assign a group to a subscription; return True if another group was forgotten for it."""
        is_full = len(self._groups) >= _MOST_GROUPS
        if is_full:
            del self._groups[next(iter(self._groups))]
        self._groups[group] = subscription
        return is_full

    def saw(self, subscription: Subscription, sub_queue: int, place: int) -> None:
        """Record that a selector matches no waiting message up to a place of a sub-queue."""
        places = self._seen.get(subscription)
        if places is None:
            places = self._seen[subscription] = {}
        places[sub_queue] = place


class _Round:
    """Offers messages of one sub-queue to subscriptions in rotation, each only unseen ones.

    A selector is evaluated once for each message, unless the message returns, and only while there
    is time for it. The rest follows in the next reactor iteration.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        sub_queue: int,
        takers: Iterable[Subscription],
        time: SelectorTime,
        window: int,
    ) -> None:
        self._dispatcher = dispatcher
        self._sub_queue = sub_queue
        self._time = time
        self._window = window
        #: Owners of groups that had no time for a message: their later ones wait behind it.
        self._late: set[Subscription] = set()
        #: Subscriptions that have seen the next messages, with the place up to which they have. The
        #: last one joins next.
        self._behind = [(dispatcher.seen(each, sub_queue), each) for each in takers if each.wants()]
        self._behind.sort(key=_by_place)
        self._behind.reverse()
        self._active: deque[Subscription] = deque()
        self._eligible = set(dispatcher.takers()) if dispatcher.has_groups else set()
        #: True if all messages passed over were skipped because no selector matches.
        self._is_seamless = True
        #: True if a subscription lacked time to evaluate; whether any could follows.
        self.is_unfinished = False
        self.has_looked = False
        #: True if a group was forgotten whose messages others can now get.
        self.has_forgotten = False
        #: Subscriptions served, the most recent one last.
        self.served: dict[Subscription, None] = {}
        time.begin()

    @property
    def first(self) -> int:
        """Return the place after which messages may be relevant to a subscription."""
        return self._behind[-1][0] if self._behind else 0

    @property
    def is_over(self) -> bool:
        """Return True if no subscription wants a message, or can evaluate one now."""
        return not (self._active or self._behind)

    def taker(self, entry: MessageReference) -> Subscription | None:
        """Return the subscription that gets a message, or None."""
        message, place = entry.message, entry.place
        behind = self._behind
        while behind and behind[-1][0] < place:
            self._active.append(behind.pop()[1])
        if message.group:
            owner = self._dispatcher.owner(message.group)
            if owner is not None and owner in self._eligible:
                accepts = self._accepts(owner, entry)
                if accepts is not False:
                    is_able = accepts is True and owner in self._active and owner.wants()
                    self._is_seamless = self._is_seamless and is_able
                    return owner if is_able else None
            found = self._next(entry)
            if found is not None and (owner is None or owner not in self._eligible):
                forgotten = self._dispatcher.own(message.group, found)
                self.has_forgotten = self.has_forgotten or forgotten
            return found
        return self._next(entry)

    def _next(self, entry: MessageReference) -> Subscription | None:
        """Return the first subscription, in rotation, that wants and takes a message."""
        active = self._active
        verdicts: dict[object, bool] = {}
        for _ in range(len(active)):
            subscription = active.popleft()
            if not subscription.wants():
                continue
            selector = subscription.selector
            if selector is None:
                self._serve(subscription)
                return subscription
            if not self._time.is_left_for(subscription.connection):
                self.is_unfinished = True
                continue
            self.has_looked = True
            verdict = verdicts.get(selector.condition)
            if verdict is None:
                verdict = verdicts[selector.condition] = selector.takes(entry.message.headers)
                self._time.charge(subscription.connection, selector.cost)
            if verdict:
                self._serve(subscription)
                return subscription
            active.append(subscription)
            if self._is_seamless:
                self._dispatcher.saw(subscription, self._sub_queue, entry.place)
        return None

    def _accepts(self, owner: Subscription, entry: MessageReference) -> bool | None:
        """Return True if the owner of its group takes a message; None if there is no time to ask.

        The verdict is remembered: many messages can wait for a busy owner.
        """
        selector = owner.selector
        if selector is None:
            return True
        if owner in self._late:
            return None
        verdicts = self._dispatcher.verdicts(owner, self._sub_queue, self._window)
        verdict = verdicts.get(entry.place)
        if verdict is None:
            if not self._time.is_left_for(owner.connection):
                self._late.add(owner)
                self.is_unfinished = True
                if owner in self._active:
                    self._active.remove(owner)
                return None
            self.has_looked = True
            verdict = verdicts[entry.place] = selector.takes(entry.message.headers)
            self._time.charge(owner.connection, selector.cost)
        return verdict

    def _serve(self, subscription: Subscription) -> None:
        """Move a subscription to the end of the rotation."""
        if subscription in self._active:
            self._active.remove(subscription)
        self._active.append(subscription)
        self.served.pop(subscription, None)
        self.served[subscription] = None


def _by_place(item: tuple[int, Subscription]) -> int:
    return item[0]
