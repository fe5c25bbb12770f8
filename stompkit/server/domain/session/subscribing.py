"""Handlers of SUBSCRIBE and UNSUBSCRIBE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from stompkit.frames import Frame
from stompkit.server.domain.ack_mode import AckMode
from stompkit.server.domain.deliveries import Subscription
from stompkit.server.domain.destinations import Destination
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.fanout import Fanout
from stompkit.server.domain.names import Kind, below_level, canonical, is_pattern, level_itself
from stompkit.server.domain.queues.durables import DurableQueue, durable_key
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.resolving import (
    TEMPORARY,
    ask_right,
    resolve,
    resolve_temporary,
    with_right,
)
from stompkit.server.domain.session.client_session import ClientSession
from stompkit.server.domain.session.headers import flag, number
from stompkit.server.interfaces import Action
from stompkit.server.log import client_events
from stompkit.server.selectors import Selector, SelectorError, with_hyphens

__all__ = ["on_subscribe", "on_unsubscribe", "with_reply_to"]

_T = TypeVar("_T")

_MOST_PREFETCH_DIGITS: Final = 9
#: Dialects in which names in selectors may contain hyphens.
_WITH_HYPHENS: Final = ("activemq", "artemis")
#: Boolean headers, validated for every kind of subscription.
_NO_LOCAL: Final = ("no-local", "activemq.noLocal")
_FLAGS: Final = ("auto-delete", "browser", "durable", "persistent", *_NO_LOCAL)


def on_subscribe(connection: ClientSession, frame: Frame) -> None:
    """Subscribe to a destination, to all that match a pattern, or durably to a topic."""
    broker, headers = connection.broker, frame.headers
    subscription_id = headers.get("id")
    key = _key(headers)
    if key in connection.subscriptions:
        raise RefusedError(f"there is a subscription with {key[:100]!a} already", "duplicate-id")
    most = broker.config.max_subscriptions
    if len(connection.subscriptions) >= most:
        raise RefusedError(f"too many subscriptions: at most {most}", "too-many-subscriptions")
    if len(connection.ledger) >= broker.config.max_unacknowledged:
        raise RefusedError(
            f"too many messages are not acknowledged: at most {broker.config.max_unacknowledged}",
            "too-many-unacknowledged",
        )
    mode = _ack_mode(headers.get("ack", "auto"))
    subscription = _subscription(connection, subscription_id, mode)
    selector = _selector(connection, headers)
    if selector:
        subscription.selector = _read(Selector, selector)
    for each in _FLAGS:
        flag(headers, each)
    subscription.is_exclusive = flag(headers, "exclusive") or flag(headers, "activemq.exclusive")
    name = resolve(connection, headers["destination"], headers)
    with_right(
        connection,
        frame,
        Action.READ,
        name,
        lambda _: _subscribe_within_rights(connection, frame, key, subscription, name),
    )


def _subscribe_within_rights(
    connection: ClientSession, frame: Frame, key: str, subscription: Subscription, name: str
) -> None:
    """Subscribe; in ActiveMQ's dialect include the level itself only if it may be read."""
    broker = connection.broker
    itself = None
    if broker.config.dialect == "activemq" and broker.authoriser is not None:
        itself = level_itself(name)
    if itself is None:
        _subscribe(connection, frame, key, subscription, name)
        return

    def go_on(is_allowed: bool) -> None:  # noqa: FBT001 (an answer)
        if not is_allowed:
            broker.traps.warn(client_events.level_not_readable, connection.host.name, name)
        subscribed = name if is_allowed else below_level(name)
        _subscribe(connection, frame, key, subscription, subscribed)

    ask_right(connection, frame, Action.READ, itself, go_on)


def _selector(connection: ClientSession, headers: dict[str, str]) -> str:
    """Return the text of the selector; empty if it is missing or blank (JMS, 3.8.1)."""
    text = headers.get("selector", "")
    if not text.strip():
        return ""
    if connection.broker.config.dialect not in _WITH_HYPHENS:
        return text
    return _read(with_hyphens, text)


