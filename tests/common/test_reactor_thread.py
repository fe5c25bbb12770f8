"""Calls of a reactor in a thread of its own, while the thread ends."""

from __future__ import annotations

from concurrent.futures import Future
from time import monotonic
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from stompkit._common.twisted.reactor_thread import ReactorThread
from stompkit.client.blocking._thread import LinkClosedError
from stompkit.client.blocking._thread import ReactorThread as LinkThread

LONG_S = 20.0


@pytest.mark.parametrize(
    ("kind", "error"), [(lambda: ReactorThread("t"), RuntimeError), (LinkThread, LinkClosedError)]
)
def test_calls_that_a_stopped_reactor_does_not_make_or_complete_fail(
    kind: Any, error: type[Exception]
) -> None:
    """Their callers would block without end."""
    thread = kind()
    late: list[Future[int]] = []

    def stopping() -> None:
        late.append(thread.call(lambda: succeed(1)))

    reactor: Any = thread.reactor
    thread.start(reactor.addSystemEventTrigger, "after", "shutdown", stopping)
    never: Deferred[int] = Deferred()
    pending = thread.call(lambda: never)
    assert thread.call(lambda: succeed(1)).result(LONG_S) == 1
    thread.stop()
    for future in (pending, *late):
        assert isinstance(future.exception(LONG_S), error)
    assert len(late) == 1


def test_a_changed_date_does_not_delay_calls() -> None:
    """A reactor whose clock is the date makes a call late by as much as the date is set back."""
    thread = ReactorThread("t")
    try:
        reactor: Any = thread.reactor
        before = monotonic()
        now = thread.call(lambda: succeed(reactor.seconds())).result(LONG_S)
        assert before <= now <= monotonic()
    finally:
        thread.stop()
