"""Run the calls of a store, either inline or in a separate thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from stompkit.server.interfaces import StoreError
from stompkit.server.log import store_events
from stompkit.server.log.event import current_failure

__all__ = ["InlineRunner", "ThreadRunner"]


#: Maximum time in seconds of a brief call in the broker's thread; the disk takes most of it. After
#: a slower call, no call runs there for this multiple of its duration. The multiple doubles with
#: each further slow call, up to the maximum.
_BRIEF_S: Final = 0.001
_REST: Final = 8
_MOST_REST: Final = 1024
#: Interval in seconds at which an idle thread checks that its caller is still alive.
_LOOK_S: Final = 1.0


class _Call(NamedTuple):
    """One call of a store, with the callbacks for its result."""

    work: Callable[[], object]
    done: Callable[[object], None]
    failed: Callable[[StoreError], None]

    def make(self) -> Callable[[], None]:
        """Make the call; return a function that reports the result, for the caller to run.

        An exception other than :class:`StoreError` is a bug: it is logged, and reported as a
        StoreError.
        """
        try:
            result = self.work()
        except StoreError as error:
            reason = error
        except Exception as error:
            store_events.store_call_failed(failure=current_failure())
            reason = StoreError(f"unexpected {type(error).__name__}: see the log")
        else:
            return lambda: self.done(result)
        return lambda: self.failed(reason)


class InlineRunner:
    """Makes each call at once, in the caller's thread."""

    def __init__(self) -> None:
        """Start accepting calls."""
        self._stopped = False

    def run(
        self,
        work: Callable[[], object],
        done: Callable[[object], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """Call ``work``, then ``done`` or ``failed``, before returning.

        Raises RuntimeError once the runner has been stopped.
        """
        if self._stopped:
            raise RuntimeError("the runner has been stopped")
        notify = _Call(work, done, failed).make()
        notify()

    def stop(self) -> None:
        """Accept no more calls; does nothing the second time."""
        self._stopped = True


class ThreadRunner:
    """Makes the calls in a separate thread, started by the first call.

    A process that forks, as daemons do, must fork before that.
    """

    def __init__(
        self,
        call_from_thread: Callable[[Callable[[], None]], object],
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Report the result of each call through ``call_from_thread``, as that of a reactor.

        ``seconds`` is the clock that measures the duration of calls.
        """
        self._call_from_thread = call_from_thread
        self._seconds = seconds
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        #: The thread that requested the last call.
        self._asker = threading.current_thread()
        self._stopped = False
        #: Number of calls whose result is not yet reported.
        self._outstanding = 0
        #: Time from which a brief call may run in the broker's thread again.
        self._brief_from = 0.0
        self._rest = _REST

    def run_brief(
        self,
        work: Callable[[], object],
        done: Callable[[object], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """Call ``work`` in this thread if no call is pending and the disk is fast, or queue it."""
        began = self._seconds()
        if self._stopped or self._outstanding or began < self._brief_from:
            self.run(work, done, failed)
            return
        notify = _Call(work, done, failed).make()
        took = self._seconds() - began
        if took > _BRIEF_S:
            self._brief_from = began + self._rest * took
            self._rest = min(2 * self._rest, _MOST_REST)
        else:
            self._rest = _REST
        notify()

    def run(
        self,
        work: Callable[[], object],
        done: Callable[[object], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """Queue a call of ``work`` after all calls requested before.

        Raises RuntimeError once the runner has been stopped.
        """
        if self._stopped:
            raise RuntimeError("the runner has been stopped")
        self._asker = threading.current_thread()
        if self._thread is None or not self._thread.is_alive():
            # Not a daemon: requested calls are made before the interpreter ends.
            thread = threading.Thread(target=self._work, name="stompkit-store", daemon=False)
            try:
                thread.start()
            except RuntimeError as error:
                failed(StoreError(f"{error}: the system has none, or no memory for it"))
                return
            self._thread = thread
        self._outstanding += 1
        self._calls.put(_Call(work, done, failed))

    def stop(self) -> None:
        """Wait until all calls have been made and reported; does nothing the second time.

        ``done`` and ``failed`` are called when the broker's thread processes them.
        """
        self._stopped = True
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join()
            self._thread = None

    def abandon(self) -> None:
        """Accept no more calls, and end the thread after those requested, without waiting."""
        self._stopped = True
        if self._thread is not None:
            self._calls.put(None)
            self._thread = None

    def _work(self) -> None:
        """Make one call after the other, until stopped.

        The thread also ends when the calling thread has died of an uncaught exception. The process,
        which holds a lock, must not stay alive for this thread.
        """
        while True:
            try:
                call = self._calls.get(timeout=_LOOK_S)
            except queue.Empty:
                if self._asker.is_alive():
                    continue
                return
            if call is None:
                return
            self._call_from_thread(partial(self._notify, call.make()))
            # Objects that a call held, such as messages, must not stay until the next call.
            del call

    def _notify(self, notify: Callable[[], None]) -> None:
        """Report the result of a call, in the broker's thread."""
        self._outstanding -= 1
        notify()
