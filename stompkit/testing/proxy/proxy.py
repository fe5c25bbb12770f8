"""The proxy: its thread, and the methods that tests call."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Self

from stompkit.testing.frames.log import FrameLog
from stompkit.testing.launching.address import format_address
from stompkit.testing.launching.ports import Ports, usable
from stompkit.testing.proxy.faults import Fault
from stompkit.testing.proxy.methods import FaultMethods
from stompkit.testing.proxy.rules import Rule
from stompkit.testing.proxy.server import Server
from stompkit.testing.proxy.sockets import resolved

if TYPE_CHECKING:  # it imports slowly, and only a running proxy needs it
    from asyncio import AbstractEventLoop

__all__ = ["Proxy"]


class Proxy(FaultMethods):
    """Forwards traffic between clients and a broker, and injects faults on request.

    Without faults all bytes pass unchanged, including TLS and garbage. Frames longer than 64 MiB,
    and bytes that are not STOMP, always pass unchanged, except for faults that act on all bytes.

    ``frames`` records every frame as its sender sent it, before any fault. ``told`` is called with
    a line of text for every connection and fault, in the thread of the proxy.

    All random numbers come from ``seed``, for each fault, connection and direction separately: the
    same seed, faults and traffic give the same result.

    All methods are thread-safe. They have taken effect when they return. A context manager:
    entering starts the proxy, leaving stops it.
    """

    def __init__(
        self,
        upstream_host: str,
        upstream_port: int,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        seed: int = 0,
        frames: FrameLog | None = None,
        told: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare a proxy that listens on ``host`` and ``port``; 0 selects a free port.

        ``::1`` replaces ``127.0.0.1`` if this machine has no IPv4.
        Raises OSError for a host name that cannot be resolved.
        """
        self.host = usable(host)
        self.seed = seed
        self.frames = frames
        self._port = port
        self._upstream = upstream_host, upstream_port
        self._ports = Ports(self.host)
        self._server = Server(seed, frames, told)
        self._server.upstream = resolved(upstream_host, upstream_port)
        self._thread: threading.Thread | None = None
        self._loop: AbstractEventLoop | None = None
        self._is_stopped = False
        self._owner = os.getpid()
        self._lock = threading.Lock()

    @property
    def port(self) -> int:
        """The TCP port that the proxy listens on; before it starts, the requested port."""
        return self._port

    @property
    def url(self) -> str:
        """The address as ``stomp://host:port``."""
        return f"stomp://{format_address(self.host, self.port)}"

    @property
    def upstream(self) -> tuple[str, int]:
        """Host and port of the broker; after a change, new connections go to the new address.

        Raises OSError for a host name that cannot be resolved.
        """
        return self._upstream

    @upstream.setter
    def upstream(self, address: tuple[str, int]) -> None:
        addresses = resolved(*address)

        def change() -> None:
            self._server.accept()  # clients that have connected so far use the old address
            self._server.upstream = addresses

        self._call(change)
        self._upstream = address

    def __repr__(self) -> str:
        """Return the listening address and the upstream address."""
        host, port = self._upstream
        return f"<Proxy {self.url} to {format_address(host, port)}>"

    @property
    def is_stopped(self) -> bool:
        """True if the proxy was stopped."""
        return self._is_stopped

    def start(self) -> Self:
        """Listen and return the proxy; faults can be added before.

        Raises OSError if it cannot listen on the port, and RuntimeError the second time.
        """
        from stompkit.testing.proxy.loop import ProxyLoop

        if self._thread is not None or self._is_stopped:
            raise RuntimeError("a proxy can be started once only: make another one")
        if not self._port:
            # Reserve the port, so that no other process gets it while connections are refused.
            self._port = self._ports.take()
        loop = ProxyLoop()
        try:
            self._server.start(loop, self.host, self._port)
        except OSError:
            loop.close()
            self._ports.close()
            raise
        with self._lock:
            self._loop = loop
            self._thread = threading.Thread(target=_run, args=(loop,), name=repr(self), daemon=True)
            self._thread.start()
        if self.frames is not None:
            self.frames.filled_by(self._catch_up)
        return self

    def stop(self) -> None:
        """Close all connections and stop listening. Harmless the second time.

        Raises RuntimeError after an internal error of the proxy.
        """
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._server.stop)
        if self._thread is not None:
            self._thread.join()
        if self.frames is not None:
            self.frames.filled_by(None)
        self._ports.close()
        if self._server.failure is not None:
            raise RuntimeError("the proxy has failed") from self._server.failure

    def __enter__(self) -> Self:
        """Start it if it does not run yet."""
        return self if self._thread is not None else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it."""
        self.stop()

    def heal(self) -> None:
        """Remove all faults; the data that they hold or delay goes out.

        Raises OSError if new connections were refused and another process uses the port now.
        """
        self._call(self._server.remove_all)

    def disconnect(self) -> None:
        """Close all open connections on both sides in order."""
        self.close().remove()

    def _catch_up(self) -> None:
        if os.getpid() == self._owner:  # a forked child has no thread of the proxy
            self._call(self._server.catch_up)

    def _put(self, rule: Rule) -> Fault:
        if self._is_stopped:
            raise RuntimeError("the proxy has stopped")
        self._call(lambda: self._server.put(rule))
        return Fault(rule, self._remove, self.frames)

    def _remove(self, rule: Rule) -> None:
        self._call(lambda: self._server.remove(rule))

    def _call(self, function: Callable[[], None]) -> None:
        """Call a function in the thread of the proxy, if it runs, and wait for it."""
        done: Future[None] = Future()

        def call() -> None:
            try:
                function()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        with self._lock:
            is_running = self._loop is not None and not self._is_stopped
            if self._loop is not None and is_running and not self._is_own_thread():
                self._loop.call_soon_threadsafe(call)
        if not is_running and self._thread is not None:
            self._thread.join()  # so that only one thread ever uses the server
        if not is_running or self._is_own_thread():
            call()
        done.result()

    def _is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread


def _run(loop: AbstractEventLoop) -> None:
    """Run a loop until it is stopped; the thread of a proxy."""
    try:
        loop.run_forever()
    finally:
        loop.close()
