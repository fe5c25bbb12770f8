"""What each frame of a client does; the table in stompkit.frames names the functions."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import stompkit
from stompkit.frames import COMMANDS, Frame, Role
from stompkit.server._acks import Ledger
from stompkit.server._destinations import Destination
from stompkit.server._durables import DurableQueue, durable_key
from stompkit.server._errors import Refused
from stompkit.server._messages import Message
from stompkit.server._names import Kind, Pattern, canonical, is_pattern, kind_of
from stompkit.server._queues import Queue
from stompkit.server._selectors import Selector, SelectorError
from stompkit.server._subscriptions import AckMode, Subscription
from stompkit.server._topics import Fanout
from stompkit.server._transactions import Settlement, Transaction
from stompkit.server.interfaces import Action, Credentials, Decision, Request, User

if TYPE_CHECKING:
    from stompkit.server._connection import Connection

__all__ = ["HANDLERS"]

_MOST_PREFETCH_DIGITS: Final = 9
_TEMPORARY: Final = (Kind.TEMP_QUEUE.value, Kind.TEMP_TOPIC.value)


# CONNECT.


def on_connect(connection: Connection, frame: Frame) -> None:
    """Find out who the client is; the session has settled the version."""
    broker, headers = connection.broker, frame.headers
    name = headers.get("host")
    if name is None:
        # 1.0 knows no virtual hosts, and clients of 1.1 often forget the header.
        name = broker.config.hosts[0] if broker.config.hosts else ""
    connection.host = broker.host(name)
    if broker.config.require_heart_beat and _beats_ms(headers) == 0:
        raise Refused("this broker wants heart-beats", "heart-beat-required")
    authenticator = broker.authenticator
    if authenticator is None:
        _accept(connection, frame, User())
        return
    credentials = Credentials(
        login=headers.get("login"),
        passcode=headers.get("passcode"),
        host=name,
        peer=connection.peer,
        certificate=connection.outlet.certificate(),
    )

    def then(user: User | None) -> None:
        if user is None:
            raise Refused("login or passcode is wrong", "not-authenticated")
        _accept(connection, frame, user)

    connection.ask(frame, lambda answer: authenticator.authenticate(credentials, answer), then)


def _beats_ms(headers: dict[str, str]) -> int:
    first = headers.get("heart-beat", "0,0").partition(",")[0]
    return int(first) if first.isascii() and first.isdigit() else 0


def _accept(connection: Connection, frame: Frame, user: User) -> None:
    """Answer CONNECT or STOMP."""
    version = connection.session.version
    assert version is not None  # the session hands CONNECT on only with a version
    connection.version = version
    connection.ledger = Ledger(version)
    connection.user = user
    connection.client_id = frame.headers.get("client-id")
    headers = {
        "session": connection.broker.new_session(),
        "server": f"stompkit/{stompkit.__version__}",
    }
    connection.emit(connection.session.accept(headers, connection.broker.now))
    connection.outlet.logged_in()


# Names, and what may be done with them.


def _resolve(connection: Connection, name: str, headers: dict[str, str]) -> str:
    """The broker's name for what a client calls a destination."""
    name = canonical(name, headers, connection.broker.config.dialect)
    if name.startswith(_TEMPORARY):
        return _resolve_temporary(connection, name)
    return name


def _resolve_temporary(connection: Connection, name: str) -> str:
    """A name of the client's own becomes one that nobody else has or can guess.

    Told from those that others were given in ``reply-to`` by having no slash.
    """
    prefix = kind_of(name).value
    own = name[len(prefix) :]
    if "/" in own:
        return name
    for temporary in connection.temporaries:
        _, _, known = temporary.name[len(prefix) :].partition("/")
        if temporary.name.startswith(prefix) and known == own:
            return temporary.name
    most = connection.broker.config.max_subscriptions
    if len(connection.temporaries) >= most:
        raise Refused(f"too many temporary destinations: at most {most}", "too-many-destinations")
    connection.host.check_name(name)
    made = connection.host.temporary(f"{prefix}{secrets.token_hex(16)}/{own}", connection)
    connection.temporaries.append(made)
    return made.name


