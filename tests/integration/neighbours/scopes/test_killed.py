"""Tests that kill the shared broker, separate from those of long-lived clients."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="class")
def killed(stomp_broker):
    """The shared broker, killed for all tests of a class."""
    stomp_broker.kill()
    yield stomp_broker
    stomp_broker.restart()


def test_killed(stomp_broker):
    stomp_broker.kill()
    with pytest.raises(ConnectionRefusedError):
        stomp_broker.client()
    stomp_broker.restart()


class TestKilled:
    """The broker stays down between these tests."""

    def test_one(self, killed):
        assert not killed.is_running

    def test_two(self, killed):
        with pytest.raises(ConnectionRefusedError):
            killed.client()
