"""The connection to a broker."""

from __future__ import annotations

import threading
import time as clocks
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, Self, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from stompkit.client import (
    AckMode,
    BufferLimits,
    Client,
    ClientClosed,
    ConnectFailed,
    LoginRefused,
    ReconnectPolicy,
)
from stompkit.link._inbox import Inbox
from stompkit.link._thread import LinkClosed, ReactorThread, exception_of

__all__ = ["Link"]

_Given = TypeVar("_Given")
#: How often a wait looks whether it is to end, in seconds.
_LOOK_S: Final = 0.1
_RECONNECT: Final = ReconnectPolicy(max_s=5.0)
#: How many messages, and octets of them, wait for a broker before :meth:`Link.send` waits, too.
_MAX_MESSAGES: Final = 2_000
_MAX_BYTES: Final = 64 * 1024 * 1024
#: The client itself is to refuse nothing: a message of any size may go where nothing else waits.
_UNBOUNDED: Final = 2**62
#: Octets of messages that wait in an inbox.
_INBOX_BYTES: Final = 16 * 1024 * 1024
#: Octets of messages behind those, before the client reads no more. While an answer is waited for
#: it has to read on: a subscription ends at 16 times of this, and a thousand frames of 1 MiB may
#: stand in front of the answer.
_QUEUE_BYTES: Final = 64 * 1024 * 1024


class Packet(Protocol):
    """What goes into one SEND frame beside its destination."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers."""

    @property
    def body(self) -> bytes:
        """Its body."""


@dataclass(slots=True)
class _Sending:
    """Packets that are confirmed together."""

    destination: str
    packets: list[Packet]
    size: int
    future: Future[None]
    left: int


