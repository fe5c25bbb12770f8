"""A client that reserves jobs: its wait for a job, and the timer of its deadlines."""

from __future__ import annotations

from typing import cast

from stompkit.server.beanstalk.client import Client
from stompkit.server.beanstalk.hub import Hub, Rank
from stompkit.server.beanstalk.jobs import Job, Reservation
from stompkit.server.beanstalk.loading import RETRY_S
from stompkit.server.beanstalk.offers import Offers
from stompkit.server.beanstalk.reservations import MARGIN_S, Reservations
from stompkit.server.domain.deliveries import MessageReference
from stompkit.server.domain.queues import pulling
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.scheduling.alarm import Alarm

__all__ = ["Worker"]


class Worker:
    """Reserves jobs for one client, and waits for them."""

    def __init__(self, hub: Hub, client: Client) -> None:
        """Start without jobs."""
        self._hub = hub
        self._client = client
        self._broker = hub.broker
        self.reservations = Reservations(hub, client)
        self._offers = Offers(hub, client)
        self._alarm = Alarm(hub.broker.scheduler, self._on_time)
        #: Time when the wait ends; None without a timeout.
        self._until: float | None = None

    def reserve(self, queue: Queue, entry: MessageReference, job: Job) -> bytes:
        """Reserve a job that waits in memory; return the reply."""
        self.reservations.add(queue, entry, job)
        self._set_alarm()
        body = entry.message.body
        return b"RESERVED %d %d\r\n%b\r\n" % (job.number, len(body), body)

    def touch(self, reservation: Reservation) -> None:
        """Restart the time-to-run of a job."""
        self.reservations.touch(reservation)
        self._set_alarm()

    def release(self) -> None:
        """End the wait, and forget all reservations."""
        self._client.is_waiting = False
        self._offers.stop()
        self._alarm.cancel()
        self.reservations.clear()

    # The wait.

    def wait(self, seconds: int | None) -> None:
        """Wait for a job, until :meth:`look_again` ends the wait."""
        self._client.is_waiting = True
        self._until = None if seconds is None else self._broker.now + seconds
        self._look()

    def look_again(self) -> None:
        """Check for a job, if the client waits for one."""
        if self._client.is_waiting:
            self._look()

    def stop_waiting(self, reply: bytes) -> None:
        """End the wait with a reply."""
        self._client.is_waiting = False
        self._until = None
        self._offers.stop()
        self._client.finish(reply)

    def _look(self) -> None:
        reply = self._reserve_best()
        if reply is not None:
            self.stop_waiting(reply)
        elif self.reservations.is_deadline_soon:
            self.stop_waiting(b"DEADLINE_SOON\r\n")
        elif self._until is not None and self._until <= self._broker.now and not self._is_loading():
            self.stop_waiting(b"TIMED_OUT\r\n")
        else:
            self._offers.expect()
            self._set_alarm()

    def _reserve_best(self) -> bytes | None:
        """Reserve the most urgent job of the watched tubes, if there is one."""
        best: tuple[Rank, MessageReference] | None = None
        tube_of_best = ""
        if self.reservations.is_full:
            return None
        for tube in self._client.watched:
            queue = self._hub.queue(tube)
            if queue is None or queue.is_paused or self._hub.paused_until(tube):
                continue
            found = self._hub.best(tube)
            if found is not None and (best is None or found[0] < best[0]):
                best, tube_of_best = found, tube
        if best is None:
            return None
        entry = best[1]
        job = self._hub.learn(entry.message, tube_of_best)
        return self.reserve(cast("Queue", entry.home), entry, job)

    def _is_loading(self) -> bool:
        queues = map(self._hub.queue, self._client.watched)
        return any(queue is not None and pulling.is_loading(queue) for queue in queues)

    # The timer.

    def _set_alarm(self) -> None:
        """Set the alarm to the next deadline."""
        moments = []
        is_waiting, first = self._client.is_waiting, self.reservations.first_deadline
        if first is not None:
            moments.append(first - (MARGIN_S if is_waiting else 0.0))
        if is_waiting and self._until is not None:
            moments.append(self._broker.now + RETRY_S if self._is_loading() else self._until)
        if moments:
            self._alarm.set(min(moments))

    def _on_time(self) -> None:
        if self._client.is_closing:
            return
        was_soon = self._client.is_waiting and self.reservations.is_deadline_soon
        self.reservations.give_back_expired()
        if was_soon:
            self.stop_waiting(b"DEADLINE_SOON\r\n")
        elif self._client.is_waiting:
            self._look()
        self._set_alarm()
