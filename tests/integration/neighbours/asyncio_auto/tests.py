"""Tests of pytest-asyncio in its auto mode, on one loop for all, without marks."""

from __future__ import annotations

import pytest

from stompkit.client.aio import Client
from stompkit.testing import AsyncBroker


@pytest.fixture(scope="session")
async def client(stomp_broker):
    async with Client(stomp_broker.url) as client:
        yield client


@pytest.fixture
async def orders(client, stomp_broker):
    destination = stomp_broker.queue("orders")
    yield destination, await client.subscribe(destination, receipt=True)


async def test_session(client, orders):
    destination, subscription = orders
    await client.send(destination, b"one pizza")
    assert (await subscription.get()).body == b"one pizza"


async def test_reconnects(client, orders, stomp_broker):
    destination, subscription = orders
    await AsyncBroker(stomp_broker).restart()
    await client.send(destination, b"another pizza")
    assert (await subscription.get()).body == b"another pizza"


class TestMethods:
    """Asynchronous methods."""

    async def test_proxy(self, stomp_proxy, stomp_broker):
        awaited = AsyncBroker(stomp_broker)
        with stomp_proxy.reset("RECEIPT", times=1) as fault:
            async with Client(f"{stomp_proxy.host}:{stomp_proxy.port}") as client:
                await client.send(awaited.queue(), b"x")
        assert fault.count == 1


def test_blocking(stomp_client, stomp_broker):
    stomp_client.send(stomp_broker.queue(), "x")