class Link:
    """A connection to a broker, or to the next of several; its methods block, or give futures.

    It can be used by several threads, but the callbacks of its futures, which are called in a
    thread of its own, can't wait for it. As a context manager it is closed at the end, after what
    was sent is confirmed.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        login: str | None = None,
        passcode: str | None = None,
        virtual_host: str | None = None,
        receipts: bool = True,
        connect_headers: Mapping[str, str] | None = None,
        reconnect: ReconnectPolicy = _RECONNECT,
        max_messages: int = _MAX_MESSAGES,
        max_bytes: int = _MAX_BYTES,
        on_connected: Callable[[], object] | None = None,
        on_disconnected: Callable[[Exception], object] | None = None,
    ) -> None:
        """Begin to connect, which goes on in the background.

        ``hosts``, ``login``, ``passcode``, ``virtual_host``, ``connect_headers`` and ``reconnect``
        are those of :class:`stompkit.client.Client`. Without ``receipts``, for brokers that have
        none, a message counts as taken when it is written: it may be lost with its connection.
        ``max_messages`` and ``max_bytes`` bound what waits for the broker.

        ``on_connected`` is called after each login, when the subscriptions that there are have been
        sent, and ``on_disconnected`` with the reason whenever such a connection has ended; both in
        the link's own thread, where they can't wait for the link, and perhaps before the link has
        been made. What they raise is logged. Raises ``ValueError`` for a host that can't be
        understood.
        """
        self._receipts = receipts
        self._most = (max_messages, max_bytes)
        self._has_room = threading.Condition()
        self._messages = self._bytes = 0
        self._line: deque[_Sending] = deque()
        self._is_closed = self._is_stopped = False
        self._closing = threading.Lock()
        #: Done when the link is closed; fails with why it has given up by itself, if so.
        self.closed: Final[Future[None]] = _promise()
        self._thread = ReactorThread()
        buffers = BufferLimits(
            send_messages=_UNBOUNDED, send_bytes=_UNBOUNDED, queue_bytes=_QUEUE_BYTES
        )
        try:
            self._client = Client(
                hosts,
                login=login,
                passcode=passcode,
                virtual_host=virtual_host,
                connect_headers=connect_headers,
                reconnect=reconnect,
                buffers=buffers,
                on_connected=None if on_connected is None else lambda headers: on_connected(),
                on_disconnected=on_disconnected,
                reactor=self._thread.reactor,
            )
        except BaseException:
            self._thread.stop()
            raise
        self._connected = self._thread.call(self._client.connect)
        self._thread.start(self._watch)

    def __repr__(self) -> str:
        """Hosts and state; nothing that is secret."""
        return f"<Link of {self._client!r}>"

    def __enter__(self) -> Self:
        """Return the link."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close it; after an exception without waiting for what was sent."""
        self.close(timeout_s=10.0 if kind is None else 0.5)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection that is logged in."""
        return self._client.is_connected

    def wait_connected(self, timeout_s: float | None = None) -> None:
        """Wait for the first connection.

        Raises TimeoutError, and :class:`LinkClosed` where the broker refuses the login.
        """
        self._result(self._connected, timeout_s)

    def send(self, destination: str, packets: Iterable[Packet]) -> Future[None]:
        """Send frames, in order with all others; gives what is done when they are all confirmed.

        Waits while too much waits for the broker. The future fails with what
        :meth:`stompkit.client.Client.send` fails with. Raises :class:`LinkClosed`, and
        RuntimeError where a callback of the link's would have to wait.
        """
        listed = list(packets)
        size = sum(len(packet.body) for packet in listed)
        sending = _Sending(destination, listed, size, _promise(), len(listed))
        if not listed:
            sending.future.set_result(None)
            return sending.future
        most_messages, most_bytes = self._most
        with self._has_room:

            def has_room() -> bool:
                # What is too large for the bounds goes when nothing else is on its way.
                return not self._messages or (
                    self._messages + len(listed) <= most_messages
                    and self._bytes + size <= most_bytes
                )

            if not has_room():
                self._thread.refuse_to_wait()
                self._has_room.wait_for(lambda: self._is_over or has_room())
            self._refuse_if_closed()
            if not has_room():
                raise LinkClosed(f"{self._client!r} is not waited for any more")
            self._messages += len(listed)
            self._bytes += size
            self._line.append(sending)
            is_first = len(self._line) == 1
        if is_first:
            # One turn of the reactor takes all that has come until then.
            self._thread.start(self._send_all)
        return sending.future

    def subscribe(
        self,
        destination: str,
        *,
        ack: bool | AckMode = True,
        prefetch: int = 1000,
        max_bytes: int = _INBOX_BYTES,
        headers: Mapping[str, str] | None = None,
        on_arrival: Callable[[], object] = lambda: None,
        timeout_s: float | None = 30.0,
        stop: Callable[[], bool] | None = None,
    ) -> Inbox:
        """Subscribe on this connection and all later ones.

        ``ack`` is STOMP's: true is ``client-individual``, and false ``auto``, for brokers that know
        no acknowledgements, where what has been received can be lost. In the mode ``client`` an
        acknowledgement is for all that has come before, too. ``prefetch`` bounds what has come and
        is not acknowledged, in messages. ``max_bytes`` bounds the octets that wait in the inbox,
        but for a single message: what the broker sends beyond that is left to the client, which
        reads no more when it has enough.

        ``on_arrival`` is called in the link's thread when there is something in an inbox that was
        empty, and when the subscription has ended: for who waits for several.

        While no broker answers it waits for ``timeout_s`` seconds, or until ``stop`` gives true,
        which is called often; then it raises TimeoutError, and nothing is left of the attempt.
        Raises :class:`LinkClosed`, and :class:`stompkit.client.BrokerError` where the broker
        refuses.
        """
        begun: list[Deferred[Inbox]] = []
        mode: AckMode = ack if isinstance(ack, str) else "client-individual" if ack else "auto"

        def subscribe() -> Deferred[Inbox]:
            made = self._client.subscribe(
                destination,
                ack=mode,
                headers=headers,
                prefetch=prefetch if mode != "auto" else None,
                receipt=self._receipts,
            )
            begun.append(
                made.addCallback(
                    lambda each: Inbox(
                        self._thread,
                        each,
                        max_messages=prefetch,
                        max_bytes=max_bytes,
                        # STOMP 1.0 leaves open what ACK in the mode client is for.
                        is_cumulative=lambda: mode == "client" and self._client.version != "1.0",
                        on_arrival=on_arrival,
                    )
                )
            )
            return begun[0]

        future = self._thread.call(subscribe)
        deadline = None if timeout_s is None else clocks.monotonic() + timeout_s
        while True:
            left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - clocks.monotonic())
            try:
                return self._result(future, max(left, 0.0))
            except TimeoutError:
                if left <= 0 or (stop is not None and stop()):
                    self._thread.start(lambda: begun[0].cancel())
                    future.add_done_callback(_unsubscribe)
                    raise

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all that was sent is confirmed or has failed; raises TimeoutError."""
        self._thread.refuse_to_wait()
        with self._has_room:
            if not self._has_room.wait_for(
                lambda: self._is_closed or not self._messages, timeout_s
            ):
                raise TimeoutError(f"{self._messages} messages were not confirmed in time")

    def stop(self) -> None:
        """Have whoever waits for room, now or later, raise :class:`LinkClosed`; from any thread.

        What was sent goes on, and so does all that does not have to wait.
        """
        with self._has_room:
            self._is_stopped = True
            self._has_room.notify_all()

    def close(self, timeout_s: float = 10.0) -> None:
        """Wait for what was sent, disconnect, and end the thread; the second time nothing."""
        self._thread.refuse_to_wait()
        # Whoever comes second waits for the end, too.
        with self._closing:
            if not self._thread.is_alive:
                return
            with self._has_room:
                self._has_room.wait_for(lambda: self._is_closed or not self._messages, timeout_s)
                self._is_closed = True
                self._has_room.notify_all()
            with suppress(ClientClosed, LinkClosed):  # it had given up before
                self._thread.call(lambda: self._client.disconnect(timeout_s=timeout_s)).result()
            self._thread.stop()

    @property
    def _is_over(self) -> bool:
        return self._is_closed or self._is_stopped

    # In the reactor's thread.

    def _watch(self) -> None:
        """Notice when the client gives up."""

        def closed(result: object) -> None:
            with self._has_room:
                self._is_closed = True
                self._has_room.notify_all()
            if isinstance(result, Failure):
                self.closed.set_exception(exception_of(result))
            else:
                self.closed.set_result(None)

        self._client.when_closed().addBoth(closed)

    def _send_all(self) -> None:
        while True:
            with self._has_room:
                if not self._line:
                    return
                taken = list(self._line)
                self._line.clear()
            for sending in taken:
                for packet in sending.packets:
                    self._send(sending, packet)

    def _send(self, sending: _Sending, packet: Packet) -> None:
        sent = maybeDeferred(
            self._client.send,
            sending.destination,
            packet.body,
            packet.headers,
            receipt=self._receipts,
        )
        sent.addBoth(self._sent, sending)

    def _sent(self, result: Failure | None, sending: _Sending) -> None:
        sending.left -= 1
        if isinstance(result, Failure) and not sending.future.done():
            sending.future.set_exception(exception_of(result))
        if sending.left:
            return
        with self._has_room:
            self._messages -= len(sending.packets)
            self._bytes -= sending.size
            self._has_room.notify_all()
        if not sending.future.done():
            sending.future.set_result(None)

    # Inside.

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise LinkClosed(f"{self._client!r} is closed") from self._reason()

    def _reason(self) -> BaseException | None:
        """Why the client has given up, if it has before the first connection."""
        return self._connected.exception() if self._connected.done() else None

    def _result(self, future: Future[_Given], timeout_s: float | None) -> _Given:
        try:
            return future.result(timeout_s)
        except FutureTimeout:
            raise TimeoutError(f"{self._client!r} did not get an answer in time") from None
        except (ClientClosed, ConnectFailed, LoginRefused) as error:
            reason = getattr(error, "reason", None) or self._reason() or error
            raise LinkClosed(f"{self._client!r}: {reason}") from reason


def _unsubscribe(future: Future[Inbox]) -> None:
    """End a subscription that nobody waits for any more, in the reactor's thread."""
    if future.exception() is None:
        future.result().leave()


def _promise() -> Future[None]:
    """A future that nobody else can end: it is not to be cancelled."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future
