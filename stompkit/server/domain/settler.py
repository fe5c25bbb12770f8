"""Settle deliveries: apply acknowledgements, and return messages of ended connections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from stompkit.server.domain.deliveries import (
    ConnectionBase,
    DestinationBase,
    MessageReference,
    Subscription,
)
from stompkit.server.domain.scheduling.scheduler import Scheduler
from stompkit.server.domain.scheduling.slices import Slices
from stompkit.server.domain.settlements import MOST_SETTLED, Acknowledged, Settlement

__all__ = ["Settler"]

#: Number of messages returned to their queue at a time when a connection held many.
_MOST_RETURNED: Final = 250


class _Returned(NamedTuple):
    """A part of an ended connection's messages of one queue; the last part is the oldest."""

    destination: DestinationBase
    entries: list[MessageReference]
    is_last: bool


class _Settled:
    """A part of the messages of an ACK or NACK; after the last part the sender can continue."""

    __slots__ = ("done", "sender", "settlement")

    def __init__(
        self, settlement: Settlement, sender: ConnectionBase, done: Callable[[None], None] | None
    ) -> None:
        """Start with the part; ``done`` is called if it is the last one."""
        self.settlement = settlement
        self.sender = sender
        self.done = done


class _Reckoned:
    """A part of a transaction's acknowledged messages; the last part allows its commit."""

    __slots__ = ("done", "entries", "found", "sender")

    def __init__(
        self,
        found: Acknowledged,
        entries: list[MessageReference],
        sender: ConnectionBase,
        done: Callable[[Acknowledged], None] | None,
    ) -> None:
        """Start with the part; ``done`` is called if it is the last one."""
        self.found = found
        self.entries = entries
        self.sender = sender
        self.done = done


def _in_parts(entries: list[MessageReference]) -> list[list[MessageReference]]:
    return [entries[begin : begin + MOST_SETTLED] for begin in range(0, len(entries), MOST_SETTLED)]


