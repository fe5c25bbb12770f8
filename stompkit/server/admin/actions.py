"""Operations of the API that change the broker.

Each is answered when its changes are stored, or with an error. :meth:`Context.stored` and
:meth:`Context.sweep` wait for the store. Operations without them change nothing that is stored.
"""

from __future__ import annotations

import base64
import re
from typing import Final, TypedDict

from twisted.internet.defer import Deferred

from stompkit.frames import Frame, FrameDecoder, Limits, ProtocolError, encode
from stompkit.server.admin import parameters, results
from stompkit.server.admin.context import Context
from stompkit.server.admin.errors import AdminError, refuse
from stompkit.server.admin.roles import Operator
from stompkit.server.admin.views import lease_shape
from stompkit.server.domain.destinations import Destination
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.fanout import Fanout
from stompkit.server.domain.hosts.choices import Choice
from stompkit.server.domain.hosts.virtual_host import VirtualHost
from stompkit.server.domain.messages import Message
from stompkit.server.domain.names import DEAD_LETTERS, Kind
from stompkit.server.domain.queues.durables import DurableQueue
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.queues.upkeep import (
    Outcome,
    Selection,
    drop,
    move_to,
    put_back,
)
from stompkit.server.domain.topics import Topic
from stompkit.server.interfaces import StoreError
from stompkit.server.log import lease_events, operator_events
from stompkit.server.login.auth import is_name
from stompkit.server.selectors import Selector, SelectorError

__all__ = [
    "close",
    "delete",
    "delete_durable",
    "delete_messages",
    "failover",
    "hand_over",
    "move",
    "pause",
    "publish",
    "purge",
    "resume",
    "retry",
]

#: Version of published frames: it can express all headers.
_VERSION: Final = "1.2"
#: Characters that a line of text does not have; some versions cannot express them in a header.
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

#: Says in an error what happens to changes that the store could not take.
_REPEATED: Final = "; the broker repeats the change, which is lost if it ends before"
#: Maximum number of characters of a list of names in an error.
_MOST_NAMED: Final = 300


def purge(context: Context, body: parameters.Named, operator: Operator) -> Deferred[results.Purged]:
    """Drop all messages that nobody has and whose time has come."""
    queue = context.queue(body.host, body.name)

    def answer(outcome: Outcome) -> results.Purged:
        operator_events.messages_purged(**_named(queue), count=outcome.done, peer=operator.peer)
        return results.Purged(purged=outcome.done)

    return context.sweep(queue, Selection(), drop, answer)


def delete_messages(
    context: Context, body: parameters.MessageIds, operator: Operator
) -> Deferred[results.DeletedMessages]:
    """Drop the messages of some ids that nobody has."""
    queue = context.queue(body.host, body.name)
    selection = Selection(ids=frozenset(body.ids))

    def answer(outcome: Outcome) -> results.DeletedMessages:
        operator_events.messages_deleted(**_named(queue), count=outcome.done, peer=operator.peer)
        return results.DeletedMessages(deleted=outcome.done)

    return context.sweep(queue, selection, drop, answer)


def move(context: Context, body: parameters.Move, operator: Operator) -> Deferred[results.Moved]:
    """Move messages to another queue, which is created if it does not exist."""
    queue = context.queue(body.host, body.from_)
    selector = None
    if body.selector is not None:
        try:
            selector = Selector(body.selector)
        except SelectorError as error:
            raise AdminError(400, "bad-selector", f"the selector cannot be read: {error}") from None
    target = _target(context, body)
    if target is queue:
        refuse(400, "same-destination", "the messages are there already")
    ids = None if body.ids is None else frozenset(body.ids)

    def answer(outcome: Outcome) -> results.Moved:
        refused = outcome.refused
        if refused is not None and not outcome.done:
            raise AdminError(409, refused.code, refused.message)
        operator_events.messages_moved(
            **_named(queue), target=target.name, count=outcome.done, peer=operator.peer
        )
        return results.Moved(
            moved=outcome.done, reason=None if refused is None else refused.message
        )

    selection = Selection(ids, selector, body.limit)
    return context.sweep(queue, selection, move_to(target), answer, target)


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


