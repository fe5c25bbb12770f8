"""The broker of a test for Twisted programs: blocking methods return Deferreds."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from stompkit.testing._facades import ThreadedBroker

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
        """Run a blocking call in a thread of the reactor's pool."""
        return deferToThread(function, *arguments, **keywords)
