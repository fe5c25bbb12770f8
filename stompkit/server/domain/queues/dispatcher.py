"""Who gets a message of a queue: turns, selectors, groups, and consumers that are to be alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues.references import MessageReference
from stompkit.server.domain.selector_time import SelectorTime
from stompkit.server.domain.session.subscriptions import Subscription
from stompkit.server.settings.broker import Policy

__all__ = ["Dispatcher"]

#: Owners of message groups that a queue remembers; the oldest is forgotten first.
_MOST_GROUPS: Final = 10_000


class Dispatcher:
    """The subscriptions of one queue, and their turns."""

    def __init__(self, policy: Policy) -> None:
        """Begin with nobody."""
        #: Whoever is to be asked first is at the front.
        self.subscriptions: deque[Subscription] = deque()
        #: Whether it matters which subscription gets which message.
        self.is_picky = policy.exclusive
        self._is_exclusive = policy.exclusive
        self._groups: dict[str, Subscription] = {}
        self.has_groups = False
        #: By subscriptions with selectors and the indices of lanes, places: of what waits up to
        #: there the selector takes nothing.
        self._seen: dict[Subscription, dict[int, int]] = {}

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
        self._seen.pop(subscription, None)
        if self.has_groups:
            gone = [name for name, owner in self._groups.items() if owner is subscription]
            for name in gone:
                del self._groups[name]
        self._look()

    def put_last(self, subscription: Subscription) -> None:
        """Have a subscription wait until all others have had their turn."""
        if subscription in self.subscriptions:
            self.subscriptions.remove(subscription)
            self.subscriptions.append(subscription)

    def put_all_last(self, served: Iterable[Subscription]) -> None:
        """Have subscriptions wait for their turn that have had it, the last one for longest."""
        if len(self.subscriptions) > 1:
            for subscription in served:
                self.put_last(subscription)

    def notice(self, message: Message) -> None:
        """Learn whether there are groups to be kept together."""
        if message.group and not self.has_groups:
            self.has_groups = self.is_picky = True

    def _look(self) -> None:
        self.is_picky = (
            self._is_exclusive
            or self.has_groups
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

    # What selectors have seen.

    def seen(self, subscription: Subscription, lane: int) -> int:
        """Return the place up to which a selector takes nothing of what waits in a lane."""
        places = self._seen.get(subscription)
        return 0 if places is None else places.get(lane, 0)

    def look_again(self, lane: int, place: int) -> None:
        """Have selectors look again at what has come back to a place of a lane."""
        for places in self._seen.values():
            if places.get(lane, 0) >= place:
                places[lane] = place - 1

    def round(self, lane: int, takers: Iterable[Subscription], time: SelectorTime) -> _Round:
        """Begin to offer the messages of a lane, in their order, to whoever wants some."""
        return _Round(self, lane, takers, time)

    def owner(self, group: str) -> Subscription | None:
        """Return the subscription that has got the messages of a group so far."""
        return self._groups.get(group)

    def own(self, group: str, subscription: Subscription) -> bool:
        """Give a group to a subscription; says whether another group was forgotten for it."""
        is_full = len(self._groups) >= _MOST_GROUPS
        if is_full:
            del self._groups[next(iter(self._groups))]
        self._groups[group] = subscription
        return is_full

    def saw(self, subscription: Subscription, lane: int, place: int) -> None:
        """Note that a selector takes nothing of what waits up to a place of a lane."""
        places = self._seen.get(subscription)
        if places is None:
            places = self._seen[subscription] = {}
        places[lane] = place


class _Round:
    """Offers messages of one lane to subscriptions in turn, each only what it has not seen.

    A selector is evaluated once for each message, as long as that does not come back; and only
    while there is time for it. The rest is for the next iteration of the reactor.
    """

    def __init__(
        self, sharing: Dispatcher, lane: int, takers: Iterable[Subscription], time: SelectorTime
    ) -> None:
        self._sharing = sharing
        self._lane = lane
        self._time = time
        #: Those that have seen what comes next, with the place up to which they have; the next to
        #: join in is the last.
        self._behind = [(sharing.seen(each, lane), each) for each in takers if each.wants()]
        self._behind.sort(key=_by_place)
        self._behind.reverse()
        self._active: deque[Subscription] = deque()
        self._eligible = set(sharing.takers()) if sharing.has_groups else set()
        #: Whether all that was passed over was so because no selector takes it.
        self._is_seamless = True
        #: Whether somebody could not look for want of time, and whether anybody could.
        self.is_unfinished = False
        self.has_looked = False
        #: Whether a group was forgotten, whose messages others can get now.
        self.has_forgotten = False
        #: Whoever got a message, the last one last.
        self.served: dict[Subscription, None] = {}
        time.begin()

    @property
    def first(self) -> int:
        """Return the place behind which there may be something for somebody."""
        return self._behind[-1][0] if self._behind else 0

    @property
    def is_over(self) -> bool:
        """Return whether nobody wants anything, or can look at it now."""
        return not (self._active or self._behind)

    def taker(self, entry: MessageReference) -> Subscription | None:
        """Return whoever gets a message."""
        message, place = entry.message, entry.place
        behind = self._behind
        while behind and behind[-1][0] < place:
            self._active.append(behind.pop()[1])
        if message.group:
            owner = self._sharing.owner(message.group)
            if owner is not None and owner in self._eligible and self._accepts(owner, entry):
                is_able = owner in self._active and owner.wants()
                self._is_seamless = self._is_seamless and is_able
                return owner if is_able else None
            found = self._next(entry)
            if found is not None and (owner is None or owner not in self._eligible):
                forgotten = self._sharing.own(message.group, found)
                self.has_forgotten = self.has_forgotten or forgotten
            return found
        return self._next(entry)

    def _next(self, entry: MessageReference) -> Subscription | None:
        """Return the first, in turn, that wants and takes a message."""
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
                self._sharing.saw(subscription, self._lane, entry.place)
        return None

    def _accepts(self, owner: Subscription, entry: MessageReference) -> bool:
        selector = owner.selector
        if selector is None:
            return True
        self._time.charge(owner.connection, selector.cost)
        return selector.takes(entry.message.headers)

    def _serve(self, subscription: Subscription) -> None:
        """Have a subscription be the last in turn."""
        if subscription in self._active:
            self._active.remove(subscription)
        self._active.append(subscription)
        self.served.pop(subscription, None)
        self.served[subscription] = None


def _by_place(item: tuple[int, Subscription]) -> int:
    return item[0]
