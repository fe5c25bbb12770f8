"""Fixtures that the tests of the client share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from twisted.logger import globalLogPublisher

from tests.client.logs import Log
from tests.client.network import Network


@pytest.fixture
def net() -> Network:
    """An empty network."""
    return Network()


@pytest.fixture(autouse=True)
def log() -> Iterator[Log]:
    """The log; an error in it that the test does not take fails the test."""
    log = Log()
    globalLogPublisher.addObserver(log)
    gc.freeze()  # ignore objects that existed before
    try:
        yield log
        gc.collect()  # Deferreds log unhandled errors when they are collected
    finally:
        globalLogPublisher.removeObserver(log)
    assert not log.take_errors()