def retry(
    context: Context, body: parameters.Retry, operator: Operator
) -> Deferred[results.Retried]:
    """Send dead letters back to the queues that they come from."""
    queue = context.queue(body.host, body.name)
    if not queue.name.startswith(DEAD_LETTERS):
        refuse(409, "not-dead-letters", f"{body.name[:100]!a} does not begin with {DEAD_LETTERS}")
    ids = None if body.ids is None else frozenset(body.ids)

    def answer(outcome: Outcome) -> results.Retried:
        operator_events.letters_retried(**_named(queue), count=outcome.done, peer=operator.peer)
        return results.Retried(retried=outcome.done, left=outcome.left)

    selection = Selection(ids, None, body.limit)
    return context.sweep(queue, selection, put_back(context.host(body.host)), answer)


def publish(
    context: Context, body: parameters.Publish, operator: Operator
) -> Deferred[results.Published]:
    """Send a message; answered when the store has it."""
    broker, host = context.broker, context.host(body.host)
    frame = _frame_of(body, broker.config.limits)
    try:
        kind = host.check_name(body.destination)
        if kind in (Kind.TEMP_QUEUE, Kind.TEMP_TOPIC):
            refuse(409, "temporary", "a temporary destination belongs to its connection")
        now = broker.scheduler.time_of_day()
        message = Message.from_send(frame, body.destination, broker.new_message(), _VERSION, now)
    except RefusedError as refused:
        raise AdminError(409, refused.code, refused.message) from None

    def answer() -> results.Published:
        operator_events.message_published(
            host=host.name, destination=body.destination, peer=operator.peer
        )
        return results.Published(id=message.id)

    def send(choice: Choice | None) -> Deferred[results.Published]:
        try:
            return context.stored(lambda: host.send(message, None, choice), answer)
        except RefusedError as refused:
            broker.flush()
            raise AdminError(409, refused.code, refused.message) from None

    choice = host.choice(message) if host.durables else None
    if choice is None:
        return send(None)
    # All copies are stored together, once the selectors of durable subscriptions are evaluated.
    chosen: Deferred[None] = Deferred()
    host.choice_work.begin([choice], None, chosen.callback)
    return chosen.addCallback(lambda _: send(choice))


def _frame_of(body: parameters.Publish, limits: Limits) -> Frame:
    """Return the frame as from a client, so that it meets all rules and limits for clients.

    Otherwise a message could have a NUL in a header, or a wrong ``content-length``. Its consumers
    could not read what follows it.
    """
    # Of repeated headers the first counts.
    given = dict(reversed(body.headers)) | {"destination": body.destination}
    decoder = FrameDecoder(_VERSION, limits=limits)
    try:
        [frame] = decoder.feed(encode(Frame("SEND", given, _body_of(body)), _VERSION))
    except ProtocolError as error:
        raise AdminError(400, "bad-message", f"the message is not valid: {error}") from None
    return frame


def _body_of(body: parameters.Publish) -> bytes:
    if body.body_base64 is None:
        return body.body.encode()
    if body.body:
        refuse(400, "bad-body", "body and body_base64 exclude each other")
    try:
        return base64.b64decode(body.body_base64, validate=True)
    except ValueError:
        refuse(400, "bad-body", "body_base64 is not base64")


def pause(context: Context, body: parameters.Named, operator: Operator) -> results.Paused:
    """Stop the deliveries of a queue until :func:`resume`, or until the broker ends."""
    queue = context.queue(body.host, body.name)
    queue.is_paused = True
    operator_events.queue_paused(**_named(queue), peer=operator.peer)
    return results.Paused(is_paused=True)


def resume(context: Context, body: parameters.Named, operator: Operator) -> results.Paused:
    """Resume the deliveries of a queue."""
    queue = context.queue(body.host, body.name)
    queue.resume()
    context.broker.flush()
    operator_events.queue_resumed(**_named(queue), peer=operator.peer)
    return results.Paused(is_paused=False)


