"""Fixtures that the tests of the broker share."""

from __future__ import annotations

from typing import cast

import pytest

from stompkit.server import BrokerConfig
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker
from tests.server.brokers import MakeBroker


@pytest.fixture(params=["memory", "stored"])
def broker_with(request: pytest.FixtureRequest) -> MakeBroker:
    """Makes brokers in memory and with a store: queues have to behave the same."""
    kind = cast("str", request.param)

    def make(**settings: object) -> MemoryBroker:
        config = BrokerConfig().changed(**settings)
        return MemoryBroker(config, store=MemoryStore() if kind == "stored" else None)

    return make
