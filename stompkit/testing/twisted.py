"""The broker of a test for Twisted programs: blocking methods return Deferreds."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import ParamSpec, TypeVar, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads

from stompkit.testing._facades import ThreadedBroker
from stompkit.testing._threads import started

__all__ = ["TwistedBroker"]

_T = TypeVar("_T")
_P = ParamSpec("_P")


class TwistedBroker(ThreadedBroker):
    """A broker for Twisted: ``yield b.restart()`` or ``await b.restart()``.

    ``TwistedBroker(stomp_broker)`` wraps the fixture, in tests of pytest-twisted for example; every
    awaitable method returns a Deferred. It requires a running reactor.
    """

    def run(
        self, function: Callable[_P, _T], /, *arguments: _P.args, **keywords: _P.kwargs
    ) -> Deferred[_T]:
        """Run a blocking call in a separate thread."""
        from twisted.internet import reactor

        awaited: Deferred[_T] = Deferred()

        def fire(done: Future[_T]) -> None:
            error = done.exception()
            if error is None:
                awaited.callback(done.result())
            else:
                awaited.errback(error)

        # The pool of the reactor has few threads, which also resolve names for the program.
        done = started(partial(function, *arguments, **keywords))
        from_thread = cast("IReactorFromThreads", reactor).callFromThread
        done.add_done_callback(partial(from_thread, fire))
        return awaited
