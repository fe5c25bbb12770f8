"""Handlers of client frames; the command table in stompkit.frames names the functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import stompkit
from stompkit._common import LOOK_S, MOST_GRACE_S
from stompkit.frames import COMMANDS, Frame, Role, parse_heart_beat
from stompkit.server.domain.deliveries import MessageReference
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.hosts.choices import Choice
from stompkit.server.domain.hosts.sliced import Prepared
from stompkit.server.domain.messages import Message, requests_repetition
from stompkit.server.domain.resolving import TEMPORARY, resolve, with_right
from stompkit.server.domain.session.acks import PendingAcks
from stompkit.server.domain.session.client_session import ClientSession
from stompkit.server.domain.session.headers import flag
from stompkit.server.domain.session.subscribing import on_subscribe, on_unsubscribe, with_reply_to
from stompkit.server.domain.settlements import (
    MOST_SETTLED,
    Acknowledged,
    Settlement,
    Transaction,
)
from stompkit.server.interfaces import Action, Credentials, User
from stompkit.server.log import client_events

__all__ = ["HANDLERS"]

# CONNECT.


def on_connect(connection: ClientSession, frame: Frame) -> None:
    """Authenticate the client; the session has negotiated the version."""
    broker, headers = connection.broker, frame.headers
    name = headers.get("host")
    if name is None:
        # 1.0 has no virtual hosts, and clients of 1.1 often omit the header.
        name = broker.config.hosts[0] if broker.config.hosts else ""
    connection.host = broker.host(name)
    if broker.config.require_heart_beat and _beats_ms(headers) == 0:
        raise RefusedError("this broker wants heart-beats", "heart-beat-required")
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
            raise RefusedError("login or passcode is wrong", "not-authenticated")
        _accept(connection, frame, user)

    connection.ask(frame, lambda answer: authenticator.authenticate(credentials, answer), then)


def _beats_ms(headers: dict[str, str]) -> int:
    try:
        return parse_heart_beat(headers.get("heart-beat"))[0]
    except ValueError:
        return 0


def _accept(connection: ClientSession, frame: Frame, user: User) -> None:
    """Answer CONNECT or STOMP."""
    connection.broker.logged_in(connection, user)
    version = connection.session.version
    assert version is not None  # the session hands CONNECT on only with a version
    connection.version = version
    config = connection.broker.config
    connection.ledger = PendingAcks(
        version, config.max_unacknowledged, config.max_unacknowledged_bytes
    )
    connection.client_id = frame.headers.get("client-id")
    connection.session_id = session = connection.broker.new_session()
    headers = {
        "session": session,
        "server": f"stompkit/{stompkit.__version__}",
    }
    connection.emit(connection.session.accept(headers, connection.scheduler.now))
    if connection.is_logged:
        connection.log_connected(headers)
    connection.outlet.logged_in()


# SEND.


def on_send(connection: ClientSession, frame: Frame) -> None:
    """Put a message into its destination, or into a transaction."""
    name = frame.get("destination")
    assert name is not None  # the session has checked that the frame names one
    if connection.broker.config.dialect != "stompkit" or name.startswith(TEMPORARY):
        name = resolve(connection, name, frame.headers)
    if frame.get("reply-to") is not None:
        frame = with_reply_to(connection, frame)
    if connection.broker.authoriser is None:
        _send(connection, frame, name, None)
        return
    with_right(
        connection,
        frame,
        Action.WRITE,
        name,
        lambda body: _send(connection, frame, name, body),
    )


def _send(connection: ClientSession, frame: Frame, name: str, body: bytes | None) -> None:
    broker, host = connection.broker, connection.host
    if body is not None:
        frame = Frame(frame.command, frame.headers | {"content-length": str(len(body))}, body)
    message = Message.from_send(
        frame, name, broker.new_message(), connection.version, broker.scheduler.wall
    )
    if host.is_gone(name):
        return
    if requests_repetition(frame):
        host.check_name(name)
        broker.traps.warn(client_events.repetition_ignored, host.name, name)
    transaction = _transaction(connection, frame)
    if transaction is None:
        choice = host.choice(message) if host.durables else None
        if choice is None:
            host.send(message, connection)
        else:
            _send_chosen(connection, frame, choice)
        return
    host.check_name(name)
    transaction.send(message, _other_octets(connection, transaction))


def _send_chosen(connection: ClientSession, frame: Frame, choice: Choice) -> None:
    def send() -> None:
        connection.host.send(choice.message, connection, choice)

    _choose(connection, frame, [choice], send)


def _choose(
    connection: ClientSession, frame: Frame, choices: Sequence[Choice], then: Callable[[], None]
) -> None:
    """Continue when durable subscriptions have been selected for messages."""

    def begin(done: Callable[[None], None]) -> None:
        connection.host.choice_work.begin(choices, connection, done)

    connection.ask(frame, begin, lambda _: then())


def _other_octets(connection: ClientSession, transaction: Transaction) -> int:
    return sum(each.octets for each in connection.transactions.values() if each is not transaction)


# ACK and NACK.


def on_ack(connection: ClientSession, frame: Frame) -> None:
    """Settle deliveries as consumed."""
    _settle(connection, frame, accepted=True)


def on_nack(connection: ClientSession, frame: Frame) -> None:
    """Settle deliveries as not consumed; ``requeue:false`` prevents redelivery."""
    _settle(connection, frame, accepted=False)


def _settle(connection: ClientSession, frame: Frame, *, accepted: bool) -> None:
    transaction = _transaction(connection, frame)
    headers = frame.headers
    requeue = "requeue" not in headers or flag(headers, "requeue")
    entries = connection.ledger.find(frame)
    settlement = Settlement(entries, accepted=accepted, requeue=requeue)
    if transaction is None:
        if len(entries) > MOST_SETTLED:
            _settle_in_parts(connection, frame, settlement)
        else:
            connection.broker.settler.settle(settlement)
        return
    transaction.settle(settlement)
    if accepted and entries:
        _free(connection, transaction, entries)


def _settle_in_parts(connection: ClientSession, frame: Frame, settlement: Settlement) -> None:
    def begin(done: Callable[[None], None]) -> None:
        connection.broker.settler.settle_in_parts(settlement, connection, done)

    connection.ask(frame, begin, lambda _: None)


def _free(
    connection: ClientSession, transaction: Transaction, entries: list[MessageReference]
) -> None:
    """Free room for more deliveries in place of those that an open transaction has acknowledged.

    Otherwise a client that processes more than its prefetch in one transaction would wait for ever.
    """
    broker = connection.broker
    entry = entries[-1]
    subscription = entry.subscription
    assert subscription is not None  # pending entries have one
    if connection.is_limited and entry.home.is_queue:
        broker.traps.warn(client_events.slots_in_transaction, connection.host.name, entry.home.name)
    is_free = connection.frees_in_transactions
    if is_free and len(connection.ledger) <= broker.config.max_unacknowledged:
        transaction.free(subscription, len(entries))
        broker.scheduler.feed(subscription)


# Transactions.


def on_begin(connection: ClientSession, frame: Frame) -> None:
    """Begin a transaction."""
    name = frame.headers["transaction"]
    if name in connection.transactions:
        raise RefusedError(f"transaction {name[:100]!a} has begun already", "duplicate-id")
    broker = connection.broker
    config = broker.config
    if len(connection.transactions) >= config.max_transactions:
        raise RefusedError(
            f"too many open transactions: at most {config.max_transactions}",
            "too-many-transactions",
        )
    transaction = connection.transactions[name] = Transaction(name, config)
    if config.transaction_timeout_s:
        _limit_time(connection, transaction, config.transaction_timeout_s)


def _limit_time(connection: ClientSession, transaction: Transaction, timeout_s: float) -> None:
    """End the connection if a transaction is open for too long."""
    broker = connection.broker
    until = broker.scheduler.now + timeout_s

    def end() -> None:
        if connection.has_input_waiting and broker.scheduler.now < until + MOST_GRACE_S:
            # Unread input may end the transaction.
            transaction.timer = broker.scheduler.later(LOOK_S, end)
            return
        connection.fail(
            f"transaction {transaction.name[:100]!a} has been open for {timeout_s:g} seconds",
            "transaction-timeout",
        )

    transaction.timer = broker.scheduler.later(timeout_s, end)


def on_commit(connection: ClientSession, frame: Frame) -> None:
    """Apply a transaction as a whole or not at all."""
    transaction = _named(connection, frame)
    host, messages = connection.host, transaction.messages
    transaction.end_delays(connection.scheduler.wall)
    choices: dict[Message, Choice] = {}
    if host.durables:
        choices = {each: found for each in messages if (found := host.choice(each)) is not None}
    names = host.names_to_make(messages)
    many, _ = transaction.split()
    if choices or names or many:
        # The timeout must not expire while the commit waits for others.
        connection.stop_timer(transaction)
    if choices:
        _choose(
            connection,
            frame,
            list(choices.values()),
            lambda: _reckon_and_commit(connection, frame, transaction, names, choices, many),
        )
    else:
        _reckon_and_commit(connection, frame, transaction, names, choices, many)


def _reckon_and_commit(
    connection: ClientSession,
    frame: Frame,
    transaction: Transaction,
    names: Iterable[str],
    choices: Mapping[Message, Choice],
    many: Sequence[Settlement],
) -> None:
    if not many:
        _make_and_commit(connection, frame, transaction, names, choices, None)
        return

    def begin(done: Callable[[Acknowledged], None]) -> None:
        connection.broker.settler.reckon_up(many, connection, done)

    def then(acknowledged: Acknowledged) -> None:
        _make_and_commit(connection, frame, transaction, names, choices, acknowledged)

    connection.ask(frame, begin, then)


def _make_and_commit(
    connection: ClientSession,
    frame: Frame,
    transaction: Transaction,
    names: Iterable[str],
    choices: Mapping[Message, Choice],
    acknowledged: Acknowledged | None,
) -> None:
    work = connection.host.commit_work
    if not names:
        _commit(connection, transaction, choices, acknowledged)
        return

    def begin(done: Callable[[Prepared], None]) -> None:
        work.begin(names, connection, done)

    def then(prepared: Prepared) -> None:
        try:
            if prepared.refused is not None:
                raise prepared.refused
            _commit(connection, transaction, choices, acknowledged)
        finally:
            work.let_go(prepared.kept)

    connection.ask(frame, begin, then)


def _commit(
    connection: ClientSession,
    transaction: Transaction,
    choices: Mapping[Message, Choice],
    acknowledged: Acknowledged | None,
) -> None:
    _end(connection, transaction)
    rest = transaction.settlements
    if acknowledged is not None:
        _, rest = transaction.split()
    connection.host.commit(transaction.messages, rest, connection, choices, acknowledged)


def on_abort(connection: ClientSession, frame: Frame) -> None:
    """Discard a transaction."""
    transaction = _named(connection, frame)
    _end(connection, transaction)
    connection.lapse(each for settled in transaction.settlements for each in settled.entries)


def _transaction(connection: ClientSession, frame: Frame) -> Transaction | None:
    name = frame.get("transaction")
    if name is None:
        return None
    transaction = connection.transactions.get(name)
    if transaction is None:
        raise RefusedError(f"there is no transaction {name[:100]!a}", "unknown-transaction")
    return transaction


def _named(connection: ClientSession, frame: Frame) -> Transaction:
    transaction = _transaction(connection, frame)
    assert transaction is not None  # the session has checked that the frame names one
    return transaction


def _end(connection: ClientSession, transaction: Transaction) -> None:
    del connection.transactions[transaction.name]
    connection.end_transaction(transaction)


# DISCONNECT.


def on_disconnect(connection: ClientSession, frame: Frame) -> None:
    """Release everything; a requested receipt is the last frame."""
    connection.release()
    connection.leave(frame)


_BY_NAME: Final[dict[str, Callable[[ClientSession, Frame], None]]] = {
    handler.__name__: handler
    for handler in (
        on_connect,
        on_send,
        on_subscribe,
        on_unsubscribe,
        on_ack,
        on_nack,
        on_begin,
        on_commit,
        on_abort,
        on_disconnect,
    )
}
#: The handlers by client command.
HANDLERS: Final[Mapping[str, Callable[[ClientSession, Frame], None]]] = {
    row.name: _BY_NAME[row.handler] for row in COMMANDS.values() if row.sender is Role.CLIENT
}
