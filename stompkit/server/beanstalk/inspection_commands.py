"""Handlers of the commands that show jobs, tubes and statistics."""

from __future__ import annotations

from stompkit.server.beanstalk.buried import next_buried
from stompkit.server.beanstalk.finding import Cursor, find, first_delayed
from stompkit.server.beanstalk.jobs import Job
from stompkit.server.beanstalk.loading import loaded
from stompkit.server.beanstalk.parser import Command
from stompkit.server.beanstalk.replies import NOT_FOUND
from stompkit.server.beanstalk.session import Answer, Session
from stompkit.server.beanstalk.stats import job_stats, names, server_stats, tube_stats
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues import pulling
from stompkit.server.domain.queues.queue import Queue

__all__ = [
    "on_list_tube_used",
    "on_list_tubes",
    "on_list_tubes_watched",
    "on_peek",
    "on_peek_buried",
    "on_peek_delayed",
    "on_peek_ready",
    "on_stats",
    "on_stats_job",
    "on_stats_tube",
]


async def on_peek(session: Session, command: Command) -> bytes:
    """Show a job."""
    found = await find(session.hub, command.numbers[0])
    return NOT_FOUND if found is None else _shown(found.job, found.message)


async def on_peek_ready(session: Session, command: Command) -> bytes:
    """Show the job that would be reserved next."""
    hub, tube = session.hub, session.used
    await _load_front(session, hub.queue(tube))
    best = hub.best(tube)
    if best is None:
        return NOT_FOUND
    message = best[1].message
    return _shown(hub.learn(message, tube), message)


async def _load_front(session: Session, queue: Queue | None) -> None:
    """Wait until the first messages of a queue are in memory."""
    while queue is not None and not pulling.front(queue, 1) and pulling.is_loading(queue):
        await loaded(session.broker, queue)


async def on_peek_delayed(session: Session, command: Command) -> bytes:
    """Show the job that will be ready next."""
    found = await first_delayed(session.hub, session.used)
    return NOT_FOUND if found is None else _shown(found.job, found.message)


async def on_peek_buried(session: Session, command: Command) -> bytes:
    """Show the job that would be kicked next."""
    page = await next_buried(session, Cursor())
    if not page:
        return NOT_FOUND
    message = page[0].message
    return _shown(session.hub.learn(message, session.used), message)


def _shown(job: Job, message: Message) -> bytes:
    return b"FOUND %d %d\r\n%b\r\n" % (job.number, len(message.body), message.body)


def on_stats(session: Session, command: Command) -> Answer:
    """Report statistics of the server."""
    return _document(server_stats(session.hub))


def on_stats_tube(session: Session, command: Command) -> Answer:
    """Report statistics of a tube."""
    hub = session.hub
    if not hub.exists(command.tube):
        return NOT_FOUND
    return _document(tube_stats(hub, command.tube))


async def on_stats_job(session: Session, command: Command) -> bytes:
    """Report statistics of a job."""
    found = await find(session.hub, command.numbers[0])
    return NOT_FOUND if found is None else _document(job_stats(session.hub, found))


def on_list_tubes(session: Session, command: Command) -> Answer:
    """List all tubes."""
    return _document(names(session.hub.tubes()))


def on_list_tube_used(session: Session, command: Command) -> Answer:
    """Report the tube in use."""
    return b"USING %b\r\n" % session.used.encode()


def on_list_tubes_watched(session: Session, command: Command) -> Answer:
    """List the watched tubes."""
    return _document(names(session.watched))


def _document(text: str) -> bytes:
    data = text.encode()
    return b"OK %d\r\n%b\r\n" % (len(data), data)