def _read(function: Callable[[str], _T], selector: str) -> _T:
    try:
        return function(selector)
    except SelectorError as error:
        raise RefusedError(f"selector: {error}", "bad-selector") from None


def _key(headers: dict[str, str]) -> str:
    """Return the key of a subscription: its id, or on 1.0 its destination if it has no id."""
    return f"id {headers['id']}" if "id" in headers else f"destination {headers['destination']}"


def _subscription(
    connection: ClientSession, subscription_id: str | None, mode: AckMode
) -> Subscription:
    made = Subscription(connection, subscription_id, mode, 1, connection.version)
    made.serial = connection.broker.new_subscription()
    return made


def _ack_mode(value: str) -> AckMode:
    try:
        return AckMode(value)
    except ValueError:
        modes = ", ".join(mode.value for mode in AckMode)
        raise RefusedError(f"ack mode {value[:40]!a} is none of {modes}", "bad-ack-mode") from None


def _prefetch(connection: ClientSession, headers: dict[str, str], default: int) -> int:
    most = connection.broker.config.max_prefetch
    if "prefetch-count" in headers:
        # RabbitMQ's 0 means "no limit": here, the maximum.
        count = number(headers, "prefetch-count", "messages", _MOST_PREFETCH_DIGITS)
        return min(count or most, most)
    if "activemq.prefetchSize" in headers:
        # ActiveMQ's 0 means "only on request", for which STOMP has no frame.
        count = number(headers, "activemq.prefetchSize", "messages", _MOST_PREFETCH_DIGITS)
        return min(max(count, 1), most)
    return default


def _subscribe(
    connection: ClientSession, frame: Frame, key: str, subscription: Subscription, name: str
) -> None:
    host, headers = connection.host, frame.headers
    kind = host.check_name(name)
    subscription.limit(_prefetch(connection, headers, host.policy(name).prefetch))
    if any(flag(headers, each) for each in _NO_LOCAL):
        connection.broker.traps.warn(client_events.no_local_ignored, host.name, name)
    if kind is Kind.TOPIC:
        durable = durable_key(headers, connection.client_id)
        if durable is not None:
            if is_pattern(name):
                host.pattern(name)
            else:
                connection.scheduler.touch(host.destination(name, connection))
            found = host.durables.get(durable[0])
            if found is not None:
                found.check_user(_durable_user(connection))
            if found is None or found.record.topic == name:
                _subscribe_durably(connection, frame, key, subscription, name)
                return
            # It would be removed for the new one.
            with_right(
                connection,
                frame,
                Action.READ,
                found.record.topic,
                lambda _: _subscribe_durably(connection, frame, key, subscription, name),
            )
            return
    is_browser = flag(headers, "browser")
    if is_pattern(name):
        if is_browser or kind not in (Kind.QUEUE, Kind.TOPIC, Kind.DEAD_LETTERS):
            raise RefusedError(f"{name[:100]!a} cannot have wildcards", "bad-destination")
        subscription.pattern = host.pattern(name)
        connection.include(key, subscription)
        _subscribe_to_all(connection, frame, subscription)
        return
    if is_browser:
        destination = _readable(connection, name)
        if not isinstance(destination, Queue):
            raise RefusedError("only queues can be browsed", "bad-destination")
        # Browsing does not take messages, so that there is nothing to acknowledge.
        subscription.is_auto = True
        connection.include(key, subscription)
        destination.browse(subscription)
        connection.scheduler.touch(destination)
        return
    _subscribe_to(connection, key, subscription, name)


def _subscribe_to_all(connection: ClientSession, frame: Frame, subscription: Subscription) -> None:
    """Answer a client when it is subscribed to all matches; others are served meanwhile."""

    def begin(done: Callable[[None], None]) -> None:
        connection.host.subscribe_pattern(subscription, done)

    connection.ask(frame, begin, lambda _: None)


