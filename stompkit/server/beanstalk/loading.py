"""Wait until the messages of a queue are in memory."""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred

from stompkit.server.domain.broker import Broker
from stompkit.server.domain.queues import pulling
from stompkit.server.domain.queues.queue import Queue

__all__ = ["RETRY_S", "loaded"]

#: Interval in seconds at which a client that waits for the store retries after a failure.
RETRY_S: Final = 1.0


class _Load(pulling.Puller):
    """Resumes when a queue may have been loaded into memory."""

    def __init__(self, done: Deferred[None]) -> None:
        """Call ``done`` once."""
        self._done = done

    def offered(self, queue: Queue) -> None:
        """Resume."""
        queue.pullers.pop(self, None)
        if not self._done.called:
            self._done.callback(None)


async def loaded(broker: Broker, queue: Queue) -> None:
    """Wait until the front of a queue may have been loaded."""
    done: Deferred[None] = Deferred()
    load = _Load(done)
    queue.pullers[load] = None
    timer = broker.later(RETRY_S, lambda: load.offered(queue))
    try:
        await done
    finally:
        queue.pullers.pop(load, None)
        broker.cancel(timer)
