"""Fixtures that the tests of the beanstalkd front end share."""

from __future__ import annotations

from typing import cast

import pytest

from stompkit.server import BrokerConfig
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker
from tests.server.beanstalk.peers import Front, MemoryWorker


@pytest.fixture(params=["memory", "stored"])
def front(request: pytest.FixtureRequest) -> Front:
    """The front end of a broker, with and without a store."""
    kind = cast("str", request.param)
    store = MemoryStore() if kind == "stored" else None
    return Front(MemoryBroker(BrokerConfig(), store=store))


@pytest.fixture
def worker(front: Front) -> MemoryWorker:
    """A client of the front end."""
    return front.worker()
