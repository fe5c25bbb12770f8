"""A program on Twisted and a broker in memory, on a network that the test drives."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from stompkit.client import Client, ConnectFailedError, ReconnectPolicy
from stompkit.testing.memory import MemoryBroker, MemoryNetwork


def test_a_client_and_a_broker_share_a_clock() -> None:
    network = MemoryNetwork()
    endpoint = network.broker()
    client = Client([endpoint], reactor=network.clock, heart_beat_ms=(1_000, 1_000))
    network.wait(client.connect())
    network.wait(client.send("/queue/a", b"hello"))
    network.advance(60)
    assert client.is_connected
    subscription = network.wait(client.subscribe("/queue/a"))
    message = network.wait(subscription.get())
    assert message.body == b"hello"
    network.wait(message.ack())
    assert network.clock is endpoint.broker.clock


def test_time_passes_once_for_brokers_of_one_clock() -> None:
    network = MemoryNetwork()
    network.broker()
    network.broker()
    other = MemoryBroker()
    network.broker(other)
    network.advance(2)
    assert network.clock.seconds() == other.clock.seconds() == 2


def test_a_broker_that_is_down_refuses() -> None:
    network = MemoryNetwork()
    endpoint = network.broker()
    endpoint.is_down = True
    client = Client([endpoint], reactor=network.clock, reconnect=ReconnectPolicy(max_attempts=1))
    with pytest.raises(ConnectFailedError):
        network.wait(client.connect())


def test_what_has_not_happened_is_not_waited_for() -> None:
    with pytest.raises(AssertionError, match="has not fired"):
        MemoryNetwork().wait(Deferred())
