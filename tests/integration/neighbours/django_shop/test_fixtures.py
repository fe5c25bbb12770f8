"""Tests with the fixtures of pytest-django."""

from __future__ import annotations

import urllib.request

import pytest


@pytest.fixture(scope="session")
def django_db_modify_db_settings(stomp_broker):
    """Start a broker before the database is created."""
    assert stomp_broker.is_running


@pytest.fixture
def orders(stomp_broker, settings):
    settings.STOMP_ADDRESS = (stomp_broker.host, stomp_broker.port)
    settings.ORDERS = stomp_broker.queue("orders")
    return settings.ORDERS


def test_client(client, orders, stomp_client):
    stomp_client.subscribe(orders, receipt=True)
    assert client.post("/orders", "one pizza", content_type="text/plain").status_code == 202
    assert stomp_client.receive().body == b"one pizza"


@pytest.mark.django_db
def test_database(client, orders, stomp_broker):
    client.post("/orders", "another pizza", content_type="text/plain")
    assert stomp_broker.frames.wait_for("SEND", destination=orders).text == "another pizza"


def test_server(live_server, orders, stomp_broker):
    urllib.request.urlopen(f"{live_server.url}/orders", b"a third one").read()
    assert stomp_broker.frames.wait_for("SEND", destination=orders).text == "a third one"


@pytest.mark.asyncio
async def test_awaited(async_client, orders, stomp_broker):
    await async_client.post("/orders", "a fourth one", content_type="text/plain")
    assert stomp_broker.frames.wait_for("SEND", destination=orders).text == "a fourth one"
