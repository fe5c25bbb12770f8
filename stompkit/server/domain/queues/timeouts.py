"""Acknowledgement timeouts of a queue."""

from __future__ import annotations

from typing import Final

from stompkit._common import LOOK_S, MOST_GRACE_S
from stompkit.server.domain.deliveries import MessageReference
from stompkit.server.domain.destinations import Destination
from stompkit.server.domain.scheduling.alarm import Alarm
from stompkit.server.domain.scheduling.deadlines import Deadlines

__all__ = ["AckTimeouts"]

#: Maximum number of deliveries withdrawn in one cycle.
_MOST_TAKEN: Final = 100


class AckTimeouts:
    """Withdraws messages of one queue that are not acknowledged in time.

    A delivery keeps its deadline even if the setting changes later. Deadlines are therefore not
    always in the order of deliveries.
    """

    def __init__(self, queue: Destination) -> None:
        """Start without deliveries."""
        self._queue = queue
        self._deadlines: Deadlines[MessageReference] | None = None
        #: Original deadlines of deliveries with extra time, since their client's input waits.
        self._missed: dict[MessageReference, float] = {}
        self._alarm: Alarm | None = None

    def watch(self, entry: MessageReference) -> None:
        """Start the timeout of a delivery."""
        timeout_s = self._queue.policy.ack_timeout_s
        if timeout_s:
            self._wait(entry, self._queue.host.scheduler.now + timeout_s)

    def _wait(self, entry: MessageReference, until: float) -> None:
        if self._deadlines is None:
            self._deadlines = Deadlines()
            self._alarm = Alarm(self._queue.host.scheduler, self._on_time)
        assert self._alarm is not None  # made together
        self._deadlines.set(entry, until)
        self._alarm.set(until)

    def forget(self, entry: MessageReference) -> None:
        """Stop the timeout: the message has been settled or returned."""
        if self._deadlines is not None:
            self._deadlines.discard(entry)
            if self._missed:
                self._missed.pop(entry, None)

    def clear(self) -> None:
        """Cancel all timeouts: the queue is being removed."""
        if self._deadlines is not None:
            self._deadlines.clear()
        self._missed.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            # It refers back.
            self._alarm = None

    def _on_time(self) -> None:
        deadlines, alarm = self._deadlines, self._alarm
        assert deadlines is not None and alarm is not None  # who has set the alarm made both
        now = self._queue.host.scheduler.now
        for _ in range(_MOST_TAKEN):
            first = deadlines.first()
            if first is None or first[0] > now:
                break
            self._end(deadlines, first[1], first[0])
        first = deadlines.first()
        if first is not None:
            alarm.set(first[0])

    def _end(
        self, deadlines: Deadlines[MessageReference], entry: MessageReference, deadline: float
    ) -> None:
        broker = self._queue.host.broker
        deadlines.discard(entry)
        if not entry.key:
            # Its consumer is gone, and it is about to return.
            self._missed.pop(entry, None)
            return
        if self._may_be_settled(entry, deadline):
            deadlines.set(entry, broker.scheduler.now + LOOK_S)
            return
        self._missed.pop(entry, None)
        if entry.holder is None:
            broker.settler.take_away(entry)
        else:
            # Acknowledgements in an open transaction count as settled. If it is aborted, the
            # timeout starts again.
            self.watch(entry)

    def _may_be_settled(self, entry: MessageReference, deadline: float) -> bool:
        """Return True if unprocessed input of the consumer may acknowledge the message."""
        subscription = entry.subscription
        if subscription is None or not subscription.connection.has_input_waiting:
            return False
        missed = self._missed.setdefault(entry, deadline)
        return self._queue.host.scheduler.now < missed + MOST_GRACE_S
