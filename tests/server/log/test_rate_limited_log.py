"""Rate-limited log lines that clients can cause: a maximum per second, and a count of the rest."""

from __future__ import annotations

from typing import cast

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from stompkit.server import BrokerConfig
from stompkit.server.interfaces import Clock as DomainClock
from stompkit.server.log.client_events import proxy_untrusted, websocket_refused
from stompkit.server.log.rate_limited_log import MOST_PER_S, RateLimitedLog
from stompkit.testing.memory import MemoryBroker


def test_what_is_too_much_is_counted() -> None:
    clock = Clock()
    log = RateLimitedLog(cast("DomainClock", clock))
    with capturedLogs() as events:
        for number in range(MOST_PER_S + 7):
            log.add(proxy_untrusted, peer=f"192.0.2.{number}")
        assert len(events) == MOST_PER_S
        clock.advance(1)
        assert formatEvent(events[-1]).startswith("7 more clients")
        log.add(websocket_refused, peer="192.0.2.200", reason="another")
        assert formatEvent(events[-1]) == "192.0.2.200 gets no WebSocket: another"
    assert not clock.getDelayedCalls()


def test_a_flood_of_refusals_leaves_few_lines() -> None:
    broker = MemoryBroker(BrokerConfig(max_connections=1))
    broker.connect()
    with capturedLogs() as events:
        for _ in range(1_000):
            assert broker.connect().error is not None
        broker.clock.advance(1)
    lines = [formatEvent(event) for event in events]
    assert sum("too-many-connections" in line for line in lines) == MOST_PER_S
    assert any(line.startswith("950 more clients") for line in lines)
