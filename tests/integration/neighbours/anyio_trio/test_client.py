"""Tests of anyio on asyncio only, for a client that needs that."""

from __future__ import annotations

import pytest

from stompkit.client.aio import Client

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
async def client(anyio_backend, stomp_broker):
    async with Client(stomp_broker.url) as client:
        yield client


async def test_client(client, stomp_broker):
    orders = stomp_broker.queue("orders")
    await client.send(orders, b"one pizza")
    subscription = await client.subscribe(orders)
    assert (await subscription.get()).body == b"one pizza"
