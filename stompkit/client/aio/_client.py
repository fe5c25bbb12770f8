"""The client for asyncio: the Twisted client on an event loop, with futures."""

from __future__ import annotations

import asyncio
import random as random_module
import ssl
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint

from stompkit import client as twisted_client
from stompkit._common.certificates import Reread
from stompkit.client import AckMode, BufferLimits, ReconnectPolicy, ReplyStyle
from stompkit.client import _messages as messages
from stompkit.client._hosts import Host, Place, label_of, places_of
from stompkit.client._settings import (
    DEFAULT_BUFFERS,
    DEFAULT_HEART_BEAT_MS,
    DEFAULT_RECONNECT,
    DEFAULT_REPLY_DESTINATION,
    DEFAULT_TOLERANCE,
)
from stompkit.client.aio._loop import (
    Endpoint,
    LoopClock,
    future_of,
    log_to_logging,
    running_loop,
)
from stompkit.client.aio._subscription import Handler, Message, Subscription, leave, when_awaited
from stompkit.client.aio._transaction import Transaction
from stompkit.frames import (
    AFTER_LOGIN,
    VERSIONS,
    HeartBeatOffer,
    Limits,
    Tolerance,
    Version,
)

__all__ = ["Client"]


class Client:
    """A STOMP client that connects to the next of its hosts when a connection is lost.

    It has the guarantees of :class:`stompkit.client.Client`. Methods that wait return a future, and
    start when they are called: messages are sent in the order of the calls, even if none is
    awaited. Call all methods from the event loop's thread. As an asynchronous context manager the
    client connects, and disconnects at the end.
    """

    def __init__(
        self,
        hosts: str | Sequence[str],
        *,
        tls: ssl.SSLContext | None = None,
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
    ) -> None:
        """Create a client for the running event loop; :meth:`connect` connects it.

        ``hosts`` are ``HOST:PORT``, ``stomp://HOST:PORT`` or, for TLS, ``stomps://HOST:PORT``, with
        ``?ca=PATH`` for a file or directory of CA certificates. ``tls`` is a TLS context with these
        CA certificates, and with a client certificate if the broker requires one. The hooks may
        return an awaitable. The other arguments are those of :class:`stompkit.client.Client`.

        Raises ``ValueError`` for a host that cannot be parsed, and ``RuntimeError`` if no event
        loop is running.
        """
        self._loop = loop = running_loop()
        log_to_logging()
        names = [hosts] if isinstance(hosts, str) else hosts
        self._client = twisted_client.Client(
            [_host(place, loop, tls) for name in names for place in _places(name)],
            login=login,
            passcode=passcode,
            virtual_host=virtual_host,
            versions=versions,
            heart_beat_ms=heart_beat_ms,
            connect_headers=connect_headers,
            reconnect=reconnect,
            buffers=buffers,
            limits=limits,
            tolerance=tolerance,
            reply_style=reply_style,
            reply_destination=reply_destination,
            on_connected=on_connected and (lambda headers: when_awaited(on_connected(headers))),
            on_disconnected=on_disconnected and (lambda why: when_awaited(on_disconnected(why))),
            random=random,
            reactor=cast("IReactorTime", LoopClock(loop)),
        )

    def __repr__(self) -> str:
        """Return hosts and state, without secrets."""
        return repr(self._client)

    # The connection.

    async def __aenter__(self) -> Self:
        """Connect; raises the errors of :meth:`connect`. If it is cancelled, disconnect."""
        try:
            await self.connect()
        except asyncio.CancelledError:  # also by a timeout: nothing else would disconnect it
            self.disconnect()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Disconnect."""
        await self.disconnect()

    def connect(self) -> asyncio.Future[None]:
        """Connect; the future completes when a broker has answered CONNECTED.

        Fails with :class:`~stompkit.client.LoginRefusedError`, with
        :class:`~stompkit.client.ConnectFailedError` after as many attempts as the policy allows,
        and with :class:`~stompkit.client.ClientClosedError` if :meth:`disconnect` is called
        meanwhile.
        """
        return future_of(self._client.connect(), self._loop)

    def disconnect(self, *, timeout_s: float = 10.0) -> asyncio.Future[None]:
        """Send all waiting frames, then DISCONNECT; completes when the connection is closed.

        The connection is cut after ``timeout_s`` seconds if the broker takes longer.
        """
        return future_of(self._client.disconnect(timeout_s=timeout_s), self._loop)

    def when_closed(self) -> asyncio.Future[None]:
        """Return a future that completes when the client is closed, or fails when it gives up."""
        return future_of(self._client.when_closed(), self._loop)

    @property
    def is_connected(self) -> bool:
        """True if a connection is logged in."""
        return self._client.is_connected

    @property
    def version(self) -> Version:
        """STOMP version of the current or last connection; 1.2 before the first."""
        return self._client.version

    @property
    def connected_headers(self) -> dict[str, str]:
        """Headers of CONNECTED on the current or last connection."""
        return self._client.connected_headers

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
    ) -> asyncio.Future[None]:
        """Send a message; with ``receipt``, the future completes when a broker has confirmed it.

        Fails with and raises the errors of :meth:`stompkit.client.Client.send`. Cancelling the
        future withdraws the message; a message already written is not resent.
        """
        within = None if transaction is None else transaction._transaction
        sent = self._client.send(
            destination, body, headers, receipt=receipt, transaction=within, wait=wait
        )
        return future_of(sent, self._loop)

    def drain(self) -> asyncio.Future[None]:
        """Return a future that completes when the buffer is at most half full.

        Wait for it from time to time if you send many messages without waiting for each receipt.
        """
        return future_of(self._client.drain(), self._loop)

    def transaction(self) -> Transaction:
        """Create a transaction, for ``async with``; see :class:`Transaction`."""
        return Transaction(self._client.transaction(), self._loop)

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
    ) -> asyncio.Future[Subscription]:
        """Subscribe to a destination, on this connection and all later ones.

        Completes when the broker has confirmed it. Each message is passed to ``handler``, which may
        return an awaitable, and is acknowledged when that has succeeded. Without a handler, iterate
        over the subscription, and acknowledge the messages. See
        :meth:`stompkit.client.Client.subscribe`.
        """
        made = self._client.subscribe(
            destination,
            None if handler is None else self._handler(handler),
            ack=ack,
            headers=headers,
            prefetch=prefetch,
            receipt=receipt,
            nack_on_error=nack_on_error,
            concurrency=concurrency,
        )
        wrapped = made.addCallback(Subscription, self._loop)
        return future_of(wrapped, self._loop, leave)

    def _handler(self, handler: Handler) -> Callable[[messages.Message], Deferred[object] | None]:
        def handle(message: messages.Message) -> Deferred[object] | None:
            return when_awaited(handler(Message(message, self._loop)))

        return handle

    # Requests.

    def request(
        self,
        destination: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float = 30.0,
    ) -> asyncio.Future[Message]:
        """Send a message that asks for a reply, and return the reply.

        Fails with ``TimeoutError`` after ``timeout_s`` seconds, and with the errors of
        :meth:`stompkit.client.Client.request`.
        """
        coming = self._client.request(destination, body, headers, timeout_s=timeout_s)
        return future_of(coming.addCallback(Message, self._loop), self._loop)

    def reply(
        self,
        message: Message,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        receipt: bool = True,
    ) -> asyncio.Future[None]:
        """Send a reply to a message's ``reply-to``, with its ``correlation-id``; see :meth:`send`.

        Raises ``ValueError`` if the message has no ``reply-to``.
        """
        sent = self._client.reply(message._message, body, headers, receipt=receipt)
        return future_of(sent, self._loop)


def _places(address: str) -> list[Place]:
    if not isinstance(address, str):
        raise ValueError(f"a host is HOST:PORT or a URL, not {address!r}")
    places = places_of(address)
    if not places:
        raise ValueError(f"{address!a} is neither HOST:PORT nor stomp://HOST nor stomps://HOST")
    return places


def _host(place: Place, loop: asyncio.AbstractEventLoop, tls: ssl.SSLContext | None) -> Host:
    if place.is_tls and (tls is None or any(place.files)):
        endpoint = Endpoint(loop, place, Reread(place.files, place.files.context).get)
    else:
        endpoint = Endpoint(loop, place, lambda: tls if place.is_tls else None)
    return Host(cast("IStreamClientEndpoint", endpoint), place.host, label_of(place))
