"""The client that programs use: it connects, stays connected, and sends what it was given."""

from __future__ import annotations

import random as random_module
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import cast

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from stompkit.client._connector import Connector
from stompkit.client._core import Core, Phase
from stompkit.client._errors import ClientClosed, ClientError
from stompkit.client._gate import ReadingGate
from stompkit.client._hosts import Address, Host, hosts_of
from stompkit.client._messages import AckMode, Message
from stompkit.client._outbox import Outbox
from stompkit.client._protocol import ClientProtocol, Owner
from stompkit.client._requests import ReplyStyle, Requests
from stompkit.client._settings import BufferLimits, ReconnectPolicy
from stompkit.client._subscription import Handler, Subscription, Terms
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

_DEFAULT_POLICY = ReconnectPolicy()
_DEFAULT_BUFFERS = BufferLimits()


class Client:
    """A STOMP client that reconnects to the next of its hosts whenever it has lost the last one.

    What it guarantees:

    * A message sent with a receipt is sent again, with the same headers and the same receipt, on
      every new connection until a broker has confirmed or refused it: **at least once**, as long
      as this process lives. It can arrive twice; give it a header of your own by which the
      receiver can tell. Messages are sent in the order of the calls.
    * A message sent without a receipt is sent once, and may be lost with its connection.
    * Subscriptions are made again on every new connection. A message is acknowledged on the
      connection that it came over, or not at all.
    * A transaction lives within one connection, and is never sent again.
    * Whatever the broker refuses by an ERROR that names it is not sent again.
    * What the client holds in memory is bounded.

    Methods that have to wait give a Deferred, which coroutines can ``await``. All are called from
    the reactor's thread.
    """

    def __init__(
        self,
        hosts: Sequence[Address | Host],
        *,
        login: str | None = None,
        passcode: str | None = None,
        virtual_host: str | None = None,
        versions: tuple[Version, ...] = VERSIONS,
        heart_beat_ms: HeartBeatOffer = (10_000, 10_000),
        connect_headers: Mapping[str, str] | None = None,
        reconnect: ReconnectPolicy = _DEFAULT_POLICY,
        buffers: BufferLimits = _DEFAULT_BUFFERS,
        limits: Limits = AFTER_LOGIN,
        tolerance: Tolerance = Tolerance.RAW_COLON | Tolerance.BODY,
        reply_style: ReplyStyle = "subscribe",
        reply_destination: str = "/temp-queue/stompkit-{id}",
        on_connected: Callable[[dict[str, str]], object] | None = None,
        on_disconnected: Callable[[Exception], object] | None = None,
        random: Callable[[], float] = random_module.random,
        reactor: IReactorTime | None = None,
    ) -> None:
        """Make a client; :meth:`connect` connects it.

        ``hosts`` are tried in turn: ``"host:port"``, a description of a client endpoint such as
        ``"tls:host:port"``, or an endpoint. ``heart_beat_ms`` is how often the client can send a
        beat, and how often it wants one. ``connect_headers`` are further ones of CONNECT.
        ``virtual_host`` is CONNECT's ``host``, by default the name in the address, or
        ``localhost`` where there is none. ``limits`` and ``tolerance`` are for frames from the
        broker.

        ``reply_destination`` is the queue for replies to :meth:`request`, with ``{id}`` for a
        random word. With the ``reply_style`` ``"subscribe"`` the client subscribes to it; with
        ``"rabbitmq"`` the broker does that by itself.

        ``on_connected`` is called with the headers of CONNECTED after each login,
        ``on_disconnected`` with the reason whenever such a connection has ended. What they return
        is waited for by nobody, what they raise is logged.

        ``random`` gives numbers from 0 to below 1. ``reactor`` is the running one if not given; a
        ``Clock`` will do where ``hosts`` are endpoints. Raises ``ValueError`` for a host that
        can't be understood.
        """
        if reactor is None:
            from twisted.internet import reactor as running

            reactor = cast("IReactorTime", running)
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
        """Hosts and state; nothing that is secret."""
        hosts = ", ".join(host.label for host in self._hosts)
        return f"<Client of {hosts}: {self._core.phase.value}>"

    # The connection.

    def connect(self) -> Deferred[None]:
        """Connect, and fire when a broker has answered CONNECTED.

        Fires at once where the client is connected, and after a lost connection when there is
        another one. Fails with :class:`LoginRefused` if a broker answers CONNECT with ERROR, with
        :class:`ConnectFailed` after as many attempts as the policy allows, and with
        :class:`ClientClosed` if :meth:`disconnect` is called meanwhile. A client that is closed
        can be connected again; its earlier subscriptions have ended.
        """
        return self._core.connect()

    def disconnect(self, *, timeout_s: float = 10.0) -> Deferred[None]:
        """Send what waits, then DISCONNECT, and fire when the connection is closed.

        It is cut after ``timeout_s`` seconds if the broker takes longer. Where the client is not
        connected, it is closed at once. Whatever is not confirmed then fails with
        :class:`ClientClosed`, and so does what is sent from now on.
        """
        return self._core.disconnect(timeout_s)

    def when_closed(self) -> Deferred[None]:
        """Fire when the client is closed by :meth:`disconnect`, or fail when it gives up.

        It gives up for what makes :meth:`connect` fail, and it can happen at any reconnection.
        """
        return self._core.when_closed()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection that is logged in."""
        return self._core.phase is Phase.CONNECTED

    @property
    def version(self) -> Version:
        """The version of STOMP on the connection, or on the last one; 1.2 before the first."""
        return self._outbox.version

    @property
    def connected_headers(self) -> dict[str, str]:
        """The headers of CONNECTED on the connection, or on the last one."""
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

        With ``receipt`` it fires when a broker has confirmed the message, over this connection or
        a later one; a ``receipt`` among ``headers`` is taken, else there is a new one. Without,
        it fires when the message has been given to the transport.

        Fails with :class:`BufferFull` where the buffer has no room, or with ``wait`` waits for
        room; with :class:`BrokerError` if the broker refuses the message; with
        ``LocalProtocolError`` for headers that STOMP can't carry; with :class:`ClientClosed`.
        Raises ``ValueError`` for a receipt that is waited for already. To cancel the Deferred
        takes the message back, or if it is on its way keeps it from being sent again.

        In a ``transaction`` it fires at once, or fails with what :meth:`Transaction.send` raises:
        COMMIT has the receipt.
        """
        if not isinstance(body, bytes):
            raise TypeError(f"a body is bytes, not {type(body).__name__}")
        if transaction is not None:
            try:
                transaction.send(destination, body, headers)
            except ClientError:
                return fail()
            return succeed(None)
        frame = Frame("SEND", {**(headers or {}), "destination": destination}, body)
        return self._outbox.send(frame, receipt=receipt, wait=wait)

    def drain(self) -> Deferred[None]:
        """Fire when the buffer is at most half full; fails with :class:`ClientClosed`.

        Wait for it now and then where much is sent without waiting for each receipt.
        """
        return self._outbox.drain()

    def transaction(self) -> Transaction:
        """Make a transaction, for ``async with``; see :class:`Transaction`."""
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

        Fires when the broker has confirmed it; without ``receipt``, for brokers that have none,
        when SUBSCRIBE has been given to the transport. Fails with :class:`BrokerError` if the
        broker refuses, and with :class:`ClientClosed`. To cancel the Deferred ends the
        subscription.

        Each message is given to ``handler``, which may return a Deferred or a coroutine. When it
        has succeeded the message is acknowledged, unless it has been settled; when it has failed
        that is logged, and with ``nack_on_error`` the message is refused by NACK (which 1.0 does
        not have). ``concurrency`` is how many messages it gets at a time. Without a handler,
        iterate over the subscription, and acknowledge the messages.

        ``headers`` are further ones of SUBSCRIBE; with an ``id`` among them that is the
        subscription's. ``prefetch`` is the most messages that the broker shall send ahead of
        their acknowledgements, by the headers ``prefetch-count`` and ``activemq.prefetchSize``,
        and for Artemis by ``consumer-window-size``, with 1 MiB for each message.

        Raises ``ValueError`` for arguments that don't fit, and an ``id`` that is in use.
        """
        if self._core.phase in (Phase.CLOSING, Phase.CLOSED):
            return fail(ClientClosed())
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
        return subscription.when_ready().addErrback(_leave_if_cancelled, subscription)

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

        The message has a ``reply-to``, and a ``correlation-id`` by which the reply is known: that
        among ``headers``, else a new one. It is sent at least once, and the reply is lost with
        the connection. Fails with ``TimeoutError`` after ``timeout_s`` seconds, and drops a reply
        that comes later; fails with what :meth:`send` and :meth:`subscribe` fail with. Raises
        ``ValueError`` for a ``correlation-id`` that is waited for already.
        """
        if self._core.phase in (Phase.CLOSING, Phase.CLOSED):
            return fail(ClientClosed())
        return self._core.requests.request(destination, body, headers or {}, timeout_s)

    def reply(
        self,
        message: Message,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        receipt: bool = True,
    ) -> Deferred[None]:
        """Send a reply to where a message wants it, with its ``correlation-id``; as :meth:`send`.

        Raises ``ValueError`` where the message has no ``reply-to``.
        """
        destination = message.headers.get("reply-to")
        if destination is None:
            raise ValueError(f"{message!r} asks for no reply: it has no reply-to")
        entries = dict(headers or {})
        if "correlation-id" in message.headers:
            entries["correlation-id"] = message.headers["correlation-id"]
        return self.send(destination, body, entries, receipt=receipt)

    # Inside.

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


def _leave_if_cancelled(failure: Failure, subscription: Subscription) -> Failure:
    if isinstance(failure.value, CancelledError):
        subscription.unsubscribe().addErrback(lambda _: None)  # nobody is there to be told
    return failure
