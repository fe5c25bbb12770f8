"""The buried jobs of a tube: the messages of its dead-letter queue."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from stompkit.server.beanstalk.finding import Cursor, DeadLetter, next_dead_letters
from stompkit.server.beanstalk.jobs import queue_of
from stompkit.server.beanstalk.session import Session
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues.dead_letters import read_dead_letter

__all__ = ["first_message", "next_buried", "pause"]


async def next_buried(session: Session, cursor: Cursor) -> list[DeadLetter]:
    """Return the next buried jobs of the tube in use, without those that cannot return to it."""
    tube = session.used
    while page := await next_dead_letters(session.hub, session.hub.dead_letters(tube), cursor):
        found = [each for each in page if first_message(session, each.message, tube) is not None]
        if found:
            return found
        await pause(session)
    return []


def first_message(session: Session, message: Message, tube: str) -> Message | None:
    """Return the job as it was before it was buried; ``None`` if it cannot return to that tube."""
    dead_letter = read_dead_letter(message)
    if dead_letter is None or dead_letter.source != queue_of(tube):
        # A client has sent the message there, or an operator has moved it there.
        return None
    now = session.broker.scheduler.wall
    return None if dead_letter.first.is_expired(now) else dead_letter.first


async def pause(session: Session) -> None:
    """Give other clients a chance to be served."""
    turn: Deferred[None] = Deferred()
    session.broker.later(0.0, lambda: None if turn.called else turn.callback(None))
    await turn
