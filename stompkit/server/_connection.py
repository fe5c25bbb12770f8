"""One client of the broker: its session, subscriptions, transactions and output."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import stompkit
from stompkit.frames import (
    COMMANDS,
    Frame,
    LocalProtocolError,
    RemoteProtocolError,
    Role,
    Session,
    State,
    Version,
    refusal,
)
from stompkit.server._acks import Ledger
from stompkit.server._broker import Broker
from stompkit.server._errors import Refused
from stompkit.server._messages import header_line
from stompkit.server._subscriptions import AckMode, Subscription
from stompkit.server._transactions import Settlement, Transaction
from stompkit.server.interfaces import Outlet

__all__ = ["Connection"]

_MOST_PREFETCH_DIGITS = 9


class Connection:
    """Turns what one client sends into calls of the broker, and answers it.

    It knows neither transport nor clock: octets come in by :meth:`receive` with the time, and go
    out through the ``outlet``. Its owner calls :meth:`Broker.flush` after each call.
    """

    def __init__(self, broker: Broker, outlet: Outlet, now: float) -> None:
        """Begin with nothing received."""
        config = broker.config
        self.session = Session(
            Role.SERVER,
            now,
            heart_beat=config.heart_beat_ms,
            limits=config.limits,
            limits_before_login=config.limits_before_login,
            tolerance=config.tolerance,
        )
        self.version: Version = "1.0"
        self.ledger = Ledger("1.0")
        self.subscriptions: dict[str, Subscription] = {}
        self.transactions: dict[str, Transaction] = {}
        #: Why the connection was closed with an ERROR, once it has been.
        self.failure: RemoteProtocolError | None = None
        #: Whether messages can be written now; replies always can.
        self.has_room = True
        self._broker = broker
        self._outlet = outlet
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._closing = False

    # Input.

    def opened(self) -> None:
        """Begin; a client too many is told so and closed."""
        try:
            self._broker.connected(self)
        except Refused as refused:
            self.fail(refused.message, refused.code)

    def receive(self, data: bytes, now: float) -> None:
        """Take octets from the client."""
        self._broker.now = now
        try:
            while frames := self.session.receive(data, now):
                data = b""
                for frame in frames:
                    self._handle(frame)
                    if self._closing:
                        return
        except RemoteProtocolError as error:
            self._send_error(error)

    def _handle(self, frame: Frame) -> None:
        handler = self._HANDLERS[frame.command]
        receipt = frame.headers.get("receipt")
        try:
            handler(self, frame)
        except Refused as refused:
            self.fail(refused.message, refused.code, receipt=receipt)
            return
        if receipt is not None and frame.command not in ("CONNECT", "STOMP"):
            line = header_line("receipt-id", receipt, self.version)
            self.emit(b"RECEIPT\n", line, b"\n\0")
        if self._closing:
            self._end()

    def on_deadline(self, now: float) -> None:
        """Send a heart-beat that is due, or give up a client that has been silent too long."""
        beat = self.session.heart_beat
        if beat.is_dead(now):
            seconds = beat.receive_s * beat.tolerance
            self.fail(f"nothing received for {seconds:.1f} seconds", "heart-beat-timeout")
        elif beat.must_send(now):
            beat.last_sent = now
            self._outlet.write(b"\n")

    def next_deadline(self) -> float | None:
        """The time at which :meth:`on_deadline` has to be called next, if at all."""
        return None if self._closing else self.session.heart_beat.next_deadline()

    def set_writable(self, writable: bool, now: float) -> None:  # noqa: FBT001 (a state, not a choice)
        """Note whether the transport takes more octets; messages wait while it does not."""
        self._broker.now = now
        self.has_room = writable and not self._closing
        if self.has_room:
            for subscription in self.subscriptions.values():
                self._broker.touch(subscription.destination)

    def lost(self) -> None:
        """Note the end of the stream: what was not settled goes back to its destination."""
        self._closing = True
        self._release()
        self._broker.connections.discard(self)

    @property
    def is_logged_in(self) -> bool:
        """Whether CONNECT has been answered by CONNECTED."""
        return self.session.state not in (State.OPENING, State.CONNECTING)

    # Output.

    def emit(self, *pieces: bytes) -> None:
        """Write octets at the end of the turn, or as soon as there are enough for a write."""
        if not self._out:
            self._broker.wrote(self)
        self._out.extend(pieces)
        self._out_bytes += sum(map(len, pieces))
        if self._out_bytes >= self._broker.config.write_batch_bytes:
            self.write_out()

    def write_out(self) -> None:
        """Write what was emitted."""
        if self._out:
            data = b"".join(self._out)
            self._out.clear()
            self._out_bytes = 0
            self.session.heart_beat.last_sent = self._broker.now
            self._outlet.write(data)

    def fail(self, message: str, code: str, *, receipt: str | None = None) -> None:
        """Send ERROR and close (1.2, "ERROR")."""
        self._send_error(refusal(message, code, receipt=receipt))

    def _send_error(self, error: RemoteProtocolError) -> None:
        if self._closing:
            return
        self._closing = True
        self.failure = error
        if error.reply is not None:
            try:
                self.emit(self.session.send(error.reply, self._broker.now))
            except LocalProtocolError:
                # What the client sent can't be repeated to it: say less.
                headers = {"message": "malformed frame", "stompkit-code": error.code}
                self.emit(self.session.send(Frame("ERROR", headers), self._broker.now))
        self._end()

    def _end(self) -> None:
        """Write what is left, close, and give everything back."""
        self._release()
        self.write_out()
        self._outlet.close()

    def _release(self) -> None:
        """Abort transactions, end subscriptions, return what is unsettled."""
        self.has_room = False
        for transaction in self.transactions.values():
            transaction.release()
        self.transactions.clear()
        for subscription in self.subscriptions.values():
            self._remove(subscription)
        self.subscriptions.clear()
        self._broker.give_back(self.ledger.clear())

    # One method for each command; the table in stompkit.frames names them.

    def on_connect(self, frame: Frame) -> None:
        """Answer CONNECT or STOMP; the session has settled the version."""
        version = self.session.version
        assert version is not None  # the session hands CONNECT on only with a version
        self.version = version
        self.ledger = Ledger(version)
        headers = {
            "session": self._broker.new_session(),
            "server": f"stompkit/{stompkit.__version__}",
        }
        self.emit(self.session.accept(headers, self._broker.now))

    def on_send(self, frame: Frame) -> None:
        """Put a message into its destination, or into a transaction."""
        message = self._broker.message(frame, self.version)
        transaction = self._transaction(frame)
        if transaction is None:
            self._broker.send(message)
        else:
            self._broker.check_name(message.destination)
            transaction.send(message)

    def on_subscribe(self, frame: Frame) -> None:
        """Subscribe to a destination."""
        headers = frame.headers
        name = headers["destination"]
        subscription_id = headers.get("id")
        # On 1.0 the id is optional, and the destination names the subscription without one.
        key = f"id {subscription_id}" if subscription_id is not None else f"destination {name}"
        if key in self.subscriptions:
            raise Refused(f"there is a subscription with {key[:100]!a} already", "duplicate-id")
        if len(self.subscriptions) >= self._broker.config.max_subscriptions:
            raise Refused(
                f"too many subscriptions: at most {self._broker.config.max_subscriptions}",
                "too-many-subscriptions",
            )
        if "selector" in headers:
            raise Refused("selectors are not supported", "unsupported")
        mode = self._ack_mode(headers.get("ack", "auto"))
        prefetch = self._prefetch(headers)
        destination = self._broker.destination(name)
        subscription = Subscription(
            self, destination, subscription_id, mode, prefetch, self.version
        )
        self.subscriptions[key] = subscription
        destination.add(subscription)
        self._broker.touch(destination)

    @staticmethod
    def _ack_mode(value: str) -> AckMode:
        try:
            return AckMode(value)
        except ValueError:
            modes = ", ".join(mode.value for mode in AckMode)
            raise Refused(f"ack mode {value[:40]!a} is none of {modes}", "bad-ack-mode") from None

    def _prefetch(self, headers: dict[str, str]) -> int:
        config = self._broker.config
        value = headers.get("prefetch-count", headers.get("activemq.prefetchSize"))
        if value is None:
            return config.prefetch
        if not (value.isascii() and value.isdigit() and len(value) <= _MOST_PREFETCH_DIGITS):
            raise Refused(f"prefetch {value[:40]!a} is not a number of messages", "bad-header")
        # RabbitMQ's 0 stands for "no limit": here, for the highest one.
        return min(int(value) or config.max_prefetch, config.max_prefetch)

    def on_unsubscribe(self, frame: Frame) -> None:
        """End a subscription; what it delivered can still be acknowledged."""
        headers = frame.headers
        key = f"id {headers['id']}" if "id" in headers else f"destination {headers['destination']}"
        subscription = self.subscriptions.pop(key, None)
        if subscription is None:
            raise Refused(f"there is no subscription with {key[:100]!a}", "unknown-subscription")
        self._remove(subscription)

    def _remove(self, subscription: Subscription) -> None:
        # Unsettled deliveries keep the subscription, and should not keep what it never delivered.
        subscription.backlog.clear()
        subscription.backlog_bytes = 0
        subscription.destination.remove(subscription)
        self._broker.touch(subscription.destination)

    def on_ack(self, frame: Frame) -> None:
        """Settle deliveries as consumed."""
        self._settle(frame, accepted=True)

    def on_nack(self, frame: Frame) -> None:
        """Settle deliveries as not consumed; ``requeue:false`` asks for no further try."""
        self._settle(frame, accepted=False)

    def _settle(self, frame: Frame, *, accepted: bool) -> None:
        transaction = self._transaction(frame)
        requeue = frame.headers.get("requeue", "true") != "false"
        settlement = Settlement(self.ledger.find(frame), accepted=accepted, requeue=requeue)
        if transaction is None:
            self._broker.settle(settlement)
        else:
            transaction.settle(settlement)

    def on_begin(self, frame: Frame) -> None:
        """Begin a transaction."""
        name = frame.headers["transaction"]
        if name in self.transactions:
            raise Refused(f"transaction {name[:100]!a} has begun already", "duplicate-id")
        config = self._broker.config
        if len(self.transactions) >= config.max_transactions:
            raise Refused(
                f"too many open transactions: at most {config.max_transactions}",
                "too-many-transactions",
            )
        self.transactions[name] = Transaction(name, config)

    def on_commit(self, frame: Frame) -> None:
        """Apply a transaction, whole or not at all."""
        transaction = self._ended(frame)
        transaction.release()
        self._broker.commit(transaction.messages, transaction.settlements)

    def on_abort(self, frame: Frame) -> None:
        """Drop a transaction."""
        self._ended(frame).release()

    def _transaction(self, frame: Frame) -> Transaction | None:
        name = frame.headers.get("transaction")
        if name is None:
            return None
        transaction = self.transactions.get(name)
        if transaction is None:
            raise Refused(f"there is no transaction {name[:100]!a}", "unknown-transaction")
        return transaction

    def _ended(self, frame: Frame) -> Transaction:
        transaction = self._transaction(frame)
        assert transaction is not None  # the session has checked that the frame names one
        del self.transactions[transaction.name]
        return transaction

    def on_disconnect(self, frame: Frame) -> None:
        """End the session; a receipt, if asked for, is the last frame."""
        self._release()
        self._closing = True

    _HANDLERS: ClassVar[dict[str, Callable[[Connection, Frame], None]]] = {}


Connection._HANDLERS.update(
    (row.name, getattr(Connection, row.handler))
    for row in COMMANDS.values()
    if row.sender is Role.CLIENT
)
