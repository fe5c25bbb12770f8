"""The jobs that a client has reserved, with their deadlines."""

from __future__ import annotations

from typing import Final

from stompkit._common import LOOK_S, MOST_GRACE_S
from stompkit.server.beanstalk.client import Client
from stompkit.server.beanstalk.hub import Hub
from stompkit.server.beanstalk.jobs import Job, Reservation, pri_of, ttr_of
from stompkit.server.domain.ack_mode import AckMode
from stompkit.server.domain.deliveries import MessageReference, Subscription
from stompkit.server.domain.queues import pulling
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.scheduling.deadlines import Deadlines

__all__ = ["MARGIN_S", "Reservations"]

#: Time in seconds before a job's deadline during which its worker cannot wait for another job.
MARGIN_S: Final = 1.0


class Reservations:
    """The reservations of one client, as pending acknowledgements of its connection."""

    def __init__(self, hub: Hub, client: Client) -> None:
        """Start without reservations."""
        self._hub = hub
        self._client = client
        self._subscription = Subscription(client, None, AckMode.CLIENT_INDIVIDUAL, 1, "1.2")
        self._by_number: dict[int, Reservation] = {}
        self._deadlines: Deadlines[Reservation] = Deadlines()

    def get(self, number: int) -> Reservation | None:
        """Return the reservation of a job."""
        return self._by_number.get(number)

    @property
    def is_full(self) -> bool:
        """True if the client may not reserve another job."""
        most = self._hub.settings.max_reserved
        return self._client.ledger.is_full or len(self._by_number) >= most

    @property
    def first_deadline(self) -> float | None:
        """The time of the first deadline."""
        first = self._deadlines.first()
        return None if first is None else first[0]

    @property
    def is_deadline_soon(self) -> bool:
        """True if the deadline of a reserved job is near."""
        first = self.first_deadline
        return first is not None and self._client.broker.now >= first - MARGIN_S

    def add(self, queue: Queue, entry: MessageReference, job: Job) -> None:
        """Reserve a job that waits in memory."""
        pulling.take(queue, entry)
        self._client.ledger.add(entry, self._subscription)
        message = entry.message
        pri = pri_of(message, has_priorities=queue.policy.priority)
        ttr = ttr_of(message, self._hub.settings.default_ttr_s)
        reservation = Reservation(job, entry, pri, ttr)
        self._by_number[job.number] = self._hub.reserved[job.number] = reservation
        self.touch(reservation)

    def touch(self, reservation: Reservation) -> None:
        """Restart the time-to-run of a job."""
        reservation.deadline = self._client.broker.now + reservation.ttr
        self._deadlines.set(reservation, reservation.deadline)

    def remove(self, reservation: Reservation) -> MessageReference:
        """Remove a reservation; the caller settles the message or returns it."""
        del self._by_number[reservation.job.number]
        del self._hub.reserved[reservation.job.number]
        self._deadlines.discard(reservation)
        self._client.ledger.discard(reservation.entry)
        self._client.broker.touch(reservation.entry.home)
        return reservation.entry

    def give_back(self, reservation: Reservation) -> None:
        """Return a job to its queue."""
        entry = self.remove(reservation)
        entry.home.returned([entry])

    def give_back_expired(self) -> None:
        """Return expired jobs to their queues, unless unread input may concern them."""
        while (late := self._deadlines.pop_due(self._client.broker.now)) is not None:
            self._expire(late)

    def _expire(self, late: Reservation) -> None:
        now = self._client.broker.now
        if self._client.has_input_waiting and now < late.deadline + MOST_GRACE_S:
            self._deadlines.set(late, now + LOOK_S)
            return
        self._hub.timeouts += 1
        late.job.timeouts += 1
        self.give_back(late)

    def clear(self) -> None:
        """Forget all; the connection returns the messages to their queues."""
        for number in self._by_number:
            del self._hub.reserved[number]
        self._by_number.clear()
        self._deadlines.clear()
