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
from functools import partial
from typing import Final, Self, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from stompkit.client import (
    AckMode,
    BufferLimits,
    Client,
    ClientClosedError,
    ConnectFailedError,
    LoginRefusedError,
    ReconnectPolicy,
)
from stompkit.client._entries import Packet
from stompkit.client.blocking._inbox import Inbox, give_up
from stompkit.client.blocking._thread import LinkClosedError, ReactorThread, exception_of

__all__ = ["Link"]

_Given = TypeVar("_Given")
#: Time in seconds between two checks of a wait's stop condition.
_LOOK_S: Final = 0.1
_RECONNECT: Final = ReconnectPolicy(max_s=5.0)
#: Maximum number and total size in bytes of unconfirmed messages before :meth:`Link.send` blocks.
_MAX_MESSAGES: Final = 2_000
_MAX_BYTES: Final = 64 * 1024 * 1024
#: Maximum number of packets of a group that share a future.
_GROUP: Final = 100
#: Limit of the client's own buffer: the client never refuses a message. A message of any size is
#: sent if no other message waits.
_UNBOUNDED: Final = 2**62
#: Maximum size in bytes of the messages in an inbox.
_INBOX_BYTES: Final = 16 * 1024 * 1024
#: Size in bytes of further messages that the client buffers before it stops reading. While it waits
#: for an answer the client must keep reading. A subscription ends at 16 times this size, and a
#: thousand frames of 1 MiB may precede the answer.
_QUEUE_BYTES: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class _Sending:
    """Packets that are confirmed together."""

    destination: str
    #: Packets that are not given to the client yet.
    packets: list[Packet]
    count: int
    size: int
    future: Future[None]
    #: Number of packets that are not confirmed yet.
    left: int
    group: str