def _with_right(
    connection: Connection,
    frame: Frame,
    action: Action,
    name: str,
    then: Callable[[bytes | None], None],
) -> None:
    """Go on with a frame whose sender may do what it asks for.

    ``then`` is given the body that the authoriser wants instead of the frame's, or ``None``.
    """
    authoriser = connection.broker.authoriser
    if authoriser is None or name.startswith(_TEMPORARY):
        # Temporary destinations are their owner's, and whoever knows the name may write to it.
        then(None)
        return

    def request(wanted: Action) -> Request:
        return Request(
            connection.user, connection.host.name, wanted, name, frame.headers, frame.body
        )

    def denied() -> Refused:
        return Refused(f"{action.value} is not allowed on {name[:100]!a}", "not-authorised")

    def decided(decision: Decision) -> None:
        if not decision.allowed:
            raise denied()
        then(decision.body)

    def first(answer: Callable[[Decision], None]) -> None:
        def created(decision: Decision) -> None:
            if decision.allowed:
                authoriser.authorise(request(action), answer)
            else:
                answer(decision)

        if name in connection.host.destinations or is_pattern(name):
            authoriser.authorise(request(action), answer)
        else:
            authoriser.authorise(request(Action.CREATE), created)

    connection.ask(frame, first, decided)


# SEND.


def on_send(connection: Connection, frame: Frame) -> None:
    """Put a message into its destination, or into a transaction."""
    headers = frame.headers
    name = headers["destination"]
    if connection.broker.config.dialect != "stompkit" or name.startswith(_TEMPORARY):
        name = _resolve(connection, name, headers)
    if "reply-to" in headers:
        frame = _with_reply_to(connection, frame)
    if connection.broker.authoriser is None:
        _send(connection, frame, name, None)
        return
    _with_right(
        connection,
        frame,
        Action.WRITE,
        name,
        lambda body: _send(connection, frame, name, body),
    )


def _with_reply_to(connection: Connection, frame: Frame) -> Frame:
    """The frame with a reply-to that means the same to everybody."""
    asked = frame.headers["reply-to"]
    config = connection.broker.config
    name = canonical(asked, {}, config.dialect)
    if not name.startswith(_TEMPORARY) or name in _TEMPORARY:
        return frame
    name = _resolve_temporary(connection, name)
    if config.dialect == "rabbitmq" and f"id {asked}" not in connection.subscriptions:
        # RabbitMQ's clients don't subscribe: replies come with this name as their subscription.
        _subscribe_to(
            connection, f"id {asked}", _subscription(connection, asked, AckMode.AUTO), name
        )
    return Frame(frame.command, frame.headers | {"reply-to": name}, frame.body, frame.repeated)


def _send(connection: Connection, frame: Frame, name: str, body: bytes | None) -> None:
    broker, host = connection.broker, connection.host
    if body is not None:
        frame = Frame(frame.command, frame.headers | {"content-length": str(len(body))}, body)
    message = Message.from_send(frame, name, broker.new_message(), connection.version, broker.now)
    if host.is_gone(name):
        return
    transaction = _transaction(connection, frame)
    if transaction is None:
        host.send(message, connection)
        return
    host.check_name(name)
    transaction.send(message, _other_octets(connection, transaction))


def _other_octets(connection: Connection, transaction: Transaction) -> int:
    return sum(each.octets for each in connection.transactions.values() if each is not transaction)


# SUBSCRIBE and UNSUBSCRIBE.


def on_subscribe(connection: Connection, frame: Frame) -> None:
    """Subscribe to a destination, to all that match a pattern, or durably to a topic."""
    broker, headers = connection.broker, frame.headers
    subscription_id = headers.get("id")
    key = _key(headers)
    if key in connection.subscriptions:
        raise Refused(f"there is a subscription with {key[:100]!a} already", "duplicate-id")
    most = broker.config.max_subscriptions
    if len(connection.subscriptions) >= most:
        raise Refused(f"too many subscriptions: at most {most}", "too-many-subscriptions")
    if len(connection.ledger) > most + broker.config.max_prefetch:
        raise Refused("too many messages are not acknowledged", "too-many-unacknowledged")
    mode = _ack_mode(headers.get("ack", "auto"))
    subscription = _subscription(connection, subscription_id, mode)
    if "selector" in headers:
        try:
            subscription.selector = Selector(headers["selector"])
        except SelectorError as error:
            raise Refused(f"selector: {error}", "bad-selector") from None
    subscription.is_exclusive = "true" in (
        headers.get("exclusive"),
        headers.get("activemq.exclusive"),
    )
    name = _resolve(connection, headers["destination"], headers)
    _with_right(
        connection,
        frame,
        Action.READ,
        name,
        lambda _: _subscribe(connection, frame, key, subscription, name),
    )