def delete(
    context: Context, body: parameters.Named, operator: Operator
) -> Deferred[results.Deleted]:
    """Remove a destination that nobody uses, with its messages; answered when it is stored."""
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

    def answer() -> results.Deleted:
        operator_events.destination_deleted(**_named(found), peer=operator.peer)
        return results.Deleted(deleted=True)

    host = context.host(body.host)
    return context.stored(lambda: host.discard(found), answer, _REPEATED)


def delete_durable(
    context: Context, body: parameters.Named, operator: Operator
) -> Deferred[results.Deleted]:
    """Remove a durable subscription that nobody uses, with its messages; answered when stored."""
    host = context.host(body.host)
    queue = _durable(context, host, body.name)
    if queue.subscriptions or queue.unsettled or queue in context.busy:
        refuse(409, "in-use", "the durable subscription is being used")

    def answer() -> results.Deleted:
        operator_events.durable_deleted(**_named(queue), peer=operator.peer)
        return results.Deleted(deleted=True)

    return context.stored(lambda: host.remove_durable(queue), answer, _REPEATED)


def hand_over(
    context: Context, body: parameters.HandOver, operator: Operator
) -> Deferred[results.HandedOver]:
    """Give a durable subscription that nobody uses to another user; answered when it is stored."""
    if body.user is not None and not is_name(body.user):
        refuse(400, "bad-user", "user is not a valid name: printable, and at most 320 bytes")
    host = context.host(body.host)
    queue = _durable(context, host, body.name)
    if queue.subscriptions:
        refuse(409, "in-use", "the durable subscription is being used: close its connections first")

    def answer() -> results.HandedOver:
        operator_events.durable_handed_over(
            **_named(queue), user=body.user or "", peer=operator.peer
        )
        return results.HandedOver(owner=body.user)

    return context.stored(lambda: host.hand_over(queue, body.user), answer, _REPEATED)


def _durable(context: Context, host: VirtualHost, name: str) -> DurableQueue:
    queue = host.durable_named(name)
    if queue is None:
        text = f"there is no durable subscription {name[:100]!a}"
        raise context.missing("no-such-durable", text)
    return queue


def close(context: Context, body: parameters.Close, operator: Operator) -> results.Closed:
    """Close a connection, with an ERROR that says why."""
    connection = context.connection(body.connection)
    reason = _CONTROLS.sub(" ", body.reason or "").strip()
    text = f"closed by an operator: {reason}" if reason else "closed by an operator"
    context.broker.disconnect(connection, text, "closed-by-operator")
    context.broker.flush()
    operator_events.connection_closed(
        connection=connection.id,
        client=connection.address,
        user=connection.user.name,
        peer=operator.peer,
    )
    return results.Closed(closed=True)


def failover(
    context: Context, body: parameters.Failover, operator: Operator
) -> Deferred[results.LeaseShape]:
    """Ask the active broker to hand over to another one; answered before it does."""
    found = context.lease()
    there = {each.name for each in found.brokers if each.seen_s < found.seconds}
    passive = sorted(there - {found.owner})
    if not found.owner:
        refuse(409, "not-active", "no broker is active: there is nothing to hand over")
    if body.to == found.owner:
        refuse(409, "already-active", f"the broker {found.owner} is active already")
    if not passive:
        refuse(409, "no-such-broker", "no other broker of the store is running: start one first")
    to = passive[0] if body.to is None else body.to
    if to not in passive:
        names = ", ".join(passive)[:_MOST_NAMED]
        refuse(409, "no-such-broker", f"no passive broker is called {to!a}; there are: {names}")
    done: Deferred[results.LeaseShape] = Deferred()

    def asked(error: StoreError | None) -> None:
        if error is not None:
            done.errback(AdminError(503, "store-failed", str(error)))
            return
        lease_events.failover_asked(successor=to, peer=operator.peer)
        done.callback(lease_shape(found._replace(successor=to)))

    context.activation.ask_to_leave(to, asked)
    return done


class _Named(TypedDict):
    """Fields of an event about a destination."""

    host: str
    destination: str


def _named(destination: Destination) -> _Named:
    return {"host": destination.host.name, "destination": destination.name}
