"""Queues: each message goes to one subscriber, in order, and stays until acknowledged."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final

from mypy_extensions import mypyc_attr

from stompkit.server.domain.deliveries import MessageReference, Subscription
from stompkit.server.domain.destinations import HostBase
from stompkit.server.domain.queues.arrivals import ReceivingQueue
from stompkit.server.domain.queues.browsing import Browsing
from stompkit.server.domain.sub_queue import SubQueue
from stompkit.server.interfaces import (
    Delivered,
    LaneState,
    Mark,
)
from stompkit.server.settings.broker import Policy

__all__ = ["Puller", "Queue"]

_MANY: Final = sys.maxsize


@mypyc_attr(allow_interpreted_subclasses=True)
class Puller:
    """A waiting consumer: one registered in ``Queue.pullers`` is notified of messages."""

    def offered(self, queue: Queue) -> None:
        """Called at most once in a cycle when the queue may have messages; :func:`take` takes one.

        Also called when the queue is being removed, and has removed all pullers.
        """
        raise NotImplementedError


class Queue(ReceivingQueue):
    """A work queue, in memory or in the store."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        host: HostBase,
        states: Sequence[LaneState] = (),
        *,
        is_persistent: bool | None = None,
    ) -> None:
        """Create a queue with its stored content; ``states`` are its lanes in the store."""
        super().__init__(name, policy, host, states, is_persistent=is_persistent)
        #: Browsing subscriptions, each with its position once it has started.
        self.browsers: dict[Subscription, Browsing | None] = {}
        #: Consumers that take single messages, in order of arrival.
        self.pullers: dict[Puller, None] = {}

    @property
    def is_idle(self) -> bool:
        """True if the queue has no messages, subscribers or other users."""
        return not (
            self.messages
            or self.subscriptions
            or self.browsers
            or self.blocked
            or self.pullers
            or self.is_paused
            or self.holds
            or self.in_doubt
        )

    @property
    def is_disposable(self) -> bool:
        """True if it has no messages, and only pattern subscribers."""
        is_used = self.messages or self.browsers or self.blocked or self.pullers
        is_kept = self.is_paused or self.holds or self.in_doubt
        return not (is_used or is_kept) and all(
            subscription.pattern is not None for subscription in self.subscriptions
        )

    # Outgoing messages.

    def add(self, subscription: Subscription) -> None:
        """Start deliveries to a subscription."""
        subscription.homes[self] = None
        self._dispatcher.add(subscription)
        self._await_arrivals()

    def offer_to(self, subscription: Subscription) -> None:
        """Offer existing messages to a new subscription, at the end of the cycle."""
        if any(
            sub_queue.ready or sub_queue.back or sub_queue.stored for sub_queue in self.sub_queues
        ):
            subscription.waiting[self] = None

    def browse(self, subscription: Subscription) -> None:
        """Show a browser the messages up to the end of the window; :meth:`pump` writes them."""
        subscription.homes[self] = None
        self.browsers[subscription] = None
        self._await_arrivals()

    def _await_arrivals(self) -> None:
        """Delay deliveries until earlier messages are stored, if these push others out."""
        if self._is_trimmed and not self._fits(0, 0):
            self._awaited = self.incoming
            self._is_stuck = self._awaited > 0

    def remove(self, subscription: Subscription) -> None:
        """Stop deliveries to a subscription."""
        subscription.homes.pop(self, None)
        subscription.waiting.pop(self, None)
        if subscription in self.browsers:
            del self.browsers[subscription]
            return
        self._dispatcher.remove(subscription)

    def pump(self) -> None:
        """Deliver from the front, to the subscribers in rotation."""
        if self._is_short:
            self._is_short = False
            self._load_low_sub_queues()
        if self._awaited or self.returning:
            return
        self._is_stuck = False
        if self._is_trimmed and (self.owes_drops or self.is_over) and not self._trim():
            return
        for browser in list(self.browsers):
            self._show(browser)
        if self.pullers and not self.is_paused:
            # Each wants at most one, if a subscription takes as many as it may hold.
            for puller in list(self.pullers):
                puller.offered(self)
        if self.subscriptions and not self.is_paused:
            self._deliver(self._dispatcher.takers(), _MANY)

    def serve(self, subscription: Subscription) -> bool:
        """Deliver one message to one subscription; return False if there is none for it."""
        if self.is_paused or self.is_held_back or subscription not in self.subscriptions:
            return False
        if subscription not in self._dispatcher.takers():
            return False
        is_served = self._deliver(deque([subscription]), 1) > 0
        if is_served and self._dispatcher.is_picky:
            # Other subscriptions can see further now.
            self.host.scheduler.touch(self)
        return is_served

    def _deliver(self, takers: deque[Subscription], most: int, *, can_load: bool = True) -> int:
        delivered = 0
        for sub_queue in self.sub_queues:
            if sub_queue.back:
                sub_queue.restore()
            is_enough = False
            if sub_queue.ready:
                pump = self._pump_picky if self._dispatcher.is_picky else self._pump
                delivered += pump(sub_queue, takers, most - delivered)
                is_enough = delivered >= most or (
                    bool(sub_queue.ready) and not self._dispatcher.is_picky
                )
            if sub_queue.stored:
                # Incoming messages precede those with a lower priority.
                is_enough = is_enough or not sub_queue.ready
                if can_load:
                    self._load_if_low(sub_queue)
            if is_enough:
                break
        self.delivered += delivered
        if any(sub_queue.ready or sub_queue.stored for sub_queue in self.sub_queues):
            for subscription in self.subscriptions:
                subscription.waiting[self] = None
        return delivered

    def _pump(
        self, sub_queue: SubQueue[MessageReference], takers: deque[Subscription], most: int
    ) -> int:
        ready = sub_queue.ready
        now = self.host.scheduler.wall
        delivered = reached = unable = 0
        is_alone = len(takers) == 1
        while ready and unable < len(takers) and delivered < most:
            subscription = takers[0]
            if not is_alone:
                takers.rotate(-1)
            if not subscription.wants():
                unable += 1
                continue
            unable = 0
            message = ready[0].message
            if message.expires and message.is_expired(now):
                if not self._expiry.has_turn():
                    break
                self._expiry.expire(sub_queue.popleft())
                continue
            entry = sub_queue.popleft()
            subscription.deliver(entry)
            delivered += 1
            if subscription.is_auto:
                self.settled(entry)
            else:
                reached = entry.place
                self._timeouts.watch(entry)
        if reached > sub_queue.delivered and sub_queue.number:
            sub_queue.delivered = reached
            self.host.scheduler.commit_queue.lazily(Delivered(sub_queue.number, reached))
        return delivered

    def _pump_picky(
        self, sub_queue: SubQueue[MessageReference], takers: deque[Subscription], most: int
    ) -> int:
        """Deliver matching messages in order, and keep the others in order.

        Only the window is searched: stored messages wait until those in front are taken.
        """
        broker = self.host.broker
        now, furthest = broker.scheduler.wall, broker.config.window_messages
        delivered = 0
        ready = sub_queue.ready
        turns = self._dispatcher.round(sub_queue.index, takers, broker.selector_time, furthest)
        index = 0 if turns.is_over else bisect_right(ready, turns.first, key=_place)
        while index < min(len(ready), furthest) and delivered < most and not turns.is_over:
            entry = ready[index]
            is_expired = entry.message.is_expired(now)
            subscription = None if is_expired else turns.taker(entry)
            if subscription is None and not is_expired:
                index += 1
                continue
            if is_expired and not self._expiry.has_turn():
                break
            del ready[index]
            sub_queue.window_octets -= entry.message.size
            if subscription is None:
                self._expiry.expire(entry)
                continue
            self._hand_over(sub_queue, entry, subscription)
            delivered += 1
        self._dispatcher.put_all_last(turns.served)
        if turns.is_unfinished:
            broker.selector_time.postpone(self, has_begun=turns.has_looked)
        if turns.has_forgotten:
            broker.scheduler.touch(self)
        return delivered

    def _hand_over(
        self,
        sub_queue: SubQueue[MessageReference],
        entry: MessageReference,
        subscription: Subscription,
    ) -> None:
        subscription.deliver(entry)
        if subscription.is_auto:
            self.settled(entry)
            return
        self._timeouts.watch(entry)
        if sub_queue.number:
            self.host.scheduler.commit_queue.lazily(
                Mark(sub_queue.number, entry.place, entry.deliveries)
            )

    def _show(self, browser: Subscription) -> None:
        """Write unseen messages to a browser; mark the end, after which it gets no more."""
        browsing = self.browsers[browser]
        if browsing is None:
            if self._load_low_sub_queues():
                return
            browsing = self.browsers[browser] = Browsing(self.sub_queues)
        connection = browser.connection
        while connection.has_room and (page := browsing.page()):
            if not self._show_page(browser, browsing, page):
                return
        if not connection.has_room:
            browser.waiting[self] = None
            return
        browser.end_of_browsing(self.name, sum(each.stored for each in self.sub_queues))
        self.remove(browser)

    def _show_page(
        self, browser: Subscription, browsing: Browsing, page: Sequence[MessageReference]
    ) -> bool:
        """Write messages to a browser while it has room; return False if its selector must wait."""
        broker, connection, selector = self.host.broker, browser.connection, browser.selector
        time, now = broker.selector_time, broker.scheduler.wall
        if selector is not None:
            time.begin()
        for entry in page:
            if not connection.has_room:
                break
            if selector is not None and not time.is_left_for(connection):
                time.postpone(self, has_begun=entry is not page[0])
                return False
            browsing.place = entry.place
            is_taken = browser.takes(entry.message)
            if selector is not None:
                time.charge(connection, selector.cost)
            if is_taken and not entry.message.is_expired(now):
                # It is shown as the next consumer would receive it.
                seen = MessageReference(entry.message, self, entry.place)
                seen.deliveries = entry.deliveries
                browser.deliver(seen)
        return True

    def clear(self) -> None:
        """Remove all subscriptions and waiting connections: the queue is being removed."""
        for subscription in [*self.subscriptions, *self.browsers]:
            self.remove(subscription)
        self._made_room()
        self.drop_lanes()
        self.stop()
        pullers, self.pullers = self.pullers, {}
        for puller in pullers:
            puller.offered(self)


def _place(entry: MessageReference) -> int:
    return entry.place