def _key(headers: dict[str, str]) -> str:
    """What names a subscription: on 1.0 the destination where it has no id."""
    return f"id {headers['id']}" if "id" in headers else f"destination {headers['destination']}"


def _subscription(
    connection: Connection, subscription_id: str | None, mode: AckMode
) -> Subscription:
    made = Subscription(connection, subscription_id, mode, 1, connection.version)
    made.serial = connection.broker.new_subscription()
    return made


def _ack_mode(value: str) -> AckMode:
    try:
        return AckMode(value)
    except ValueError:
        modes = ", ".join(mode.value for mode in AckMode)
        raise Refused(f"ack mode {value[:40]!a} is none of {modes}", "bad-ack-mode") from None


def _prefetch(connection: Connection, headers: dict[str, str], default: int) -> int:
    config = connection.broker.config
    value = headers.get("prefetch-count", headers.get("activemq.prefetchSize"))
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) <= _MOST_PREFETCH_DIGITS):
        raise Refused(f"prefetch {value[:40]!a} is not a number of messages", "bad-header")
    # RabbitMQ's 0 stands for "no limit": here, for the highest one.
    return min(int(value) or config.max_prefetch, config.max_prefetch)


def _subscribe(
    connection: Connection, frame: Frame, key: str, subscription: Subscription, name: str
) -> None:
    host, headers = connection.host, frame.headers
    kind = host.check_name(name)
    subscription.prefetch = _prefetch(connection, headers, host.policy(name).prefetch)
    if kind is Kind.TOPIC:
        durable = durable_key(headers, connection.client_id)
        if durable is not None:
            if is_pattern(name):
                Pattern(name)
            else:
                connection.broker.touch(host.destination(name, connection))
            found = host.durables.get(durable[0])
            if found is None or found.record.topic == name:
                _subscribe_durably(connection, frame, key, subscription, name)
                return
            # It would be removed for the new one.
            _with_right(
                connection,
                frame,
                Action.READ,
                found.record.topic,
                lambda _: _subscribe_durably(connection, frame, key, subscription, name),
            )
            return
    is_browser = headers.get("browser") == "true"
    if is_pattern(name):
        if is_browser or kind not in (Kind.QUEUE, Kind.TOPIC, Kind.DEAD_LETTERS):
            raise Refused(f"{name[:100]!a} can't have wildcards", "bad-destination")
        subscription.pattern = Pattern(name)
        connection.include(key, subscription)
        host.subscribe_pattern(subscription)
        return
    if is_browser:
        destination = _readable(connection, name)
        if not isinstance(destination, Queue):
            raise Refused("only queues can be browsed", "bad-destination")
        # To look at a message does not take it, so there is nothing to acknowledge.
        subscription.is_auto = True
        connection.include(key, subscription)
        destination.browse(subscription)
        connection.broker.touch(destination)
        return
    _subscribe_to(connection, key, subscription, name)


def _subscribe_durably(
    connection: Connection, frame: Frame, key: str, subscription: Subscription, name: str
) -> None:
    durable = durable_key(frame.headers, connection.client_id)
    assert durable is not None  # the caller has looked
    name_of_it, is_shared = durable
    selector = frame.headers.get("selector", "")
    queue = connection.host.durable(name_of_it, name, selector, is_shared=is_shared)
    # The queue holds only what the selector takes.
    subscription.selector = None
    _add(connection, key, subscription, queue)


def _subscribe_to(connection: Connection, key: str, subscription: Subscription, name: str) -> None:
    destination = _readable(connection, name)
    if isinstance(destination, Fanout):
        raise Refused(
            f"{name[:100]!a} keeps nothing: subscribe to one of its children", "bad-destination"
        )
    _add(connection, key, subscription, destination)


