"""Consumers that keep messages for too long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompkit.server._entries import Entry

if TYPE_CHECKING:
    from stompkit.server._queues import Queue

__all__ = ["AckTimeouts"]


class AckTimeouts:
    """Takes messages of one queue back that nobody has acknowledged in time."""

    def __init__(self, queue: Queue) -> None:
        """Begin with nothing delivered."""
        self._queue = queue
        #: What is delivered, with the deadlines, which are in order.
        self._deadlines: dict[Entry, float] = {}
        self._armed = False

    def watch(self, entry: Entry) -> None:
        """Begin to wait for the acknowledgement of a delivery."""
        timeout_s = self._queue.policy.ack_timeout_s
        if timeout_s:
            self._deadlines[entry] = self._queue.host.broker.now + timeout_s
            self._arm()

    def forget(self, entry: Entry) -> None:
        """Wait no more: the entry has been settled, or has come back."""
        if self._deadlines:
            self._deadlines.pop(entry, None)

    def _arm(self) -> None:
        if self._deadlines and not self._armed:
            self._armed = True
            broker = self._queue.host.broker
            first = next(iter(self._deadlines.values()))
            broker.later(max(0.0, first - broker.clock.seconds()), self._on_time)

    def _on_time(self) -> None:
        self._armed = False
        broker = self._queue.host.broker
        late = []
        for entry, deadline in self._deadlines.items():
            if deadline > broker.now:
                break
            late.append(entry)
        for entry in late:
            del self._deadlines[entry]
            if entry.holder is None:
                broker.take_away(entry)
            else:
                # What a transaction has acknowledged is as good as settled while that is open,
                # and has its whole time again should it be aborted.
                self.watch(entry)
        self._arm()