def _subscribe_durably(
    connection: ClientSession, frame: Frame, key: str, subscription: Subscription, name: str
) -> None:
    durable = durable_key(frame.headers, connection.client_id)
    assert durable is not None  # the caller has looked
    name_of_it, is_shared = durable
    selector = _selector(connection, frame.headers)
    user = _durable_user(connection)
    queue = connection.host.durable(name_of_it, name, selector, user, is_shared=is_shared)
    # The queue holds only messages that the selector takes.
    subscription.selector = None
    _add(connection, key, subscription, queue)
    # Its RECEIPT precedes its first MESSAGE, and no message without rights is delivered.
    subscription.hold()
    connection.scheduler.commit_queue.when_kept(lambda: _begin(connection, subscription))


def _begin(connection: ClientSession, subscription: Subscription) -> None:
    """Start deliveries to a subscription that is stored."""
    subscription.begin()
    for home in subscription.homes:
        connection.scheduler.touch(home)


def _durable_user(connection: ClientSession) -> str | None:
    """Return the owner of a client's durable subscriptions; ``None`` without authentication."""
    return None if connection.broker.authenticator is None else connection.user.name


def _subscribe_to(
    connection: ClientSession, key: str, subscription: Subscription, name: str
) -> None:
    destination = _readable(connection, name)
    if isinstance(destination, Fanout):
        raise RefusedError(
            f"{name[:100]!a} keeps nothing: subscribe to one of its children", "bad-destination"
        )
    _add(connection, key, subscription, destination)


def _readable(connection: ClientSession, name: str) -> Destination:
    destination = connection.host.destination(name, connection)
    if destination.owner not in (None, connection):
        raise RefusedError("a temporary destination can be read by its owner only", "not-owner")
    return destination


def _add(
    connection: ClientSession, key: str, subscription: Subscription, destination: Destination
) -> None:
    connection.include(key, subscription)
    destination.add(subscription)
    connection.scheduler.touch(destination)


def on_unsubscribe(connection: ClientSession, frame: Frame) -> None:
    """End a subscription; its deliveries can still be acknowledged.

    If the headers are those of a durable subscription, it is removed as well.
    """
    headers, host = frame.headers, connection.host
    key = _key(headers)
    durable = durable_key(headers, connection.client_id)
    queue = host.durables.get(durable[0]) if durable is not None else None
    if queue is not None:
        queue.check_user(_durable_user(connection))
    subscription = connection.subscriptions.pop(key, None)
    if subscription is None and queue is None:
        name, _, value = key.partition(" ")
        raise RefusedError(
            f"there is no subscription with the {name} {value[:100]!a}", "unknown-subscription"
        )
    if subscription is not None:
        connection.remove(subscription)
    if queue is not None:
        topic = queue.record.topic
        # The client that removes it may not be the one that created it.
        with_right(
            connection, frame, Action.READ, topic, lambda _: _remove_durable(connection, queue)
        )


def _remove_durable(connection: ClientSession, queue: DurableQueue) -> None:
    if connection.host.durables.get(queue.record.key) is not queue:
        raise RefusedError("the durable subscription is gone", "unknown-subscription")
    queue.check_user(_durable_user(connection))
    if queue.subscriptions:
        raise RefusedError("the durable subscription is in use", "durable-subscription-in-use")
    connection.host.remove_durable(queue)


def with_reply_to(connection: ClientSession, frame: Frame) -> Frame:
    """Return the frame with a reply-to that is valid for all clients."""
    asked = frame.get("reply-to")
    assert asked is not None  # the caller has looked for it
    config = connection.broker.config
    name = canonical(asked, {}, config.dialect)
    if not name.startswith(TEMPORARY) or name in TEMPORARY:
        return frame
    name = resolve_temporary(connection, name)
    if config.dialect == "rabbitmq" and f"id {asked}" not in connection.subscriptions:
        # RabbitMQ's clients do not subscribe: replies arrive with this name as their subscription.
        _subscribe_to(
            connection, f"id {asked}", _subscription(connection, asked, AckMode.AUTO), name
        )
    return Frame(frame.command, frame.headers | {"reply-to": name}, frame.body, frame.repeated)
