"""Handlers of beanstalkd's commands.

A handler returns the reply, ``None`` if it follows later, or a coroutine if the store must be
asked. It may raise ``RefusedError``.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from twisted.internet.defer import Deferred

from stompkit.server.beanstalk.finding import (
    Cursor,
    Found,
    Letter,
    find,
    first_delayed,
    letters_behind,
)
from stompkit.server.beanstalk.hub import Hub, Reservation
from stompkit.server.beanstalk.jobs import (
    Job,
    delay_of,
    job_message,
    pri_of,
    queue_of,
    rewritten,
    state_headers,
)
from stompkit.server.beanstalk.stats import job_stats, names, server_stats, tube_stats
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues import pulling
from stompkit.server.domain.queues.dead_letters import read_dead_letter
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.queues.references import MessageReference

if TYPE_CHECKING:
    from stompkit.server.beanstalk.parser import Command
    from stompkit.server.beanstalk.session import Session

__all__ = ["COMMANDS", "OVERLAPPING", "Handler"]

Answer: TypeAlias = "bytes | Coroutine[Any, Any, bytes] | None"
Handler: TypeAlias = "Callable[[Session, Command], Answer]"

#: Commands that do not wait until the store has the changes of earlier commands.
OVERLAPPING: Final = frozenset({"put", "delete", "release", "bury", "touch"})

_NOT_FOUND: Final = b"NOT_FOUND\r\n"
_BAD_FORMAT: Final = b"BAD_FORMAT\r\n"
#: Number of jobs kicked before other clients are served.
_MOST_KICKED: Final = 250


# Producers.


def on_put(session: Session, command: Command) -> Answer:
    """Put a job into the tube in use."""
    hub, broker, tube = session.hub, session.broker, session.used
    session.is_producer = True
    if hub.settings.draining:
        return b"DRAINING\r\n"
    if not hub.is_allowed(tube):
        return _BAD_FORMAT
    message = job_message(broker.new_message(), tube, command.numbers, command.body, broker.now)
    session.host.send(message, session)
    hub.jobs += 1
    hub.count(hub.puts, tube)
    return b"INSERTED %d\r\n" % hub.learn(message, tube).number


def on_use(session: Session, command: Command) -> Answer:
    """Use a tube."""
    if not session.hub.is_allowed(command.tube):
        return _BAD_FORMAT
    session.use(command.tube)
    return b"USING %b\r\n" % command.tube.encode()


# Workers: jobs.


def on_reserve(session: Session, command: Command) -> Answer:
    """Reserve the most urgent job, or wait for one, with a timeout in seconds if given."""
    session.is_worker = True
    seconds = command.numbers[0] if command.numbers else None
    session.wait(seconds)
    return None


def on_reserve_job(session: Session, command: Command) -> Answer:
    """Reserve a job by its id."""
    return _reserve_job(session, command.numbers[0])


async def _reserve_job(session: Session, number: int) -> bytes:
    found = await find(session.hub, number)
    if found is None or found.state == "reserved":
        return _NOT_FOUND
    if found.state != "ready":
        # The job is made ready first, and only then reserved.
        if not _make_ready(session, found):
            return _NOT_FOUND
        if session.broker.journal is not None:
            await kept(session)
        found = await find(session.hub, number)
    if found is None or found.entry is None or found.state != "ready":
        return _NOT_FOUND
    session.is_worker = True
    return session.reserve(found.queue, found.entry, found.job)


def on_delete(session: Session, command: Command) -> Answer:
    """Delete a job that this client or nobody has reserved."""
    number = command.numbers[0]
    reservation = session.reservation(number)
    if reservation is None:
        return _delete(session, number)
    entry = session.let_go(reservation)
    entry.home.settled(entry)
    return _deleted(session.hub, reservation.job)


async def _delete(session: Session, number: int) -> bytes:
    found = await find(session.hub, number)
    if found is None or found.state == "reserved":
        return _NOT_FOUND
    queue = found.queue
    if found.entry is not None:
        pulling.drop(queue, found.entry)
    else:
        _drop_elsewhere(found)
    session.broker.touch(queue)
    return _deleted(session.hub, found.job)


def _drop_elsewhere(found: Found) -> None:
    """Delete a job that is delayed, or only in the store."""
    queue = found.queue
    if found.state == "delayed":
        queue.delays.drop(found.place)
    if found.stored is not None and found.lane is not None:
        queue.forget_stored(found.lane, found.stored)
    else:
        queue.forget_delayed(found.message)


def _deleted(hub: Hub, job: Job) -> bytes:
    hub.count(hub.deletes, job.tube)
    hub.forget(job)
    return b"DELETED\r\n"


def on_release(session: Session, command: Command) -> Answer:
    """Release a job, with a priority and an optional delay."""
    number, pri, delay = command.numbers
    reservation = session.reservation(number)
    if reservation is None:
        return _NOT_FOUND
    entry, job = reservation.entry, reservation.job
    message, queue = entry.message, cast("Queue", entry.home)
    if pri == reservation.pri and not delay and not delay_of(message):
        job.releases += 1
        session.give_back(reservation)
        return b"RELEASED\r\n"
    counts = _counts(job, entry, releases=1)
    now = session.broker.now
    made = rewritten(message, counts, pri, delay=delay, now=now)
    queue.check(made)
    if made.due:
        queue.check_delays(1, made.size)
    _replace(session, reservation, queue, made)
    return b"RELEASED\r\n"


def _counts(
    job: Job, entry: MessageReference, *, releases: int = 0, buries: int = 0
) -> tuple[int, ...]:
    reserves, timeouts, released, buried, kicks = job.counts(entry.message, entry.deliveries)
    return reserves, timeouts, released + releases, buried + buries, kicks


def _replace(session: Session, reservation: Reservation, queue: Queue, message: Message) -> None:
    """Replace a reserved message by another one of the same queue, or change nothing."""
    entry = session.let_go(reservation)
    queue.settled(entry)
    queue.put(message)
    reservation.job.written()
    _take(session, entry)


def _take(session: Session, entry: MessageReference) -> None:
    """Return a settled message to its queue if the store cannot apply the change."""
    journal = session.broker.journal
    if journal is not None:
        journal.take([entry])


def on_bury(session: Session, command: Command) -> Answer:
    """Bury a job: move it to the dead letters of its tube."""
    number, pri = command.numbers
    reservation = session.reservation(number)
    if reservation is None:
        return _NOT_FOUND
    entry, job, home = reservation.entry, reservation.job, reservation.entry.home
    if home.policy.dead_letters:
        counts = _counts(job, entry, buries=1)
        headers = state_headers(entry.message, counts, pri)

        def apply() -> None:
            session.host.dead_letter(entry, "buried", headers)
            home.settled(session.let_go(reservation))

        session.host.together(apply)
        job.written()
        _take(session, entry)
    else:
        session.hub.forget(job)
        home.settled(session.let_go(reservation))
    return b"BURIED\r\n"


def on_touch(session: Session, command: Command) -> Answer:
    """Restart the time-to-run of a job."""
    reservation = session.reservation(command.numbers[0])
    if reservation is None:
        return _NOT_FOUND
    session.touch(reservation)
    return b"TOUCHED\r\n"


# Workers: tubes.


def on_watch(session: Session, command: Command) -> Answer:
    """Watch one more tube."""
    hub = session.hub
    if not hub.is_allowed(command.tube):
        return _BAD_FORMAT
    if len(session.watched) >= hub.settings.max_watched and command.tube not in session.watched:
        return b"OUT_OF_MEMORY\r\n"
    session.watch(command.tube)
    return b"WATCHING %d\r\n" % len(session.watched)


def on_ignore(session: Session, command: Command) -> Answer:
    """Stop watching a tube, unless it is the last one."""
    if command.tube in session.watched and len(session.watched) == 1:
        return b"NOT_IGNORED\r\n"
    session.ignore(command.tube)
    return b"WATCHING %d\r\n" % len(session.watched)


# Kicking.


def on_kick(session: Session, command: Command) -> Answer:
    """Kick buried jobs of the tube in use; if there are none, delayed ones."""
    return _kick(session, command.numbers[0])


async def _kick(session: Session, bound: int) -> bytes:
    count = await _kick_buried(session, bound)
    if count is None:
        count = await _kick_delayed(session, bound)
    await kept(session)
    return b"KICKED %d\r\n" % count


async def _kick_buried(session: Session, bound: int) -> int | None:
    """Kick buried jobs; return their number, or ``None`` if there are none."""
    count: int | None = None
    cursor = Cursor()
    while (count or 0) < bound:
        page = await _next_buried(session, cursor)
        if not page:
            break
        count = count or 0
        for letter in page[: bound - count]:
            job = session.hub.learn(letter.message, session.used)
            if not _bring_back(session, letter, job):
                return count
            count += 1
        await _pause(session)
    return count


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
            await _pause(session)
    return count


def on_kick_job(session: Session, command: Command) -> Answer:
    """Kick one buried or delayed job."""
    return _kick_job(session, command.numbers[0])


async def _kick_job(session: Session, number: int) -> bytes:
    found = await find(session.hub, number)
    if found is None or found.state not in ("buried", "delayed"):
        return _NOT_FOUND
    found.job.kicks += 1
    if not _make_ready(session, found):
        found.job.kicks -= 1
        return _NOT_FOUND
    await kept(session)
    return b"KICKED\r\n"


def _make_ready(session: Session, found: Found) -> bool:
    """Make a buried or delayed job ready; return False if there is no room for it."""
    if found.state == "delayed":
        found.queue.delays.hurry(found.place, found.message)
        return True
    message, job = found.message, found.job
    first = _first_message(session, message, job.tube)
    if first is None:
        return False
    counts = job.counts(message, found.deliveries)
    pri = pri_of(message, has_priorities=found.queue.policy.priority)
    back = rewritten(first, counts, pri)

    def apply() -> None:
        session.host.put_back(back, queue_of(job.tube))
        if found.entry is not None:
            pulling.drop(found.queue, found.entry)
        else:
            _drop_elsewhere(found)

    try:
        session.host.together(apply)
    except RefusedError:
        return False
    job.written()
    if found.entry is not None:
        _take(session, found.entry)
    session.broker.touch(found.queue)
    return True


def _first_message(session: Session, message: Message, tube: str) -> Message | None:
    """Return the job as it was before it was buried; ``None`` if it cannot return to that tube."""
    letter = read_dead_letter(message)
    if letter is None or letter.source != queue_of(tube):
        # A client has sent the message there, or an operator has moved it there.
        return None
    return None if letter.first.is_expired(session.broker.now) else letter.first


def _bring_back(session: Session, letter: Letter, job: Job) -> bool:
    job.kicks += 1
    found = Found(
        "buried",
        job,
        letter.message,
        letter.queue,
        letter.deliveries,
        letter.entry,
        lane=letter.lane,
        stored=letter.stored,
    )
    if _make_ready(session, found):
        return True
    job.kicks -= 1
    return False


async def _first(session: Session, queue: Queue | None) -> list[MessageReference]:
    """Return the first messages of a queue, once they are in memory."""
    while queue is not None:
        entries = pulling.front(queue, _MOST_KICKED)
        if entries or not pulling.is_loading(queue):
            return entries
        await session.loaded(queue)
    return []


async def _next_buried(session: Session, cursor: Cursor) -> list[Letter]:
    """Return the next buried jobs of the tube in use, without those that cannot return to it."""
    tube = session.used
    while page := await letters_behind(session, session.hub.dead_letters(tube), cursor):
        found = [each for each in page if _first_message(session, each.message, tube) is not None]
        if found:
            return found
        await _pause(session)
    return []


async def _pause(session: Session) -> None:
    """Give other clients a chance to be served."""
    turn: Deferred[None] = Deferred()
    session.broker.later(0.0, lambda: None if turn.called else turn.callback(None))
    await turn


async def kept(session: Session) -> None:
    """Wait until the store has all changes made so far."""
    journal = session.broker.journal
    if journal is not None:
        await session.barrier()


# Inspecting.


def on_peek(session: Session, command: Command) -> Answer:
    """Show a job."""
    return _peek(session, command.numbers[0])


async def _peek(session: Session, number: int) -> bytes:
    found = await find(session.hub, number)
    return _NOT_FOUND if found is None else _shown(found.job, found.message)


def on_peek_ready(session: Session, command: Command) -> Answer:
    """Show the job that would be reserved next."""
    return _peek_ready(session)


async def _peek_ready(session: Session) -> bytes:
    hub, tube = session.hub, session.used
    await _first(session, hub.queue(tube))
    best = hub.best(tube)
    if best is None:
        return _NOT_FOUND
    message = best[1].message
    return _shown(hub.learn(message, tube), message)


def on_peek_delayed(session: Session, command: Command) -> Answer:
    """Show the job that will be ready next."""
    return _peek_delayed(session)


async def _peek_delayed(session: Session) -> bytes:
    found = await first_delayed(session.hub, session.used)
    return _NOT_FOUND if found is None else _shown(found.job, found.message)


def on_peek_buried(session: Session, command: Command) -> Answer:
    """Show the job that would be kicked next."""
    return _peek_buried(session)


async def _peek_buried(session: Session) -> bytes:
    page = await _next_buried(session, Cursor())
    if not page:
        return _NOT_FOUND
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
        return _NOT_FOUND
    return _document(tube_stats(hub, command.tube))


def on_stats_job(session: Session, command: Command) -> Answer:
    """Report statistics of a job."""
    return _stats_job(session, command.numbers[0])


async def _stats_job(session: Session, number: int) -> bytes:
    found = await find(session.hub, number)
    return _NOT_FOUND if found is None else _document(job_stats(session.hub, found))


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


# Other commands.


def on_pause_tube(session: Session, command: Command) -> Answer:
    """Pause a tube: none of its jobs is reserved for some time."""
    hub, seconds = session.hub, command.numbers[0]
    if not hub.exists(command.tube):
        return _NOT_FOUND
    hub.pause(command.tube, seconds)
    hub.count(hub.pausings, command.tube)
    return b"PAUSED\r\n"


def on_quit(session: Session, command: Command) -> Answer:
    """Close the connection."""
    session.quit()
    return None


#: The handlers by command name.
COMMANDS: Final[dict[str, Handler]] = {
    "put": on_put,
    "use": on_use,
    "reserve": on_reserve,
    "reserve-with-timeout": on_reserve,
    "reserve-job": on_reserve_job,
    "delete": on_delete,
    "release": on_release,
    "bury": on_bury,
    "touch": on_touch,
    "watch": on_watch,
    "ignore": on_ignore,
    "kick": on_kick,
    "kick-job": on_kick_job,
    "peek": on_peek,
    "peek-ready": on_peek_ready,
    "peek-delayed": on_peek_delayed,
    "peek-buried": on_peek_buried,
    "stats": on_stats,
    "stats-tube": on_stats_tube,
    "stats-job": on_stats_job,
    "list-tubes": on_list_tubes,
    "list-tube-used": on_list_tube_used,
    "list-tubes-watched": on_list_tubes_watched,
    "pause-tube": on_pause_tube,
    "quit": on_quit,
}
