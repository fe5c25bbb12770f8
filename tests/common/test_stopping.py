"""Stops of reactors."""

from __future__ import annotations

from typing import Any

from twisted.internet.pollreactor import PollReactor

from stompkit._common.twisted.stopping import stop_reactor


def test_a_reactor_that_is_stopping_is_stopped_again() -> None:
    reactor: Any = PollReactor()  # type: ignore[no-untyped-call]  # Twisted's
    calls: list[str] = []

    def twice() -> None:
        stop_reactor(reactor)
        stop_reactor(reactor)
        calls.append("stopped")

    reactor.callWhenRunning(twice)
    reactor.run(installSignalHandlers=False)
    stop_reactor(reactor)
    assert calls == ["stopped"]
