"""Tests of pytest-asyncio in its strict mode, with loops of each scope."""

from __future__ import annotations

import pytest
import pytest_asyncio

from stompkit.client.aio import Client
from stompkit.testing import AsyncBroker, broker


@pytest_asyncio.fixture
async def client(stomp_broker):
    async with Client(stomp_broker.url) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(stomp_broker):
    """A client for all tests of the module, and a broker with asynchronous methods."""
    async with Client(stomp_broker.url) as client:
        yield client, AsyncBroker(stomp_broker)


@pytest.mark.asyncio
async def test_function(client, stomp_broker):
    orders = stomp_broker.queue("orders")
    await client.send(orders, b"one pizza")
    subscription = await client.subscribe(orders)
    assert (await subscription.get()).body == b"one pizza"
    sent = await AsyncBroker(stomp_broker).wait_for("SEND", destination=orders)
    assert sent.text == "one pizza"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("body", [b"one", b"two"])
async def test_module(shared, stomp_client, body):
    client, awaited = shared
    orders = awaited.queue("orders")
    await awaited.run(stomp_client.subscribe, orders, receipt=True)
    await client.send(orders, body)
    assert (await awaited.run(stomp_client.receive)).body == body


@pytest.mark.asyncio(loop_scope="session")
async def test_session(stomp_broker_factory):
    running = stomp_broker_factory()
    awaited = AsyncBroker(running)
    await awaited.kill()
    await awaited.restart()
    async with Client(running.url) as client:
        await client.send(awaited.queue(), b"x")


@pytest.mark.asyncio
async def test_no_fixture():
    async with broker() as awaited, Client(awaited.url) as client:
        await client.send(awaited.queue(), b"x")


def test_blocking(stomp_client, stomp_broker):
    stomp_client.send(stomp_broker.queue(), "x")
