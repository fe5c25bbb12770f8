"""Handlers of commands for single jobs."""

from __future__ import annotations

from typing import cast

from stompkit.server.beanstalk.finding import find
from stompkit.server.beanstalk.hub import Hub
from stompkit.server.beanstalk.job_states import drop, make_ready, take_back, total_counts
from stompkit.server.beanstalk.jobs import (
    Job,
    Reservation,
    delay_of,
    job_message,
    rewritten,
    state_headers,
)
from stompkit.server.beanstalk.parser import BAD_FORMAT, Command
from stompkit.server.beanstalk.replies import NOT_FOUND, OUT_OF_MEMORY
from stompkit.server.beanstalk.session import Answer, Session
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues.queue import Queue

__all__ = [
    "on_bury",
    "on_delete",
    "on_put",
    "on_release",
    "on_reserve",
    "on_reserve_job",
    "on_touch",
]


def on_put(session: Session, command: Command) -> Answer:
    """Put a job into the tube in use."""
    hub, broker, tube = session.hub, session.broker, session.used
    session.is_producer = True
    if hub.settings.draining:
        return b"DRAINING\r\n"
    if not hub.is_allowed(tube):
        return BAD_FORMAT
    now = broker.scheduler.wall
    message = job_message(broker.new_message(), tube, command.numbers, command.body, now)
    session.host.send(message, session)
    hub.jobs += 1
    hub.count(hub.puts, tube)
    return b"INSERTED %d\r\n" % hub.learn(message, tube).number


def on_reserve(session: Session, command: Command) -> Answer:
    """Reserve the most urgent job, or wait for one, with a timeout in seconds if given."""
    session.is_worker = True
    seconds = command.numbers[0] if command.numbers else None
    session.worker.wait(seconds)
    return None


async def on_reserve_job(session: Session, command: Command) -> bytes:
    """Reserve a job by its id, within the limits for ``reserve``."""
    if session.reservations.is_full:
        return OUT_OF_MEMORY
    found = await find(session.hub, command.numbers[0])
    if found is None or found.state == "reserved":
        return NOT_FOUND
    if found.state != "ready":
        # The job is made ready first, and only then reserved.
        if not make_ready(session, found):
            return NOT_FOUND
        await session.replies.barrier()
        found = await find(session.hub, command.numbers[0])
    if found is None or found.entry is None or found.state != "ready":
        return NOT_FOUND
    session.is_worker = True
    return session.worker.reserve(found.queue, found.entry, found.job)


def on_delete(session: Session, command: Command) -> Answer:
    """Delete a job that this client or nobody has reserved."""
    number = command.numbers[0]
    reservation = session.reservations.get(number)
    if reservation is None:
        return _delete(session, number)
    entry = session.reservations.remove(reservation)
    entry.home.settled(entry)
    return _deleted(session.hub, reservation.job)


async def _delete(session: Session, number: int) -> bytes:
    found = await find(session.hub, number)
    if found is None or found.state == "reserved":
        return NOT_FOUND
    drop(found)
    session.broker.touch(found.queue)
    return _deleted(session.hub, found.job)


def _deleted(hub: Hub, job: Job) -> bytes:
    hub.count(hub.deletes, job.tube)
    hub.forget(job)
    return b"DELETED\r\n"


def on_release(session: Session, command: Command) -> Answer:
    """Release a job, with a priority and an optional delay."""
    number, pri, delay = command.numbers
    reservation = session.reservations.get(number)
    if reservation is None:
        return NOT_FOUND
    entry, job = reservation.entry, reservation.job
    message, queue = entry.message, cast("Queue", entry.home)
    if pri == reservation.pri and not delay and not delay_of(message):
        job.releases += 1
        session.reservations.give_back(reservation)
        return b"RELEASED\r\n"
    counts = total_counts(job, entry, releases=1)
    now = session.broker.scheduler.wall
    made = rewritten(message, counts, pri, delay=delay, now=now)
    queue.check(made)
    if made.due:
        queue.check_delays(1, made.size)
    _replace(session, reservation, queue, made)
    return b"RELEASED\r\n"


def _replace(session: Session, reservation: Reservation, queue: Queue, message: Message) -> None:
    """Replace a reserved message by another one of the same queue, or change nothing."""
    entry = session.reservations.remove(reservation)
    queue.settled(entry)
    queue.put(message)
    reservation.job.written()
    take_back(session, entry)


def on_bury(session: Session, command: Command) -> Answer:
    """Bury a job: move it to the dead letters of its tube."""
    number, pri = command.numbers
    reservation = session.reservations.get(number)
    if reservation is None:
        return NOT_FOUND
    entry, job, home = reservation.entry, reservation.job, reservation.entry.home
    if home.policy.dead_letters:
        counts = total_counts(job, entry, buries=1)
        headers = state_headers(entry.message, counts, pri)

        def apply() -> None:
            session.host.dead_letter(entry, "buried", headers)
            home.settled(session.reservations.remove(reservation))

        session.host.together(apply)
        job.written()
        take_back(session, entry)
    else:
        session.hub.forget(job)
        home.settled(session.reservations.remove(reservation))
    return b"BURIED\r\n"


def on_touch(session: Session, command: Command) -> Answer:
    """Restart the time-to-run of a job."""
    reservation = session.reservations.get(command.numbers[0])
    if reservation is None:
        return NOT_FOUND
    session.worker.touch(reservation)
    return b"TOUCHED\r\n"
