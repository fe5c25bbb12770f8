"""Rates of messages are per second, however late a busy broker takes a sample."""

from __future__ import annotations

from typing import cast

import pytest
from twisted.internet.interfaces import IReactorTime

from stompkit.server.admin.statistics import INTERVAL_S, PERIOD_S, Statistics
from stompkit.server.domain.destinations import Totals
from stompkit.testing.memory import MemoryBroker
from tests.server.brokers import publish_all


@pytest.mark.parametrize("late", [1, 3])
def test_rates_are_per_second(late: int) -> None:
    broker = MemoryBroker()
    statistics = Statistics(broker.broker, cast("IReactorTime", broker.clock), 10)
    statistics.start()
    client = broker.client("1.2")
    # A destination is followed from its first sample.
    client.subscribe("/queue/a")
    broker.clock.advance(PERIOD_S)
    publish_all(client, "/queue/a", [b"m"] * 6)
    broker.clock.advance(late * PERIOD_S)
    expected = pytest.approx(6 / (late * PERIOD_S))
    assert statistics.rates[Totals._fields.index("received")] == expected
    (followed,) = statistics.followed.values()
    assert followed.rate_in == expected
    while not followed.into:
        broker.clock.advance(PERIOD_S)
    assert list(followed.into) == [pytest.approx(6 / INTERVAL_S, rel=late * PERIOD_S / INTERVAL_S)]
    statistics.stop()


@pytest.mark.parametrize("count", [3, 2_000])
def test_the_sums_are_there_before_the_first_sample(count: int) -> None:
    broker = MemoryBroker()
    statistics = Statistics(broker.broker, cast("IReactorTime", broker.clock), 10)
    statistics.start()
    client = broker.client("1.2")
    for number in range(count):
        publish_all(client, f"/queue/{number}", [b"m"])
    assert (statistics.sums.destinations, statistics.sums.ready) == (count, count)
    statistics.stop()
