"""Fixtures for the tests of replicators."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stompkit.replication.workers import QueueReplicator
from tests.replication.workers.callbacks import Record


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """The record of the callbacks."""
    return Record(tmp_path / "record")


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file that does not exist; callbacks that wait for it continue once it does."""
    return tmp_path / "gate"


@pytest.fixture
def replicator() -> Iterator[QueueReplicator]:
    """A replicator that is not started, and is stopped at the end."""
    made = QueueReplicator(grace_s=0.5)
    try:
        yield made
    finally:
        made.stop(0.0)
