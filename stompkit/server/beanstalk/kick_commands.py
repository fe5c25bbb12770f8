"""Handlers of the commands that make buried and delayed jobs ready."""

from __future__ import annotations

from typing import Final

from stompkit.server.beanstalk.buried import next_buried, pause
from stompkit.server.beanstalk.finding import Cursor, DeadLetter, Found, find, first_delayed
from stompkit.server.beanstalk.job_states import make_ready
from stompkit.server.beanstalk.jobs import Job
from stompkit.server.beanstalk.parser import Command
from stompkit.server.beanstalk.replies import NOT_FOUND
from stompkit.server.beanstalk.session import Session

__all__ = ["on_kick", "on_kick_job"]

#: Number of jobs kicked before other clients are served.
_MOST_KICKED: Final = 250


async def on_kick(session: Session, command: Command) -> bytes:
    """Kick buried jobs of the tube in use; if there are none, delayed ones."""
    count = await _kick_buried(session, command.numbers[0])
    if count is None:
        count = await _kick_delayed(session, command.numbers[0])
    await session.replies.barrier()
    return b"KICKED %d\r\n" % count


async def _kick_buried(session: Session, bound: int) -> int | None:
    """Kick buried jobs; return their number, or ``None`` if there are none."""
    count: int | None = None
    cursor = Cursor()
    while (count or 0) < bound:
        page = await next_buried(session, cursor)
        if not page:
            break
        count = count or 0
        for buried in page[: bound - count]:
            job = session.hub.learn(buried.message, session.used)
            if not _bring_back(session, buried, job):
                return count
            count += 1
        await pause(session)
    return count


def _bring_back(session: Session, buried: DeadLetter, job: Job) -> bool:
    job.kicks += 1
    found = Found(
        "buried",
        job,
        buried.message,
        buried.queue,
        buried.deliveries,
        buried.entry,
        sub_queue=buried.sub_queue,
        stored=buried.stored,
    )
    if make_ready(session, found):
        return True
    job.kicks -= 1
    return False


async def _kick_delayed(session: Session, bound: int) -> int:
    count = 0
    while count < bound:
        found = await first_delayed(session.hub, session.used)
        if found is None:
            break
        found.queue.delays.hurry(found.place, found.message)
        found.job.kicks += 1
        count += 1
        if count % _MOST_KICKED == 0:
            await pause(session)
    return count


async def on_kick_job(session: Session, command: Command) -> bytes:
    """Kick one buried or delayed job."""
    found = await find(session.hub, command.numbers[0])
    if found is None or found.state not in ("buried", "delayed"):
        return NOT_FOUND
    found.job.kicks += 1
    if not make_ready(session, found):
        found.job.kicks -= 1
        return NOT_FOUND
    await session.replies.barrier()
    return b"KICKED\r\n"
