"""Notifications of jobs for a client that waits."""

from __future__ import annotations

from typing import cast

from stompkit.server.beanstalk.client import Client
from stompkit.server.beanstalk.hub import Hub
from stompkit.server.beanstalk.jobs import queue_of
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.queues import pulling
from stompkit.server.domain.queues.queue import Queue

__all__ = ["Offers"]


class Offers(pulling.Puller):
    """Notifies a client when a queue of its tubes may have messages."""

    def __init__(self, hub: Hub, client: Client) -> None:
        """Start without notifications."""
        self._hub = hub
        self._client = client
        self._queues: dict[Queue, None] = {}
        #: Tubes whose queues could not be created for lack of room.
        self._missing: list[str] = []

    def expect(self) -> None:
        """Register for notifications of jobs, also from queues that cannot be created now."""
        for tube in filter(self._hub.is_allowed, self._client.watched):
            queue = self._hub.queue(tube)
            if queue is None:
                try:
                    made = self._hub.host.destination(queue_of(tube), self._client)
                except RefusedError:
                    self._hub.host.expect(queue_of(tube), self)
                    self._missing.append(tube)
                    continue
                queue = cast("Queue", made)
            queue.pullers[self] = None
            self._queues[queue] = None

    def offered(self, queue: Queue) -> None:
        """Check for a job; a queue that has been removed is created again."""
        if self in queue.pullers:
            self._queues[queue] = None
        else:
            self._queues.pop(queue, None)
        self._client.look_again()

    def stop(self) -> None:
        """End all notifications."""
        for queue in self._queues:
            queue.pullers.pop(self, None)
            self._hub.broker.touch(queue)
        self._queues.clear()
        for tube in self._missing:
            self._hub.host.expect_no_more(queue_of(tube), self)
        self._missing.clear()
