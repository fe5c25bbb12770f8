"""Operations of the API that change the broker; each is answered when it is complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from stompkit.server.admin import parameters, results
from stompkit.server.admin.context import Context
from stompkit.server.admin.errors import AdminError, refuse
from stompkit.server.domain.destinations import Destination
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.fanout import Fanout
from stompkit.server.domain.names import DEAD_LETTERS, Kind
from stompkit.server.domain.queues.durables import DurableQueue
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.queues.upkeep import (
    Act,
    Outcome,
    Selection,
    Sweep,
    drop,
    move_to,
    put_back,
)
from stompkit.server.domain.topics import Topic
from stompkit.server.selectors import Selector, SelectorError

__all__ = [
    "close",
    "delete",
    "delete_durable",
    "delete_messages",
    "move",
    "pause",
    "purge",
    "resume",
    "retry",
]

_T = TypeVar("_T")

_log: Final = Logger()

#: Maximum number of characters of a name in a log line.
_MOST_LOGGED: Final = 100


def purge(context: Context, body: parameters.Named) -> Deferred[results.Purged]:
    """Drop all messages that nobody has and whose time has come."""
    queue = context.queue(body.host, body.name)

    def answer(outcome: Outcome) -> results.Purged:
        return results.Purged(purged=outcome.done + queue.purge_overdue())

    return _sweep(context, queue, Selection(), drop, answer)


def delete_messages(
    context: Context, body: parameters.MessageIds
) -> Deferred[results.DeletedMessages]:
    """Drop the messages of some ids that nobody has."""
    queue = context.queue(body.host, body.name)
    selection = Selection(ids=frozenset(body.ids))
    return _sweep(
        context,
        queue,
        selection,
        drop,
        lambda outcome: results.DeletedMessages(deleted=outcome.done),
    )


def move(context: Context, body: parameters.Move) -> Deferred[results.Moved]:
    """Move messages to another queue, which is created if it does not exist."""
    queue = context.queue(body.host, body.from_)
    selector = None
    if body.selector is not None:
        try:
            selector = Selector(body.selector)
        except SelectorError as error:
            raise AdminError(400, "bad-selector", f"the selector can't be read: {error}") from None
    target = _target(context, body)
    if target is queue:
        refuse(400, "same-destination", "the messages are there already")
    ids = None if body.ids is None else frozenset(body.ids)

    def answer(outcome: Outcome) -> results.Moved:
        refused = outcome.refused
        if refused is not None and not outcome.done:
            raise AdminError(409, refused.code, refused.message)
        return results.Moved(
            moved=outcome.done, reason=None if refused is None else refused.message
        )

    selection = Selection(ids, selector, body.limit)
    return _sweep(context, queue, selection, move_to(target), answer, target)


def _target(context: Context, body: parameters.Move) -> Queue:
    host = context.host(body.host)
    found = host.destinations.get(body.to) or host.durable_named(body.to)
    if found is None:
        if not body.to.startswith((Kind.QUEUE.value, DEAD_LETTERS)):
            refuse(409, "not-a-queue", f"{body.to[:100]!a} is no queue: it would keep no messages")
        try:
            found = host.destination(body.to)
        except RefusedError as refused:
            raise AdminError(409, refused.code, refused.message) from None
    if not isinstance(found, Queue):
        refuse(409, "not-a-queue", f"{body.to[:100]!a} is no queue: it would keep no messages")
    return found


def retry(context: Context, body: parameters.Retry) -> Deferred[results.Retried]:
    """Send dead letters back to the queues that they come from."""
    queue = context.queue(body.host, body.name)
    if not queue.name.startswith(DEAD_LETTERS):
        refuse(409, "not-dead-letters", f"{body.name[:100]!a} does not begin with {DEAD_LETTERS}")
    ids = None if body.ids is None else frozenset(body.ids)
    return _sweep(
        context,
        queue,
        Selection(ids, None, body.limit),
        put_back(context.host(body.host)),
        lambda outcome: results.Retried(retried=outcome.done, left=outcome.left),
    )


def _sweep(
    context: Context,
    queue: Queue,
    selection: Selection,
    act: Act,
    answer: Callable[[Outcome], _T],
    target: Queue | None = None,
) -> Deferred[_T]:
    """Start a sweep over a queue; one at a time for each queue, and a limited number in total."""
    busy = context.busy
    concerned = {queue} if target is None else {queue, target}
    if concerned & busy:
        refuse(409, "busy", "its messages are being moved or dropped: try again later")
    if len(busy) + len(concerned) > 2 * context.settings.admin.max_operations:
        refuse(429, "busy", "too many queues are being worked on: try again later")
    busy |= concerned
    if target is not None:
        target.holds += 1
    done: Deferred[_T] = Deferred()

    def report(outcome: Outcome) -> None:
        busy.difference_update(concerned)
        if target is not None:
            target.holds -= 1
            context.broker.touch(target)
        if outcome.failure is not None:
            text = f"the store has failed after {outcome.done} messages: {outcome.failure}"
            done.errback(AdminError(503, "store-failed", text))
            return
        try:
            done.callback(answer(outcome))
        except AdminError as problem:
            done.errback(problem)

    Sweep(queue, selection, act, report).start()
    return done


def pause(context: Context, body: parameters.Named) -> results.Paused:
    """Stop the deliveries of a queue until :func:`resume`, or until the broker ends."""
    queue = context.queue(body.host, body.name)
    queue.is_paused = True
    _log.info("deliveries of {name} are paused", name=_logged(queue))
    return results.Paused(is_paused=True)


def resume(context: Context, body: parameters.Named) -> results.Paused:
    """Resume the deliveries of a queue."""
    queue = context.queue(body.host, body.name)
    queue.resume()
    context.broker.flush()
    _log.info("deliveries of {name} go on", name=_logged(queue))
    return results.Paused(is_paused=False)


def delete(context: Context, body: parameters.Named) -> results.Deleted:
    """Remove a destination that nobody uses, with its messages."""
    found = context.destination(body.host, body.name)
    if isinstance(found, DurableQueue):
        refuse(409, "durable", "it is a durable subscription: ask for /api/v1/durables/delete")
    if isinstance(found, Fanout):
        refuse(409, "configured", "fan-out destinations are made and removed in the configuration")
    is_used = found.owner is not None or found.consumers > 0 or found in context.busy
    if isinstance(found, Queue):
        is_used = is_used or bool(found.browsers or found.blocked or found.unsettled)
    elif isinstance(found, Topic):
        is_used = is_used or bool(found.durables)
    if is_used:
        refuse(409, "in-use", f"{body.name[:100]!a} is being used: it has consumers or deliveries")
    context.host(body.host).discard(found)
    context.broker.flush()
    _log.info("{name} was deleted", name=_logged(found))
    return results.Deleted(deleted=True)


def delete_durable(context: Context, body: parameters.Named) -> results.Deleted:
    """Remove a durable subscription that nobody uses, with what it has collected."""
    host = context.host(body.host)
    queue = host.durable_named(body.name)
    if queue is None:
        refuse(404, "no-such-durable", f"there is no durable subscription {body.name[:100]!a}")
    if queue.subscriptions or queue.unsettled or queue in context.busy:
        refuse(409, "in-use", "the durable subscription is being used")
    host.remove_durable(queue)
    context.broker.flush()
    _log.info("{name} was deleted", name=_logged(queue))
    return results.Deleted(deleted=True)


def close(context: Context, body: parameters.Close) -> results.Closed:
    """Close a connection, with an ERROR that says why."""
    connection = context.connection(body.connection)
    why = f": {body.reason}" if body.reason else ""
    text = "closed by an operator" + why.encode("ascii", "replace").decode()
    context.broker.disconnect(connection, text.replace("\n", " "), "closed-by-operator")
    context.broker.flush()
    _log.info("connection {id} of {peer} was closed", id=connection.id, peer=connection.peer)
    return results.Closed(closed=True)


def _logged(destination: Destination) -> str:
    """Return the name of a destination escaped for the log, since clients choose it."""
    return ascii(destination.name[:_MOST_LOGGED])
