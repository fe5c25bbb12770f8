"""Tests of pytest-twisted: it runs the reactor in one greenlet beside that of the tests."""

from __future__ import annotations

import pytest
import pytest_twisted

from stompkit.client import Client
from stompkit.testing.twisted import TwistedBroker


@pytest_twisted.async_yield_fixture(scope="module")
async def client(stomp_broker):
    client = Client([f"{stomp_broker.host}:{stomp_broker.port}"])
    await client.connect()
    yield client
    await client.disconnect()


@pytest_twisted.ensureDeferred
async def test_module(client, stomp_broker):
    broker = TwistedBroker(stomp_broker)
    orders = broker.queue("orders")
    await client.send(orders, b"one pizza")
    assert (await broker.wait_for("SEND", destination=orders)).text == "one pizza"


@pytest_twisted.inlineCallbacks
def test_generator(client, stomp_broker):
    orders = stomp_broker.queue("orders")
    subscription = yield client.subscribe(orders)
    yield TwistedBroker(stomp_broker).restart()
    yield client.send(orders, b"another pizza")
    message = yield subscription.get()
    assert message.body == b"another pizza"
    yield message.ack()


def test_blocking(stomp_client, stomp_broker):
    stomp_client.send(stomp_broker.queue(), "x")


@pytest.mark.asyncio
async def test_of_asyncio(stomp_client, stomp_broker):
    stomp_client.send(stomp_broker.queue(), "x")
