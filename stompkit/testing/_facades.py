"""The same broker for programs without pytest: blocking, and for asyncio."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar

from stompkit.testing._obtaining import obtain
from stompkit.testing._settings import Settings
from stompkit.testing._threads import started
from stompkit.testing.frames.log import SeenFrame
from stompkit.testing.launching.launch import RunningBroker

__all__ = ["AsyncBroker", "BrokerContext", "ThreadedBroker", "broker"]

_T = TypeVar("_T")
_P = ParamSpec("_P")


def broker(name: str | None = None, **fields: Any) -> BrokerContext:
    """Return a context manager that runs a broker, for ``with`` or ``async with``.

    Without a name, the options of pytest select the broker, or ``STOMPKIT_MQ`` and
    ``STOMPKIT_MQ_BROKER`` in the environment; the default is stompkit's own. ``fields`` are those
    of LaunchConfig. Entering the block raises the errors of ``launch``.
    """
    return BrokerContext(name, fields)


class BrokerContext:
    """Starts a broker when its block is entered, and stops it when the block ends."""

    def __init__(self, name: str | None, fields: dict[str, Any]) -> None:
        """Store the parameters; use ``broker`` to create one."""
        self._name = name
        self._fields = fields
        self._running: RunningBroker | None = None

    def _start(self) -> RunningBroker:
        self._running = obtain(Settings.of_run(), self._name, **self._fields)
        return self._running

    def _stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    def __enter__(self) -> RunningBroker:
        """Start it."""
        return self._start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it."""
        self._stop()

    async def __aenter__(self) -> AsyncBroker:
        """Start it, in a separate thread."""
        import asyncio  # pytest loads this module, and few of its users need asyncio

        starting = asyncio.ensure_future(_awaited(self._start))
        try:
            return AsyncBroker(await asyncio.shield(starting))
        except asyncio.CancelledError:
            # A thread cannot be cancelled, and the broker that it starts must not be left running.
            await asyncio.wait([starting])
            await _awaited(self._stop)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it, in a separate thread."""
        await _awaited(self._stop)


class ThreadedBroker(ABC):
    """A RunningBroker whose blocking methods can be awaited: they run in threads."""

    #: The broker itself, with the methods that have no counterpart here.
    blocking: Final[RunningBroker]

    def __init__(self, blocking: RunningBroker) -> None:
        """Wrap a broker."""
        self.blocking = blocking

    @abstractmethod
    def run(
        self, function: Callable[_P, _T], /, *arguments: _P.args, **keywords: _P.kwargs
    ) -> Awaitable[_T]:
        """Call anything that blocks, such as a method of a proxy or a fault, in a thread."""

    def __repr__(self) -> str:
        """Return the name and the address."""
        return f"<{type(self).__name__} {self.name} {self.url}>"

    @property
    def name(self) -> str:
        """The broker's name."""
        return self.blocking.name

    @property
    def host(self) -> str:
        """The address to connect to."""
        return self.blocking.host

    @property
    def port(self) -> int:
        """The TCP port to connect to."""
        return self.blocking.port

    @property
    def url(self) -> str:
        """Host and port as ``stomp://host:port``."""
        return self.blocking.url

    @property
    def ws_url(self) -> str:
        """URL of STOMP over WebSocket; requires a broker with ``websocket=True``."""
        return self.blocking.ws_url

    @property
    def login(self) -> str | None:
        """The user to log in as; ``None``: CONNECT needs no login."""
        return self.blocking.login

    @property
    def passcode(self) -> str | None:
        """The password of that user."""
        return self.blocking.passcode

    @property
    def vhost(self) -> str:
        """The value for CONNECT's ``host`` header."""
        return self.blocking.vhost

    @property
    def log(self) -> str:
        """Text that the broker has written to its log."""
        return self.blocking.log

    def queue(self, name: str = "queue") -> str:
        """Return a queue that no other test uses."""
        return self.blocking.queue(name)

    def topic(self, name: str = "topic") -> str:
        """Return a topic that no other test uses."""
        return self.blocking.topic(name)

    def has(self, capability: str) -> Awaitable[bool]:
        """Return True if the broker has a capability, which is probed the first time."""
        return self.run(lambda: capability in self.blocking.capabilities)

    def wait_for(self, command: str | None = None, /, **match: Any) -> Awaitable[SeenFrame]:
        """Wait for a frame, as ``frames.wait_for`` does."""
        return self.run(partial(self.blocking.frames.wait_for, command, **match))

    def restart(self, *, kill: bool = False) -> Awaitable[None]:
        """Start the broker again."""
        return self.run(self.blocking.restart, kill=kill)

    def kill(self) -> Awaitable[None]:
        """End the broker as ``kill -9`` does."""
        return self.run(self.blocking.kill)

    def pause(self) -> Awaitable[None]:
        """Suspend the broker."""
        return self.run(self.blocking.pause)

    def resume(self) -> Awaitable[None]:
        """Resume a paused broker."""
        return self.run(self.blocking.resume)

    def fill_disk(self) -> Awaitable[None]:
        """Make every write of the broker to a file fail."""
        return self.run(self.blocking.fill_disk)

    def free_disk(self) -> Awaitable[None]:
        """Allow the broker to write to files again."""
        return self.run(self.blocking.free_disk)

    def reset(self) -> Awaitable[None]:
        """Delete all state of the broker."""
        return self.run(self.blocking.reset)

    def advance(self, seconds: float) -> Awaitable[None]:
        """Advance the clock of the broker."""
        return self.run(self.blocking.clock.advance, seconds)

    def stop(self) -> Awaitable[None]:
        """Shut the broker down."""
        return self.run(self.blocking.stop)


class AsyncBroker(ThreadedBroker):
    """A broker for asyncio: ``await b.restart()``; ``AsyncBroker(stomp_broker)`` wraps one."""

    def run(
        self, function: Callable[_P, _T], /, *arguments: _P.args, **keywords: _P.kwargs
    ) -> Awaitable[_T]:
        """Run a blocking call in a separate thread."""
        return _awaited(partial(function, *arguments, **keywords))


async def _awaited(function: Callable[[], _T]) -> _T:
    """Call a function in a separate thread, and return its result to the running loop."""
    import asyncio

    # The executor of the loop has few threads, which also resolve names for the program.
    context = copy_context()
    return await asyncio.wrap_future(started(lambda: context.run(function)))
