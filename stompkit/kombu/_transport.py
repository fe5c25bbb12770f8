"""kombu's transport: waiting for messages, and their delivery to the channels."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from kombu.connection import Connection

from stompkit.kombu._channel import Channel
from stompkit.kombu._session import BrokerSession

if TYPE_CHECKING:
    from kombu.asynchronous import Hub

__all__ = ["SecureTransport", "Transport"]


class Transport(BrokerSession):
    """``stomp://LOGIN:PASSCODE@HOST:61613/VHOST``."""

    Channel = Channel

    def __init__(self, client: Connection, **kwargs: Any) -> None:
        """Read the options; nothing is connected yet."""
        super().__init__(client, **kwargs)
        self._next_channel = 0

    def drain_events(
        self, connection: object, timeout: float | None = None, **kwargs: object
    ) -> None:
        """Deliver one message; raises ``socket.timeout`` if none arrives in time.

        Raises :class:`ConnectionLostError` when the connection has ended.
        """
        until = None if timeout is None else monotonic() + timeout
        while True:
            stomp = self.stomp
            wakeups = stomp.wakeup.wakeups
            self.check()
            if self._deliver_one():
                return
            left = None if until is None else max(0.0, until - monotonic())
            if not stomp.wakeup.wait(wakeups, left):
                raise TimeoutError(f"no message in {timeout} s")

    def _deliver_one(self) -> bool:
        """Deliver one message, from the channels in round-robin order."""
        channels = list(self.channels)
        for step in range(len(channels)):
            at = (self._next_channel + step) % len(channels)
            if channels[at].deliver_one():
                self._next_channel = at + 1
                return True
        return False

    def register_with_event_loop(self, connection: object, loop: Hub) -> None:
        """Register with a worker's event loop, which then delivers the messages."""
        self._loop = loop
        loop.add_reader(self.stomp.wakeup.fileno(), self.on_readable, connection, loop)
        # Messages that arrived earlier would otherwise wait for the next message.
        self.wake()

    def on_readable(self, connection: object, loop: Hub) -> None:
        """Deliver available messages; a worker reconnects on :class:`ConnectionLostError`."""
        self.stomp.wakeup.drain()
        self.check()
        while self._deliver_one():
            self.check()


class SecureTransport(Transport):
    """``stomps://``: the same over TLS."""

    is_secure = True
