"""What the tests of the client share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from twisted.logger import globalLogPublisher

from tests.client.logs import Log
from tests.client.network import Network


@pytest.fixture
def net() -> Network:
    """A network without anybody."""
    return Network()


@pytest.fixture(autouse=True)
def log() -> Iterator[Log]:
    """The log; an error in it that the test has not taken fails the test."""
    log = Log()
    globalLogPublisher.addObserver(log)
    gc.freeze()  # what was there before is not looked at
    try:
        yield log
        gc.collect()  # Deferreds whose errors nobody has seen log them when they go
    finally:
        gc.unfreeze()
        globalLogPublisher.removeObserver(log)
    assert not log.take_errors()
