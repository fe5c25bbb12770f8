"""The client: it connects, reconnects, and sends messages."""

from __future__ import annotations

import random as random_module
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Self

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime

from stompkit.client._connector import Connector
from stompkit.client._content import check_body
from stompkit.client._core import Core, Phase
from stompkit.client._entries import OnDone, Packet
from stompkit.client._errors import ClientError
from stompkit.client._gate import ReadingGate
from stompkit.client._hosts import Address, Host, hosts_of
from stompkit.client._messages import AckMode, Message
from stompkit.client._outbox import Outbox
from stompkit.client._protocol import ClientProtocol, Owner
from stompkit.client._reactor import running_reactor
from stompkit.client._requests import ReplyStyle, Requests
from stompkit.client._settings import (
    DEFAULT_BUFFERS,
    DEFAULT_HEART_BEAT_MS,
    DEFAULT_RECONNECT,
    DEFAULT_REPLY_DESTINATION,
    DEFAULT_TOLERANCE,
    BufferLimits,
    ReconnectPolicy,
)
from stompkit.client._subscription import Handler, Subscription, Terms, leave_if_cancelled
from stompkit.client._subscriptions import Subscriptions
from stompkit.client._transactions import Transaction
from stompkit.frames import (
    AFTER_LOGIN,
    VERSIONS,
    Frame,
    HeartBeatOffer,
    Limits,
    Role,
    Session,
    Tolerance,
    Version,
)

__all__ = ["Client"]


