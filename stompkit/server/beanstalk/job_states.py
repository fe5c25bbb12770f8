"""Changes of the state of a job."""

from __future__ import annotations

from stompkit.server.beanstalk.buried import first_message
from stompkit.server.beanstalk.finding import Found
from stompkit.server.beanstalk.jobs import Job, pri_of, queue_of, rewritten
from stompkit.server.beanstalk.session import Session
from stompkit.server.domain.deliveries import MessageReference
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.queues import pulling

__all__ = ["drop", "make_ready", "take_back", "total_counts"]


def drop(found: Found) -> None:
    """Delete a job that nobody has reserved."""
    queue = found.queue
    if found.entry is not None:
        pulling.drop(queue, found.entry)
        return
    if found.state == "delayed":
        queue.delays.drop(found.place)
    if found.stored is not None and found.sub_queue is not None:
        queue.forget_stored(found.sub_queue, found.stored)
    else:
        queue.forget_delayed(found.message)


def total_counts(
    job: Job, entry: MessageReference, *, releases: int = 0, buries: int = 0
) -> tuple[int, ...]:
    """Return the counters of a reserved job, increased by the given numbers."""
    reserves, timeouts, released, buried, kicks = job.counts(entry.message, entry.deliveries)
    return reserves, timeouts, released + releases, buried + buries, kicks


def take_back(session: Session, entry: MessageReference) -> None:
    """Return a settled message to its queue if the store cannot apply the change."""
    session.broker.commit_queue.take([entry])


def make_ready(session: Session, found: Found) -> bool:
    """Make a buried or delayed job ready; return False if there is no room for it."""
    if found.state == "delayed":
        found.queue.delays.hurry(found.place, found.message)
        return True
    message, job = found.message, found.job
    first = first_message(session, message, job.tube)
    if first is None:
        return False
    counts = job.counts(message, found.deliveries)
    pri = pri_of(message, has_priorities=found.queue.policy.priority)
    back = rewritten(first, counts, pri)

    def apply() -> None:
        session.host.put_back(back, queue_of(job.tube))
        drop(found)

    try:
        session.host.together(apply)
    except RefusedError:
        return False
    job.written()
    if found.entry is not None:
        take_back(session, found.entry)
    session.broker.touch(found.queue)
    return True
