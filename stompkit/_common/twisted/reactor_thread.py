"""A reactor of Twisted in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar, cast

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.pollreactor import PollReactor
from twisted.python.failure import Failure

from stompkit._common.twisted.stopping import stop_reactor

__all__ = ["ReactorThread", "exception_of"]

_Given = TypeVar("_Given")


class ReactorThread:
    """A private reactor in a daemon thread."""

    def __init__(self, name: str) -> None:
        """Start the reactor in a new thread of that name."""
        reactor = PollReactor()  # type: ignore[no-untyped-call]  # Twisted's
        self._reactor: Any = reactor
        self.reactor: Final = cast("IReactorTime", reactor)
        self._thread = threading.Thread(
            target=reactor.run,
            kwargs={"installSignalHandlers": False},
            name=name,
            daemon=True,
        )
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """True if the thread is running."""
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """True in the thread itself, where a wait for it would never end."""
        return threading.current_thread() is self._thread

    def start(self, function: Callable[..., object], *arguments: object) -> None:
        """Call *function* in the thread without waiting for it."""
        self._reactor.callFromThread(function, *arguments)

    def call(self, function: Callable[[], Deferred[_Given]]) -> Future[_Given]:
        """Call *function* in the thread; return a future with the result of its Deferred."""
        future: Future[_Given] = Future()

        def call() -> None:
            done = maybeDeferred(function)
            done.addCallbacks(
                future.set_result, lambda failure: future.set_exception(exception_of(failure))
            )

        self.start(call)
        return future

    def stop(self) -> None:
        """End the thread."""
        if self._thread.is_alive():
            self.start(stop_reactor, self._reactor)
            self._thread.join()


def exception_of(failure: Failure) -> BaseException:
    """Return the exception of a failure."""
    error = failure.value
    assert isinstance(error, BaseException)
    return error
