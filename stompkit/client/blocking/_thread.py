"""The thread and reactor of a link."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from twisted.internet.defer import Deferred

from stompkit._common.twisted import reactor_thread
from stompkit._common.twisted.reactor_thread import exception_of

__all__ = ["LinkClosedError", "ReactorThread", "exception_of"]

_Given = TypeVar("_Given")


class LinkClosedError(Exception):
    """The link is closed: :meth:`Link.close` was called, or the broker refused the login."""


class ReactorThread(reactor_thread.ReactorThread):
    """The reactor of a link."""

    def __init__(self) -> None:
        """Start the reactor in a new thread."""
        super().__init__("stompkit-link")

    def refuse_to_wait(self) -> None:
        """Raise RuntimeError if called in the thread itself, where a wait would never end."""
        if self.is_current:
            raise RuntimeError("a callback of a link's future cannot wait for the link")

    def call(self, function: Callable[[], Deferred[_Given]]) -> Future[_Given]:
        """Call *function* in the thread; return a future with the result of its Deferred."""
        if not self.is_alive:
            future: Future[_Given] = Future()
            future.set_exception(self.stopped_error())
            return future
        return super().call(function)

    def stopped_error(self) -> Exception:
        """Return the error of calls that come as the thread ends."""
        return LinkClosedError("the link is closed")