class Client:
    """A STOMP client that connects to the next of its hosts when a connection is lost.

    Guarantees:

    * A message sent with a receipt is resent on every new connection until a broker has confirmed
      or refused it: **at least once**, as long as this process lives. It keeps its headers and its
      receipt. It can arrive twice; add a header by which the receiver can recognise duplicates.
      Messages are sent in the order of the calls.
    * A message sent without a receipt is sent once, and may be lost with its connection.
    * Subscriptions are restored on every new connection. A message is acknowledged on the
      connection that delivered it, or not at all.
    * A transaction is bound to one connection, and is never resent.
    * A frame that the broker refuses by an ERROR with its receipt is not resent.
    * The memory for buffered messages is limited.

    Methods that wait return a Deferred, which coroutines can ``await``. Call all methods from the
    reactor thread.
    """

    def __init__(
        self,
        hosts: Sequence[Address | Host],
        *,
        login: str | None = None,
        passcode: str | None = None,
        virtual_host: str | None = None,
        versions: tuple[Version, ...] = VERSIONS,
        heart_beat_ms: HeartBeatOffer = DEFAULT_HEART_BEAT_MS,
        connect_headers: Mapping[str, str] | None = None,
        reconnect: ReconnectPolicy = DEFAULT_RECONNECT,
        buffers: BufferLimits = DEFAULT_BUFFERS,
        limits: Limits = AFTER_LOGIN,
        tolerance: Tolerance = DEFAULT_TOLERANCE,
        reply_style: ReplyStyle = "subscribe",
        reply_destination: str = DEFAULT_REPLY_DESTINATION,
        on_connected: Callable[[dict[str, str]], object] | None = None,
        on_disconnected: Callable[[Exception], object] | None = None,
        random: Callable[[], float] = random_module.random,
        reactor: IReactorTime | None = None,
    ) -> None:
        """Create a client; :meth:`connect` connects it.

        ``hosts`` are tried in turn: ``"host:port"``, a description of a client endpoint such as
        ``"tls:host:port"``, or an endpoint. ``heart_beat_ms`` contains the intervals in
        milliseconds at which the client can send and wants to receive heart-beats.
        ``connect_headers`` are additional headers of CONNECT. ``virtual_host`` is the ``host``
        header of CONNECT; its default is the name in the address, or ``localhost`` if the address
        has none. ``limits`` and ``tolerance`` apply to frames from the broker.

        ``reply_destination`` is the queue for replies to :meth:`request`, with ``{id}`` for a
        random word. With the ``reply_style`` ``"subscribe"`` the client subscribes to it; with
        ``"rabbitmq"`` the broker subscribes it automatically.

        ``on_connected`` is called with the headers of CONNECTED after each login.
        ``on_disconnected`` is called with the reason whenever such a connection ends. Their results
        are not awaited; exceptions that they raise are logged.

        ``random`` returns numbers from 0 to below 1. ``reactor`` defaults to the running reactor; a
        ``Clock`` suffices if ``hosts`` are endpoints. Raises ``ValueError`` for a host that cannot
        be parsed, and ``RuntimeError`` in an asyncio program without a running reactor, which needs
        :class:`stompkit.client.aio.Client`.
        """
        reactor = running_reactor() if reactor is None else reactor
        self._hosts = hosts_of(hosts, reactor, reconnect.attempt_timeout_s)
        self._login = login
        self._passcode = passcode
        self._virtual_host = virtual_host
        self._connect_headers = dict(connect_headers or {})
        self._versions = versions
        self._heart_beat_ms = heart_beat_ms
        self._buffers = buffers
        self._limits = limits
        self._tolerance = tolerance
        self._clock = reactor
        self._transaction_numbers = count(1)
        gate = ReadingGate()
        self._outbox = Outbox(buffers, gate)
        self._subscriptions = Subscriptions(self._outbox, gate)
        self._core = Core(
            self._outbox, gate, self._subscriptions, reactor, on_connected, on_disconnected
        )
        self._core.connector = Connector(
            self._hosts, reconnect, reactor, random, self._protocol, self._core
        )
        subscribe = self._subscribe_to_replies if reply_style == "subscribe" else None
        self._core.requests = Requests(self._outbox, gate, reactor, subscribe, reply_destination)

    def __repr__(self) -> str:
        """Return hosts and state, without secrets."""
        hosts = ", ".join(host.label for host in self._hosts)
        return f"<Client of {hosts}: {self._core.phase.value}>"

    # The connection.

    async def __aenter__(self) -> Self:
        """Connect; raises the errors of :meth:`connect`. If it is cancelled, disconnect."""
        try:
            await self.connect()
        except BaseException:  # such as a timeout: nothing else would disconnect it
            self.disconnect()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        await self.disconnect()

    def connect(self) -> Deferred[None]:
        """Connect, and fire when a broker has answered CONNECTED.

        Fires at once if the client is connected, and after a lost connection when it has
        reconnected. Fails with :class:`LoginRefusedError` if a broker answers CONNECT with ERROR
        (without ``stompkit-code``: after one attempt at each other host).
        Fails with :class:`ConnectFailedError` after the maximum number of attempts of the policy,
        and with :class:`ClientClosedError` if :meth:`disconnect` is called meanwhile. A closed
        client can be connected again; its earlier subscriptions have ended.
        """
        return self._core.connect()

    def disconnect(self, *, timeout_s: float = 10.0) -> Deferred[None]:
        """Send all waiting frames, then DISCONNECT, and fire when the connection is closed.

        The connection is cut after ``timeout_s`` seconds if the broker takes longer. A client that
        is not connected is closed at once. Unconfirmed messages then fail with
        :class:`ClientClosedError`, and so do later calls.
        """
        return self._core.disconnect(timeout_s)

    def when_closed(self) -> Deferred[None]:
        """Fire when the client is closed by :meth:`disconnect`, or fail when it gives up.

        The client gives up for the same reasons that make :meth:`connect` fail, at any
        reconnection.
        """
        return self._core.when_closed()

    @property
    def is_connected(self) -> bool:
        """True if a connection is logged in."""
        return self._core.phase is Phase.CONNECTED

    @property
    def version(self) -> Version:
        """STOMP version of the current or last connection; 1.2 before the first."""
        return self._outbox.version

    @property
    def connected_headers(self) -> dict[str, str]:
        """Headers of CONNECTED on the current or last connection."""
        return dict(self._core.connected_headers)

    # Sending.

    def send(
        self,
        destination: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        receipt: bool = True,
        transaction: Transaction | None = None,
        wait: bool = False,
    ) -> Deferred[None]:
        """Send a message.

        With ``receipt`` it fires when a broker has confirmed the message, on this connection or a
        later one. A ``receipt`` in ``headers`` is used, otherwise a new one. Without ``receipt`` it
        fires when the message has been given to the transport.

        If the buffer is full it fails with :class:`BufferFullError`, or with ``wait`` waits for
        room. Fails with :class:`BrokerError` if the broker refuses the message, with
        ``LocalProtocolError`` for headers that STOMP cannot encode, and with
        :class:`ClientClosedError`. Raises ``ValueError`` for a receipt that is already pending.
        Cancelling the Deferred withdraws the message; a message already written is not resent.

        In a ``transaction`` it fires at once, or fails with the errors of :meth:`Transaction.send`;
        COMMIT carries the receipt.
        """
        check_body(body)
        if transaction is not None:
            try:
                transaction.send(destination, body, headers)
            except ClientError:
                return fail()
            return succeed(None)
        frame = Frame("SEND", {**(headers or {}), "destination": destination}, body)
        return self._outbox.send(frame, receipt=receipt, wait=wait)

    def send_each(
        self,
        destination: str,
        packets: Iterable[Packet],
        on_done: OnDone,
        *,
        receipt: bool = True,
    ) -> None:
        """Send several messages in order, for the other parts of the client.

        ``on_done`` is called once for each message, as soon as the Deferred of :meth:`send` would
        fire: with ``None``, or with the error. It must not raise exceptions.
        """
        for each in packets:
            try:
                check_body(each.body)
                frame = Frame("SEND", each.headers, each.body)
                frame.headers["destination"] = destination
                self._outbox.enqueue(frame, on_done, receipt=receipt)
            except Exception as error:
                on_done(error)
        self._outbox.pump()

    def drain(self) -> Deferred[None]:
        """Fire when the buffer is at most half full; fails with :class:`ClientClosedError`.

        Wait for it from time to time if you send many messages without waiting for each receipt.
        """
        return self._outbox.drain()

    def transaction(self) -> Transaction:
        """Create a transaction, for ``async with``; see :class:`Transaction`."""
        name = f"stompkit-{next(self._transaction_numbers)}"
        return Transaction(name, self._outbox, self._core.when_connected)

    # Receiving.

    def subscribe(
        self,
        destination: str,
        handler: Handler | None = None,
        *,
        ack: AckMode = "client-individual",
        headers: Mapping[str, str] | None = None,
        prefetch: int | None = None,
        receipt: bool = True,
        nack_on_error: bool = True,
        concurrency: int = 1,
    ) -> Deferred[Subscription]:
        """Subscribe to a destination, on this connection and all later ones.

        Fires when the broker has confirmed the subscription; without ``receipt``, for brokers that
        do not support receipts, when SUBSCRIBE has been given to the transport. Fails with
        :class:`BrokerError` if the broker refuses, and with :class:`ClientClosedError`. Cancelling
        the Deferred ends the subscription.

        Each message is passed to ``handler``, which may return a Deferred or a coroutine. If it
        succeeds, the message is acknowledged, unless it is settled already. If it fails, the
        failure is logged, and with ``nack_on_error`` the client sends NACK, which STOMP 1.0 does
        not have. ``concurrency`` is the number of messages that the handler processes at a time.
        Without a handler, iterate over the subscription, and acknowledge the messages.

        ``headers`` are additional headers of SUBSCRIBE; an ``id`` among them becomes the id of the
        subscription. ``prefetch`` is the maximum number of unacknowledged messages that the broker
        sends. It sets the headers ``prefetch-count`` and ``activemq.prefetchSize``, and for Artemis
        ``consumer-window-size``, with 1 MiB for each message.

        Raises ``ValueError`` for invalid arguments, and for an ``id`` that is in use.
        """
        if self._core.phase in (Phase.CLOSING, Phase.CLOSED):
            return fail(self._core.closed_error())
        further = dict(headers or {})
        terms = Terms(
            id=further.pop("id", "") or self._subscriptions.new_id(),
            destination=destination,
            headers=further,
            ack=ack,
            handler=handler,
            max_messages=self._buffers.queue_messages,
            max_bytes=self._buffers.queue_bytes,
            prefetch=prefetch,
            receipt=receipt,
            nack_on_error=nack_on_error,
            concurrency=concurrency,
        )
        subscription = self._subscriptions.add(terms)
        return subscription.when_ready().addErrback(leave_if_cancelled, subscription)

    # Requests.

    def request(
        self,
        destination: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float = 30.0,
    ) -> Deferred[Message]:
        """Send a message that asks for a reply, and fire with the reply.

        The message has a ``reply-to`` and a ``correlation-id`` that identifies the reply: the one
        in ``headers``, otherwise a new one. The request is sent at least once; the reply is lost if
        the connection is lost. Fails with ``TimeoutError`` after ``timeout_s`` seconds, and drops a
        later reply; also fails with the errors of :meth:`send` and :meth:`subscribe`. Raises
        ``ValueError`` for a ``correlation-id`` that is already pending.
        """
        if self._core.phase in (Phase.CLOSING, Phase.CLOSED):
            return fail(self._core.closed_error())
        return self._core.requests.request(destination, body, headers or {}, timeout_s)

    def reply(
        self,
        message: Message,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        receipt: bool = True,
    ) -> Deferred[None]:
        """Send a reply to a message's ``reply-to``, with its ``correlation-id``; see :meth:`send`.

        Raises ``ValueError`` if the message has no ``reply-to``.
        """
        destination = message.headers.get("reply-to")
        if destination is None:
            raise ValueError(f"{message!r} asks for no reply: it has no reply-to")
        entries = dict(headers or {})
        if "correlation-id" in message.headers:
            entries["correlation-id"] = message.headers["correlation-id"]
        return self.send(destination, body, entries, receipt=receipt)

    def _protocol(self, host: Host, owner: Owner) -> ClientProtocol:
        session = Session(
            Role.CLIENT,
            self._clock.seconds(),
            versions=self._versions,
            heart_beat=self._heart_beat_ms,
            limits=self._limits,
            tolerance=self._tolerance,
        )
        headers = {"host": self._virtual_host or host.name}
        if self._login is not None:
            headers["login"] = self._login
        if self._passcode is not None:
            headers["passcode"] = self._passcode
        return ClientProtocol(session, headers | self._connect_headers, self._clock, owner)

    def _subscribe_to_replies(
        self, destination: str, handler: Callable[[Message], None]
    ) -> Subscription:
        terms = Terms(
            id=self._subscriptions.new_id(),
            destination=destination,
            headers={},
            ack="auto",
            handler=handler,
            max_messages=self._buffers.queue_messages,
            max_bytes=self._buffers.queue_bytes,
        )
        return self._subscriptions.add(terms)