def _readable(connection: Connection, name: str) -> Destination:
    destination = connection.host.destination(name, connection)
    if destination.owner not in (None, connection):
        raise Refused("a temporary destination can be read by its owner only", "not-owner")
    return destination


def _add(
    connection: Connection, key: str, subscription: Subscription, destination: Destination
) -> None:
    connection.include(key, subscription)
    destination.add(subscription)
    connection.broker.touch(destination)


def on_unsubscribe(connection: Connection, frame: Frame) -> None:
    """End a subscription; what it delivered can still be acknowledged.

    Where the headers are those of a durable subscription, that is removed as well.
    """
    headers, host = frame.headers, connection.host
    key = _key(headers)
    durable = durable_key(headers, connection.client_id)
    queue = host.durables.get(durable[0]) if durable is not None else None
    subscription = connection.subscriptions.pop(key, None)
    if subscription is None and queue is None:
        raise Refused(f"there is no subscription with {key[:100]!a}", "unknown-subscription")
    if subscription is not None:
        connection.remove(subscription)
    if queue is not None:
        topic = queue.record.topic
        # Who removes it need not be who has made it.
        _with_right(
            connection, frame, Action.READ, topic, lambda _: _remove_durable(connection, queue)
        )


def _remove_durable(connection: Connection, queue: DurableQueue) -> None:
    if queue.subscriptions:
        raise Refused("the durable subscription is in use", "durable-subscription-in-use")
    connection.host.remove_durable(queue)


# ACK and NACK.


def on_ack(connection: Connection, frame: Frame) -> None:
    """Settle deliveries as consumed."""
    _settle(connection, frame, accepted=True)


def on_nack(connection: Connection, frame: Frame) -> None:
    """Settle deliveries as not consumed; ``requeue:false`` asks for no further try."""
    _settle(connection, frame, accepted=False)


def _settle(connection: Connection, frame: Frame, *, accepted: bool) -> None:
    transaction = _transaction(connection, frame)
    requeue = frame.headers.get("requeue", "true") != "false"
    entries = connection.ledger.find(frame)
    settlement = Settlement(entries, accepted=accepted, requeue=requeue)
    if transaction is None:
        connection.broker.settle(settlement)
    else:
        transaction.settle(settlement)


# Transactions.


def on_begin(connection: Connection, frame: Frame) -> None:
    """Begin a transaction."""
    name = frame.headers["transaction"]
    if name in connection.transactions:
        raise Refused(f"transaction {name[:100]!a} has begun already", "duplicate-id")
    broker = connection.broker
    config = broker.config
    if len(connection.transactions) >= config.max_transactions:
        raise Refused(
            f"too many open transactions: at most {config.max_transactions}",
            "too-many-transactions",
        )
    transaction = connection.transactions[name] = Transaction(name, config)
    timeout_s = config.transaction_timeout_s
    if timeout_s:
        transaction.timer = broker.later(
            timeout_s,
            lambda: connection.fail(
                f"transaction {name[:100]!a} has been open for {timeout_s:g} seconds",
                "transaction-timeout",
            ),
        )


def on_commit(connection: Connection, frame: Frame) -> None:
    """Apply a transaction, whole or not at all."""
    transaction = _ended(connection, frame)
    connection.host.commit(transaction.messages, transaction.settlements, connection)


def on_abort(connection: Connection, frame: Frame) -> None:
    """Drop a transaction."""
    _ended(connection, frame)


def _transaction(connection: Connection, frame: Frame) -> Transaction | None:
    name = frame.headers.get("transaction")
    if name is None:
        return None
    transaction = connection.transactions.get(name)
    if transaction is None:
        raise Refused(f"there is no transaction {name[:100]!a}", "unknown-transaction")
    return transaction


def _ended(connection: Connection, frame: Frame) -> Transaction:
    transaction = _transaction(connection, frame)
    assert transaction is not None  # the session has checked that the frame names one
    del connection.transactions[transaction.name]
    connection.end_transaction(transaction)
    return transaction


# DISCONNECT.


def on_disconnect(connection: Connection, frame: Frame) -> None:
    """Give everything back; the answer, if asked for, is the last frame."""
    connection.release()


HANDLERS: Final[dict[str, Callable[[Connection, Frame], None]]] = {
    row.name: globals()[row.handler] for row in COMMANDS.values() if row.sender is Role.CLIENT
}
