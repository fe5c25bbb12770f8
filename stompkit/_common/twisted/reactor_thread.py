"""A reactor of Twisted in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar, cast

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from stompkit._common.twisted.private_reactor import private_reactor
from stompkit._common.twisted.stopping import stop_reactor

__all__ = ["ReactorThread", "exception_of"]

_Given = TypeVar("_Given")


class ReactorThread:
    """A private reactor in a daemon thread."""

    def __init__(self, name: str) -> None:
        """Start the reactor in a new thread of that name."""
        reactor = private_reactor()
        self._reactor: Any = reactor
        self.reactor: Final = cast("IReactorTime", reactor)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        #: Futures of calls without a result.
        self._calls: set[Future[Any]] = set()
        self._has_stopped = False
        self._stopping = threading.Lock()
        self._thread.start()

    def _run(self) -> None:
        self._reactor.run(installSignalHandlers=False)
        self._has_stopped = True
        self._fail_calls()

    def _fail_calls(self) -> None:
        """Fail the calls that a stopped reactor has not made or completed."""
        with self._stopping:
            calls = list(self._calls)
            self._calls.clear()
        for future in calls:
            future.set_exception(self.stopped_error())

    def stopped_error(self) -> Exception:
        """Return the error of calls that come as the thread ends."""
        return RuntimeError("the thread has ended")

    def future(self) -> Future[_Given]:
        """Return a future that this thread completes."""
        return Future()

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
        """Call *function* in the thread; return a future with the result of its Deferred.

        It fails with :meth:`stopped_error` if the thread ends first.
        """
        future: Future[_Given] = self.future()
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)

        def call() -> None:
            done = maybeDeferred(function)
            done.addCallbacks(
                future.set_result, lambda failure: future.set_exception(exception_of(failure))
            )

        self.start(call)
        if self._has_stopped:
            self._fail_calls()
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
