"""The phases of a client, and the dispatch of events to its parts."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, cast

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from stompkit._common import Clock, PeerDeadline
from stompkit.client._connector import Connector
from stompkit.client._errors import ClientClosedError
from stompkit.client._gate import ReadingGate
from stompkit.client._outbox import Outbox
from stompkit.client._protocol import ClientProtocol
from stompkit.client._requests import Requests
from stompkit.client._subscriptions import Subscriptions
from stompkit.client._waiters import Waiters
from stompkit.frames import Frame

__all__ = ["Core", "Phase"]

_log: Final = Logger()


class Phase(Enum):
    """The phase of a client."""

    NEW = "not connected yet"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    CLOSING = "disconnecting"
    CLOSED = "closed"


class Core:
    """The state machine of a client; it notifies the parts of connections and frames."""

    def __init__(
        self,
        outbox: Outbox,
        gate: ReadingGate,
        subscriptions: Subscriptions,
        clock: IReactorTime,
        on_connected: Callable[[dict[str, str]], object] | None,
        on_disconnected: Callable[[Exception], object] | None,
    ) -> None:
        """Start without a connection; the owner sets ``connector`` and ``requests``."""
        self.phase = Phase.NEW
        #: Headers of CONNECTED on the last connection.
        self.connected_headers: dict[str, str] = {}
        self.connector: Connector
        self.requests: Requests
        self._outbox = outbox
        self._gate = gate
        self._subscriptions = subscriptions
        self._clock = clock
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        #: Calls of ``connect``, which fail with the cause, and calls that need a connection.
        self._connects = Waiters[None]()
        self._starts = Waiters[None]()
        self._closes = Waiters[None]()
        self._disconnects = Waiters[None]()
        self._reason: Exception | None = None
        self._deadline: PeerDeadline | None = None

    # Called by the client.

    def connect(self) -> Deferred[None]:
        """Connect if necessary, and fire when connected."""
        if self.phase is Phase.CONNECTED:
            return succeed(None)
        if self.phase is Phase.CLOSING:
            return fail(ClientClosedError())
        connected = self._connects.wait()
        if self.phase is not Phase.CONNECTING:
            self.phase = Phase.CONNECTING
            self._reason = None
            self._outbox.open()
            self.connector.start()
        return connected

    def when_connected(self) -> Deferred[None]:
        """Fire when connected; fails with :class:`ClientClosedError` if the client is closed."""
        if self.phase is Phase.CONNECTED:
            return succeed(None)
        if self.phase in (Phase.CLOSING, Phase.CLOSED):
            return fail(self.closed_error())
        return self._starts.wait()

    def closed_error(self) -> ClientClosedError:
        """Return the error of calls of a client that is closed."""
        return ClientClosedError(self._reason)

    def when_closed(self) -> Deferred[None]:
        """Fire when the client is closed; fails with the error that made it give up."""
        if self.phase is Phase.CLOSED:
            return succeed(None) if self._reason is None else fail(self._reason)
        return self._closes.wait()

    def disconnect(self, timeout_s: float) -> Deferred[None]:
        """Send DISCONNECT after all queued frames, wait for its receipt, and close."""
        if self.phase is Phase.CLOSED:
            return succeed(None)
        if self.phase not in (Phase.CONNECTED, Phase.CLOSING):
            self.connector.stop(ClientClosedError())
            self._close(None)
            return succeed(None)
        disconnected = self._disconnects.wait()
        if self.phase is Phase.CONNECTED:
            self.phase = Phase.CLOSING
            self.connector.retire()
            self._deadline = PeerDeadline(
                cast("Clock", self._clock),
                lambda: self._gate.has_unread,
                lambda: self.connector.stop(ClientClosedError()),
            )
            self._deadline.start(timeout_s)
            goodbye = self._outbox.send_last(Frame("DISCONNECT"), ClientClosedError())
            goodbye.addCallbacks(lambda _: self.connector.close(), lambda _: None)
        return disconnected

    # Called by the connector.

    def connected(self, wire: ClientProtocol, headers: dict[str, str]) -> None:
        """Switch to a new connection."""
        self.phase = Phase.CONNECTED
        self.connected_headers = headers
        self._gate.attach(wire)
        self._outbox.attach(wire, headers.get("server", ""))
        # First, so that the subscriptions exist before any resent message can be answered.
        self._subscriptions.announce_all()
        self._outbox.pump()
        self._connects.callback(None)
        self._starts.callback(None)
        if self._on_connected is not None:
            self._call(self._on_connected, headers)

    def received(self, frame: Frame) -> None:
        """Pass a frame to the part that handles it."""
        if frame.command == "MESSAGE":
            if not self._subscriptions.deliver(frame) and not self.requests.deliver(frame):
                _log.debug("dropped: {frame!r}", frame=frame)
        else:
            self._outbox.confirm(frame.headers["receipt-id"])

    def writable(self) -> None:
        """Send queued frames."""
        self._outbox.pump()

    def lost(self, reason: Exception) -> None:
        """Handle the loss of the connection."""
        is_closing = self.phase is Phase.CLOSING
        if not is_closing:
            self.phase = Phase.CONNECTING
        self._gate.detach()
        self._subscriptions.connection_lost()
        self._outbox.detach(reason)
        if is_closing:
            self._close(None)
        if self._on_disconnected is not None:
            self._call(self._on_disconnected, ClientClosedError() if is_closing else reason)

    def gave_up(self, error: Exception) -> None:
        """Close the client: no further connection follows."""
        _log.error("giving up: {error}", error=error)
        self._close(error)

    def _close(self, reason: Exception | None) -> None:
        self.phase = Phase.CLOSING  # until all are notified: a callback may connect again
        self._reason = reason
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        closed = ClientClosedError(reason)
        self._outbox.close(closed)
        # Before the subscriptions, since requests wait for the one of replies.
        self.requests.end(closed)
        self._subscriptions.close(closed)
        self.phase = Phase.CLOSED
        self._connects.errback(reason or closed)
        self._starts.errback(closed)
        self._disconnects.callback(None)
        if reason is None:
            self._closes.callback(None)
        else:
            self._closes.errback(reason)

    def _call(self, hook: Callable[..., object], argument: object) -> None:
        maybeDeferred(hook, argument).addErrback(
            lambda failure: _log.failure("a hook of the client failed", failure=failure)
        )