class Link:
    """A connection to one of several brokers, with blocking methods and futures.

    Several threads can use it, but no fork of the process, which needs a link of its own. Callbacks
    of its futures run in the link's own thread and cannot wait for the link. As a context manager
    it confirms all sent messages before it closes.
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
        """Start to connect in the background.

        ``hosts``, ``login``, ``passcode``, ``virtual_host``, ``connect_headers`` and ``reconnect``
        are those of :class:`stompkit.client.Client`. Without ``receipts``, for brokers that do not
        support them, a message counts as confirmed when it is written. It may then be lost with its
        connection. ``max_messages`` and ``max_bytes`` limit the messages that wait for the broker.

        ``on_connected`` is called after each login, once the existing subscriptions have been sent.
        ``on_disconnected`` is called with the reason whenever such a connection ends. Both run in
        the link's own thread, where they cannot wait for the link, and possibly before this
        constructor returns. Exceptions that they raise are logged. Raises ``ValueError`` for a host
        that cannot be parsed.
        """
        self._receipts = receipts
        self._most = (max_messages, max_bytes)
        self._has_room = threading.Condition()
        self._messages = self._bytes = 0
        self._line: deque[_Sending] = deque()
        self._is_closed = self._is_stopped = False
        self._closing = threading.Lock()
        self._thread = ReactorThread()
        #: Future that completes when the link is closed; it fails with the reason if the client
        #: gives up.
        self.closed: Final[Future[None]] = self._thread.promise()
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
        """Return hosts and state, without secrets."""
        return f"<Link of {self._client!r}>"

    def __enter__(self) -> Self:
        """Return the link."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the link; after an exception, do not wait for unconfirmed messages."""
        self.close(timeout_s=10.0 if kind is None else 0.5)

    @property
    def is_connected(self) -> bool:
        """True if a connection is logged in."""
        return self._client.is_connected

    def wait_connected(self, timeout_s: float | None = None) -> None:
        """Wait for the first connection.

        Raises TimeoutError, and :class:`LinkClosedError` where the broker refuses the login.
        """
        self._result(self._connected, timeout_s)

    def send(self, destination: str, packets: Iterable[Packet], *, group: str = "") -> Future[None]:
        """Send frames in order; return a future that completes when all are confirmed.

        Successive calls with the same ``group``, unless it is empty, may return the same future. It
        completes when the frames of all of them are confirmed, and fails with the first error. This
        costs less than a future for each.

        Blocks while the limits on waiting messages are exceeded. The future fails with the errors
        of :meth:`stompkit.client.Client.send`. Raises :class:`LinkClosedError`, and RuntimeError if
        a callback of the link would have to wait.
        """
        self._thread.refuse_fork()
        listed = list(packets)
        if not listed:
            future = self._thread.promise()
            future.set_result(None)
            return future
        count, size = len(listed), sum([len(packet.body) for packet in listed])
        with self._has_room:
            if self._is_closed or not self._fits(count, size):
                self._wait_for_room(count, size)
            self._messages += count
            self._bytes += size
            last = self._line[-1] if group and self._line else None
            if (
                last is not None
                and last.group == group
                and last.destination == destination
                and last.left < _GROUP
            ):
                last.packets += listed
                last.count += count
                last.size += size
                last.left += count
                return last.future
            future = self._thread.promise()
            sending = _Sending(destination, listed, count, size, future, count, group)
            self._line.append(sending)
            is_first = len(self._line) == 1
        if is_first:
            # One iteration of the reactor sends all packets queued until then.
            self._thread.start(self._send_all)
        return future

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

        ``ack`` is the STOMP mode: true means ``client-individual``. False means ``auto``, for
        brokers without acknowledgements, where received messages can be lost. In the mode
        ``client`` an acknowledgement also covers all earlier messages. ``prefetch`` is the maximum
        number of received, unacknowledged messages. ``max_bytes`` is the maximum size in bytes of
        the messages in the inbox, except for a single larger message. Further messages stay in the
        client, which stops reading when its buffers are full.

        ``on_arrival`` is called in the link's thread when a message arrives in an empty inbox, and
        when the subscription ends. It is for callers that wait for several inboxes.

        While no broker answers, this waits for ``timeout_s`` seconds, or until ``stop``, which is
        called often, returns true. It then raises TimeoutError and cancels the attempt. Raises
        :class:`LinkClosedError`, and :class:`stompkit.client.BrokerError` if the broker refuses the
        subscription.
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
                        # STOMP 1.0 does not say which messages an ACK in the mode client covers.
                        is_cumulative=lambda: mode == "client" and self._client.version != "1.0",
                        on_arrival=on_arrival,
                    )
                )
            )
            return begun[0]

        future = self._thread.call(subscribe)
        deadline = None if timeout_s is None else clocks.monotonic() + timeout_s
        try:
            while True:
                left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - clocks.monotonic())
                try:
                    return self._result(future, max(left, 0.0))
                except TimeoutError:
                    if left <= 0 or (stop is not None and stop()):
                        raise
        except BaseException:  # such as KeyboardInterrupt: nobody gets the inbox
            self._thread.start(give_up, begun, future)
            raise

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every sent message is confirmed or has failed; raises TimeoutError."""
        self._thread.refuse_to_wait()
        with self._has_room:
            if not self._has_room.wait_for(
                lambda: self._is_closed or not self._messages, timeout_s
            ):
                raise TimeoutError(f"{self._messages} messages were not confirmed in time")

    def stop(self) -> None:
        """Make current and future waits of :meth:`send` raise LinkClosedError; from any thread.

        Messages already sent, and calls that do not wait, continue.
        """
        with self._has_room:
            self._is_stopped = True
            self._has_room.notify_all()

    def close(self, timeout_s: float = 10.0) -> None:
        """Wait for sent messages, disconnect, and end the thread; a second call does nothing.

        In a fork of the process it does nothing: the connection is its parent's.
        """
        if self._thread.is_forked:
            return
        self._thread.refuse_to_wait()
        # A concurrent second call also waits for the end.
        with self._closing:
            if not self._thread.is_alive:
                return
            with self._has_room:
                self._has_room.wait_for(lambda: self._is_closed or not self._messages, timeout_s)
                self._is_closed = True
                self._has_room.notify_all()
            with suppress(ClientClosedError, LinkClosedError):  # the client had given up before
                self._thread.call(lambda: self._client.disconnect(timeout_s=timeout_s)).result()
            self._thread.stop()

    def _fits(self, count: int, size: int) -> bool:
        """Return True if packets are within the limits, or no other message is on its way."""
        most_messages, most_bytes = self._most
        return not self._messages or (
            self._messages + count <= most_messages and self._bytes + size <= most_bytes
        )

    def _wait_for_room(self, count: int, size: int) -> None:
        """Wait until packets fit; raises :class:`LinkClosedError`, and RuntimeError."""
        if not self._fits(count, size):
            self._thread.refuse_to_wait()
            self._has_room.wait_for(lambda: self._is_over or self._fits(count, size))
        self._refuse_if_closed()
        if not self._fits(count, size):
            raise LinkClosedError(f"{self._client!r} is not waited for any more")

    @property
    def _is_over(self) -> bool:
        return self._is_closed or self._is_stopped

    # In the reactor thread.

    def _watch(self) -> None:
        """Mark the link as closed when the client gives up."""

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
                packets, sending.packets = sending.packets, []
                self._client.send_each(
                    sending.destination,
                    packets,
                    partial(self._sent, sending),
                    receipt=self._receipts,
                )

    def _sent(self, sending: _Sending, error: Exception | None) -> None:
        """Record that one packet is confirmed or has failed."""
        sending.left -= 1
        if error is not None and not sending.future.done():
            sending.future.set_exception(error)
        if sending.left:
            return
        with self._has_room:
            self._messages -= sending.count
            self._bytes -= sending.size
            self._has_room.notify_all()
        if not sending.future.done():
            sending.future.set_result(None)

    # Internal.

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise LinkClosedError(f"{self._client!r} is closed") from self._reason()

    def _reason(self) -> BaseException | None:
        """Return the reason if the client gave up before the first connection."""
        return self._connected.exception() if self._connected.done() else None

    def _result(self, future: Future[_Given], timeout_s: float | None) -> _Given:
        try:
            return future.result(timeout_s)
        except FutureTimeout:
            raise TimeoutError(f"{self._client!r} did not get an answer in time") from None
        except (ClientClosedError, ConnectFailedError, LoginRefusedError) as error:
            reason = getattr(error, "reason", None) or self._reason() or error
            raise LinkClosedError(f"{self._client!r}: {reason}") from reason
