"""The thread and reactor of a link."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from twisted.internet.defer import Deferred

from stompkit._common.twisted import reactor_thread
from stompkit._common.twisted.reactor_thread import exception_of

__all__ = ["LinkClosedError", "ReactorThread", "exception_of"]

_Given = TypeVar("_Given")
_NO_WAIT: Final = (
    "a callback of a link runs in the link's thread and cannot wait for the link: wait in another"
    " thread, or take messages that have arrived with timeout_s=0"
)
_FORKED: Final = (
    "the link belongs to the process that created it, and a fork has none of its threads: create"
    " another link after the fork"
)


class LinkClosedError(Exception):
    """The link is closed: :meth:`Link.close` was called, or the broker refused the login."""


class _Pending(Future[_Given]):
    """A future that refuses to be waited for where the wait would never end.

    That is in the thread that completes it, and in a fork of its process.
    """

    def __init__(self, thread: ReactorThread) -> None:
        super().__init__()
        self._thread = thread

    def result(self, timeout: float | None = None) -> _Given:
        self._check(timeout)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._check(timeout)
        return super().exception(timeout)

    def _check(self, timeout: float | None) -> None:
        if not self.done() and (timeout is None or timeout > 0):
            self._thread.refuse_to_wait()


class ReactorThread(reactor_thread.ReactorThread):
    """The reactor of a link."""

    def __init__(self) -> None:
        """Start the reactor in a new thread."""
        super().__init__("stompkit-link")
        self._process = os.getpid()

    @property
    def is_forked(self) -> bool:
        """True in a fork of the process, which does not have this thread."""
        return os.getpid() != self._process

    def refuse_fork(self) -> None:
        """Raise :class:`LinkClosedError` in a fork of the process."""
        if self.is_forked:
            raise LinkClosedError(_FORKED)

    def refuse_to_wait(self) -> None:
        """Raise RuntimeError if called in the thread itself, where a wait would never end.

        Raises :class:`LinkClosedError` in a fork of the process.
        """
        self.refuse_fork()
        if self.is_current:
            raise RuntimeError(_NO_WAIT)

    def future(self) -> Future[_Given]:
        """Return a future that this thread completes; it cannot be waited for here."""
        return _Pending(self)

    def promise(self) -> Future[None]:
        """Return a future that callers cannot cancel."""
        future: Future[None] = self.future()
        future.set_running_or_notify_cancel()
        return future

    def call(self, function: Callable[[], Deferred[_Given]]) -> Future[_Given]:
        """Call *function* in the thread; return a future with the result of its Deferred."""
        if not self.is_alive:
            future: Future[_Given] = self.future()
            future.set_exception(self.stopped_error())
            return future
        return super().call(function)

    def stopped_error(self) -> Exception:
        """Return the error of calls that come as the thread ends."""
        return LinkClosedError(_FORKED if self.is_forked else "the link is closed")