class Settler:
    """Applies acknowledgements; large ones in parts, serving others in between."""

    def __init__(self, scheduler: Scheduler) -> None:
        """Start without parts."""
        self._scheduler = scheduler
        self._returns: Slices[_Returned] = Slices(scheduler, self._return, step=1)
        self._settled: Slices[_Settled] = Slices(scheduler, self._settle_part, step=1)
        self._reckoned: Slices[_Reckoned] = Slices(scheduler, self._reckon_part, step=1)
        self._leaving: Slices[list[MessageReference]] = Slices(scheduler, self._let_go, step=1)

    def finish(self) -> None:
        """Apply all remaining parts, however long it takes."""
        self._settled.finish()
        self._leaving.finish()
        self._returns.finish()

    def settle(self, settlement: Settlement) -> list[MessageReference]:
        """Apply an ACK or NACK.

        Return the removed references; :meth:`CommitQueue.take` restores them if the store fails.
        """
        for entry in settlement.entries:
            entry.holder = None
            self._release(entry)
        if settlement.accepted:
            for entry in settlement.entries:
                entry.home.settled(entry)
            return settlement.entries
        if settlement.entries:
            home = settlement.entries[0].home
            return home.reject(settlement.entries, requeue=settlement.requeue, reason="rejected")
        return []

    def settle_in_parts(
        self, settlement: Settlement, sender: ConnectionBase, done: Callable[[None], None]
    ) -> None:
        """Apply an ACK or NACK in parts, serving others in between; then call ``done``.

        All parts are applied even if the sender disconnects meanwhile.
        """
        entries = settlement.entries
        for entry in entries:
            entry.holder = settlement
        parts: list[_Settled] = []
        for some in _in_parts(entries):
            part = Settlement(some, accepted=settlement.accepted, requeue=settlement.requeue)
            parts.append(_Settled(part, sender, None))
        parts[-1].done = done
        self._settled.add(parts)

    def _settle_part(self, part: _Settled) -> None:
        self._scheduler.commit_queue.cut()
        self.settle(part.settlement)
        if part.done is not None:
            part.done(None)
        else:
            part.sender.did_part()

    def reckon_up(
        self,
        settlements: Sequence[Settlement],
        sender: ConnectionBase,
        done: Callable[[Acknowledged], None],
    ) -> None:
        """Sum up what an open transaction has acknowledged in parts, serving others in between.

        ``done`` is not called if the sender ends before.
        """
        found = Acknowledged()
        parts = [
            _Reckoned(found, some, sender, None)
            for settlement in settlements
            for some in _in_parts(settlement.entries)
        ]
        parts[-1].done = done
        self._reckoned.add(parts)

    def _reckon_part(self, part: _Reckoned) -> None:
        if part.sender.is_closing:
            return
        for entry in part.entries:
            part.found.add(entry)
        if part.done is not None:
            part.done(part.found)

    def forget(self, acknowledged: Acknowledged) -> None:
        """Remove acknowledged messages from their queues at once; clean up after them in parts."""
        for home, share in acknowledged.shares.items():
            home.settled_many(share.messages, share.octets)
        self._scheduler.commit_queue.forget(acknowledged)
        for entry in acknowledged.entries:
            entry.holder = acknowledged
        acknowledged.finish = self._leaving.finish
        self._leaving.add(_in_parts(acknowledged.entries))

    def _let_go(self, entries: Sequence[MessageReference]) -> None:
        for entry in entries:
            entry.holder = None
            self._release(entry)
            entry.home.let_go(entry)

    def take_away(self, entry: MessageReference) -> None:
        """Take back a message that has not been acknowledged in time."""
        subscription = entry.subscription
        assert subscription is not None  # only delivered entries time out
        connection = subscription.connection
        if connection.ledger.is_full:
            connection.feed()
        connection.ledger.lapse(entry)
        self._freed(entry, subscription)
        entry.home.put_last(subscription)
        entry.home.reject([entry], requeue=True, reason="ack-timeout")

    def _release(self, entry: MessageReference) -> None:
        subscription = entry.subscription
        assert subscription is not None  # only delivered entries are settled
        if not entry.key:
            # Its connection has ended meanwhile.
            self._scheduler.touch(entry.home)
            return
        ledger = subscription.connection.ledger
        if ledger.is_full:
            # Other subscriptions of the connection may have waited for a free slot.
            subscription.connection.feed()
        ledger.discard(entry)
        self._freed(entry, subscription)

    def _freed(self, entry: MessageReference, subscription: Subscription) -> None:
        self._scheduler.touch(entry.home)
        self._scheduler.feed(subscription)
        connection = subscription.connection
        if connection.is_limited and entry.home.is_queue:
            connection.slots += 1
            self._scheduler.pull(connection)

    def give_back(self, entries: list[MessageReference]) -> None:
        """Return the unsettled messages of an ended connection to their destinations."""
        back: dict[DestinationBase, list[MessageReference]] = {each.home: [] for each in entries}
        if len(back) == 1:
            back = dict.fromkeys(back, entries)
        else:
            for entry in entries:
                back[entry.home].append(entry)
        parts: list[_Returned] = []
        for destination, returned in back.items():
            if not destination.is_queue:
                self._scheduler.touch(destination)
                continue
            destination.returning += 1
            # Newest first: each part is placed ahead of those returned before. Nothing is delivered
            # before all are back.
            for end in range(len(returned), 0, -_MOST_RETURNED):
                begin = max(0, end - _MOST_RETURNED)
                parts.append(_Returned(destination, returned[begin:end], is_last=begin == 0))
        self._returns.add(parts)

    def _return(self, part: _Returned) -> None:
        destination = part.destination
        destination.given_back(part.entries)
        if part.is_last:
            destination.returning -= 1
            self._scheduler.touch(destination)
