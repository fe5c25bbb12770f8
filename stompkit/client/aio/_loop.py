"""The reactor interfaces of the client on an event loop: time, connections, and a log."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Generator
from functools import cache
from typing import Any, Final, TypeVar, cast

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import (
    IDelayedCall,
    IProtocol,
    IProtocolFactory,
    IPushProducer,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.logger import (
    ILogObserver,
    LogEvent,
    STDLibLogObserver,
    globalLogPublisher,
)
from twisted.python.failure import Failure
from zope.interface import implementer

from stompkit.client._hosts import Place

__all__ = ["Endpoint", "LoopClock", "future_of", "log_to_logging", "running_loop"]

_T = TypeVar("_T")

#: Delay in seconds until the next address of a name is tried in parallel (RFC 8305, 5).
_NEXT_ADDRESS_S: Final = 0.25
_LOGGED: Final = "stompkit.client"
_KEEP_ALIVE: Final = (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


@implementer(IDelayedCall)
class _DelayedCall:
    """A call scheduled on an event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, delay_s: float, call: Callable[[], object]
    ) -> None:
        self._loop = loop
        self._call = call
        self._is_active = True
        self._handle = loop.call_later(delay_s, self._fire)

    def _fire(self) -> None:
        self._is_active = False
        self._call()

    def getTime(self) -> float:
        """Return the time of the call, by the clock of the loop."""
        return self._handle.when()

    def cancel(self) -> None:
        """Cancel the call."""
        self._is_active = False
        self._handle.cancel()

    def active(self) -> bool:
        """Return True if the call is still scheduled."""
        return self._is_active

    def delay(self, secondsLater: float) -> None:
        """Postpone the call."""
        self.reset(self._handle.when() + secondsLater - self._loop.time())

    def reset(self, secondsFromNow: float) -> None:
        """Reschedule the call."""
        self._handle.cancel()
        self._handle = self._loop.call_later(secondsFromNow, self._fire)


@implementer(IReactorTime)
class LoopClock:
    """A clock based on an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use the time of *loop*."""
        self._loop = loop

    def seconds(self) -> float:
        """Return the monotonic time in seconds."""
        return self._loop.time()

    def callLater(
        self, delay: float, callable: Callable[..., object], *arguments: object, **named: object
    ) -> IDelayedCall:
        """Schedule a call after *delay* seconds."""
        made = _DelayedCall(self._loop, delay, lambda: callable(*arguments, **named))
        return cast("IDelayedCall", made)

    def getDelayedCalls(self) -> list[IDelayedCall]:
        """Raise NotImplementedError; the client does not need the list."""
        raise NotImplementedError


@implementer(IStreamClientEndpoint)
class Endpoint:
    """Endpoint of a broker on an event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        place: Place,
        context: Callable[[], ssl.SSLContext | None],
    ) -> None:
        """Start unconnected; *context* returns the TLS context, or None without TLS."""
        self._loop = loop
        self._place = place
        self._context = context

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect; cancelling the Deferred abandons a connection in progress."""
        return Deferred.fromFuture(self._loop.create_task(self._connect(protocolFactory)))

    async def _connect(self, factory: IProtocolFactory) -> IProtocol:
        _, stream = await self._loop.create_connection(
            lambda: _Stream(factory),
            self._place.host,
            self._place.port,
            ssl=self._context(),
            happy_eyeballs_delay=_NEXT_ADDRESS_S,
        )
        return stream.protocol


class _Stream(asyncio.Protocol):
    """Adapter between a Twisted protocol and an asyncio transport."""

    def __init__(self, factory: IProtocolFactory) -> None:
        protocol = factory.buildProtocol(None)  # type: ignore[arg-type]  # it looks at no address
        assert protocol is not None  # the client's factories always make one
        self.protocol: Final[IProtocol] = protocol
        self._producer: IPushProducer | None = None

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._socket = transport.get_extra_info("socket")
        self._socket.setsockopt(*_KEEP_ALIVE)
        self.protocol.makeConnection(self)  # type: ignore[arg-type]  # it has all methods that are used

    def data_received(self, data: bytes) -> None:
        self.protocol.dataReceived(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._producer = None
        self.protocol.connectionLost(Failure(ConnectionDone() if exc is None else exc))  # type: ignore[no-untyped-call]  # Twisted's

    def pause_writing(self) -> None:
        if self._producer is not None:
            self._producer.pauseProducing()

    def resume_writing(self) -> None:
        if self._producer is not None:
            self._producer.resumeProducing()

    # Called by the protocol.

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def loseConnection(self) -> None:
        self._transport.close()

    def abortConnection(self) -> None:
        self._transport.abort()

    def pauseProducing(self) -> None:
        self._transport.pause_reading()

    def resumeProducing(self) -> None:
        self._transport.resume_reading()

    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None:  # noqa: FBT001 (Twisted's)
        self._producer = producer

    def unregisterProducer(self) -> None:
        self._producer = None

    def fileno(self) -> int:
        return int(self._socket.fileno())


class _Future(asyncio.Future[_T]):
    """A future of a Deferred, which is cancelled immediately with it.

    ``Deferred.asFuture`` cancels the Deferred a moment later; a result in between would be lost.
    """

    def __init__(
        self,
        deferred: Deferred[_T],
        loop: asyncio.AbstractEventLoop,
        give_back: Callable[[_T], object] | None,
    ) -> None:
        super().__init__(loop=loop)
        self._deferred = deferred
        self._give_back = give_back

    def __await__(self) -> Generator[Any, None, _T]:
        try:
            return (yield from super().__await__())
        except asyncio.CancelledError:
            # A task that is cancelled between the completion and its next step gets no result.
            is_lost = self.done() and not self.cancelled() and self.exception() is None
            if is_lost and self._give_back is not None:
                self._give_back(self.result())
            raise

    def cancel(self, msg: Any = None) -> bool:
        is_cancelled = super().cancel(msg)
        if is_cancelled:
            self._deferred.cancel()
        return is_cancelled

    def succeed(self, value: _T) -> None:
        if not self.done():
            self.set_result(value)

    def fail(self, failure: Failure) -> None:
        if not self.done():
            assert failure.value is not None  # it has not been cleaned yet
            self.set_exception(failure.value)


def future_of(
    deferred: Deferred[_T],
    loop: asyncio.AbstractEventLoop,
    give_back: Callable[[_T], object] | None = None,
) -> asyncio.Future[_T]:
    """Return a future for a Deferred; cancelling the future cancels the Deferred.

    ``give_back`` takes a result that a cancelled task, which awaits the future, does not get.
    """
    future = _Future(deferred, loop, give_back)
    deferred.addCallbacks(future.succeed, future.fail)
    return future


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of a new client; raises RuntimeError outside a coroutine."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "stompkit.client.aio.Client needs a running event loop: create it in a coroutine for"
            " asyncio.run(). stompkit.client.blocking.Link needs no event loop"
        ) from None


@cache
def log_to_logging() -> None:
    """Forward the log of the client, and nothing else from Twisted, to ``logging``."""
    to_logging = STDLibLogObserver(name=_LOGGED)

    @implementer(ILogObserver)
    def observe(event: LogEvent) -> None:
        if str(event.get("log_namespace", "")).startswith(_LOGGED):
            to_logging(event)

    globalLogPublisher.addObserver(observe)
