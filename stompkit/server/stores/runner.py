"""Where the calls of a store are made: at once, or in a thread of their own."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from twisted.logger import Logger

from stompkit.server.interfaces import StoreError

__all__ = ["InlineRunner", "ThreadRunner"]

_log: Final = Logger()

#: Seconds that a brief call may take in the broker's thread, most of which are the disk's. After
#: one that took longer none is made there for so many times as long, and after each more that
#: follows for twice as many, up to the most.
_BRIEF_S: Final = 0.001
_REST: Final = 8
_MOST_REST: Final = 1024
#: Seconds after which a thread that has nothing to do looks whether anybody is left to ask for it.
_LOOK_S: Final = 1.0


class _Call(NamedTuple):
    """One call of a store, and whom to tell what came of it."""

    work: Callable[[], object]
    done: Callable[[object], None]
    failed: Callable[[StoreError], None]

    def make(self) -> Callable[[], None]:
        """Make the call; return how to tell it, which is left to the caller.

        An exception that is no :class:`StoreError` is a bug: it is logged, and told as one.
        """
        try:
            result = self.work()
        except StoreError as error:
            reason = error
        except Exception as error:
            _log.failure("a call of the store failed in a way that nobody has foreseen")
            reason = StoreError(f"unexpected {type(error).__name__}: see the log")
        else:
            return lambda: self.done(result)
        return lambda: self.failed(reason)


class InlineRunner:
    """Makes each call at once, in the caller's thread, which waits for it."""

    def __init__(self) -> None:
        """Begin."""
        self._stopped = False

    def run(
        self,
        work: Callable[[], object],
        done: Callable[[object], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """Call ``work``, then one of the others, before returning.

        Raises RuntimeError once the runner has been stopped.
        """
        if self._stopped:
            raise RuntimeError("the runner has been stopped")
        tell = _Call(work, done, failed).make()
        tell()

    def stop(self) -> None:
        """Take no more calls; harmless the second time."""
        self._stopped = True


class ThreadRunner:
    """Makes the calls in one thread of its own, which is started by the first of them.

    A process that forks, as daemons do, has to do so before that.
    """

    def __init__(
        self,
        call_from_thread: Callable[[Callable[[], None]], object],
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tell what came of each call by ``call_from_thread``, as that of a reactor.

        ``seconds`` is a clock that tells how long calls take.
        """
        self._call_from_thread = call_from_thread
        self._seconds = seconds
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        #: Who has asked last.
        self._asker = threading.current_thread()
        self._stopped = False
        #: Calls that have been asked for, and nobody has been told of.
        self._outstanding = 0
        #: When a brief call may be made in the broker's thread again.
        self._brief_from = 0.0
        self._rest = _REST

    def run_brief(
        self,
        work: Callable[[], object],
        done: Callable[[object], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """Call ``work`` here, if all that was asked for before is done, and the disk is fast."""
        began = self._seconds()
        if self._stopped or self._outstanding or began < self._brief_from:
            self.run(work, done, failed)
            return
        tell = _Call(work, done, failed).make()
        took = self._seconds() - began
        if took > _BRIEF_S:
            self._brief_from = began + self._rest * took
            self._rest = min(2 * self._rest, _MOST_REST)
        else:
            self._rest = _REST
        tell()

    def run(
        self,
        work: Callable[[], object],
        done: Callable[[object], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """Have ``work`` called after all that was asked for before.

        Raises RuntimeError once the runner has been stopped.
        """
        if self._stopped:
            raise RuntimeError("the runner has been stopped")
        self._asker = threading.current_thread()
        if self._thread is None or not self._thread.is_alive():
            # Not a daemon: what was asked for is done before the interpreter ends.
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
        """Wait until all calls have been made and told of; harmless the second time.

        ``done`` and ``failed`` are called when the broker's thread gets round to it.
        """
        self._stopped = True
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        """Make one call after the other, until there are to be no more.

        That is so, too, when the thread of who asks has ended without a word, by an exception that
        nobody has caught: the process, which holds a lock, is not to stay for this thread.
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
            self._call_from_thread(partial(self._tell, call.make()))
            # What a call held, messages perhaps, must not stay until the next comes.
            del call

    def _tell(self, tell: Callable[[], None]) -> None:
        """Tell, in the broker's thread, what came of a call."""
        self._outstanding -= 1
        tell()
