"""The broker for the tests of publishing and consuming, and stores for the applied changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stompkit.testing import RunningBroker
from tests.replication.broker.place import Place
from tests.replication.broker.sqlite_sink import SqliteSink


def place_of(broker: RunningBroker, directory: Path) -> Place:
    """Return the capabilities of a broker and its address."""
    acknowledges = {"ack", "client-individual"} <= {
        name for name in ("ack", "client-individual") if name in broker.capabilities
    }
    return Place(broker, acknowledges, "receipt" in broker.capabilities, directory)


@pytest.fixture
def place(stomp_broker: RunningBroker, tmp_path: Path) -> Place:
    """The broker of the run, and a separate directory."""
    return place_of(stomp_broker, tmp_path)


@pytest.fixture
def sink(place: Place) -> Iterator[SqliteSink]:
    """An empty store."""
    sink = SqliteSink(place.store)
    yield sink
    sink.close()
