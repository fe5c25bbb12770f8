"""The broker that the tests of publishing and consuming run on, and stores for what they apply."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stompkit.testing import RunningBroker
from tests.replication.broker.place import Place
from tests.replication.broker.sqlite_sink import SqliteSink


def place_of(broker: RunningBroker, directory: Path) -> Place:
    """Find out what a broker can do."""
    acknowledges = {"ack", "client-individual"} <= {
        name for name in ("ack", "client-individual") if name in broker.capabilities
    }
    return Place(broker, acknowledges, "receipt" in broker.capabilities, directory)


@pytest.fixture
def place(stomp_broker: RunningBroker, tmp_path: Path) -> Place:
    """The broker of the run, and a directory of the test's own."""
    return place_of(stomp_broker, tmp_path)


@pytest.fixture
def sink(place: Place) -> Iterator[SqliteSink]:
    """A store that begins empty."""
    sink = SqliteSink(place.store)
    yield sink
    sink.close()
