"""``stompkit bench`` on real brokers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from stompkit.testing.plugin import BrokerFactory
from tests.commands.test_messages import Commands
from tests.effort import in_matrix


@pytest.fixture(scope="module", params=["stompkit", in_matrix("rabbitmq")])
def commands(
    request: pytest.FixtureRequest, stomp_broker_factory: BrokerFactory
) -> Iterator[Commands]:
    """Commands that are configured for a broker."""
    with stomp_broker_factory(request.param, frames=False) as broker:
        yield Commands(broker)


def test_all_messages_come_once_and_in_order(commands: Commands) -> None:
    arguments = ["bench", "--count", "503", "--producers", "2", "--size", "1000", "--json"]
    found = json.loads(commands.run(*arguments, "--persistent"))
    assert found["messages"] == 503
    assert (found["missing"], found["repeated"], found["out_of_order"]) == (0, 0, 0)
    assert found["received_per_s"] == pytest.approx(503 / found["seconds"], rel=0.05)
    assert found["confirmed_per_s"] > 0
    latencies = found["latency_ms"]
    assert 0 < latencies["p50"] <= latencies["p99"] <= latencies["max"]


def test_several_consumers_share_the_messages(commands: Commands) -> None:
    arguments = ["bench", "--count", "200", "--consumers", "3", "--ack", "auto", "--no-receipts"]
    text = commands.run(*arguments).decode()
    assert re.search(r"^messages +200$", text, re.MULTILINE)
    assert re.search(r"^confirmed +- ", text, re.MULTILINE)
    assert re.search(r"^missing +0$", text, re.MULTILINE)


def test_what_somebody_else_has_sent_is_told(commands: Commands) -> None:
    commands.run("send", "/queue/bench-used", "x")
    arguments = ["bench", "--destination", "/queue/bench-used", "--count", "10"]
    said = commands.both(*arguments, status=1)[1]
    assert "has messages of somebody else in it" in said
