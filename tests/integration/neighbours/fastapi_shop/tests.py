"""Tests with the test clients of FastAPI."""

from __future__ import annotations

import httpx
import pytest
from fastapi.testclient import TestClient
from shop import application

from stompkit.testing import AsyncBroker


@pytest.fixture(scope="module")
def shop(stomp_broker):
    """The application, running for all tests of the module."""
    orders = stomp_broker.queue("orders")
    app = application(f"{stomp_broker.host}:{stomp_broker.port}", orders)
    with TestClient(app) as client:
        yield client, orders


def test_awaited(shop, stomp_broker):
    client, orders = shop
    assert client.post("/awaited", content=b"one pizza").status_code == 202
    assert stomp_broker.frames.wait_for("SEND", destination=orders).text == "one pizza"


def test_blocking(shop, stomp_broker):
    client, orders = shop
    assert client.post("/blocking/soup").status_code == 202
    assert stomp_broker.frames.wait_for("SEND", destination=orders).text == "soup"


def test_function(stomp_broker, stomp_client):
    orders = stomp_broker.queue("orders")
    stomp_client.subscribe(orders, receipt=True)
    with TestClient(application(f"{stomp_broker.host}:{stomp_broker.port}", orders)) as client:
        client.post("/blocking/soup")
        client.post("/awaited", content=b"one pizza")
    bodies = {frame.body for frame in stomp_client.receive_many(2)}
    assert bodies == {b"soup", b"one pizza"}


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_transport(anyio_backend, stomp_broker):
    orders = stomp_broker.queue("orders")
    app = application(f"{stomp_broker.host}:{stomp_broker.port}", orders)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            assert (await client.post("/awaited", content=b"one pizza")).status_code == 202
    frame = await AsyncBroker(stomp_broker).wait_for("SEND", destination=orders)
    assert frame.text == "one pizza"
