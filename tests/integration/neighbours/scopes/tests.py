"""Fixtures of each scope request a broker, in any order, repeatedly and in several processes."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def archive(stomp_broker_factory):
    """A separate broker of the project, for all tests."""
    return stomp_broker_factory(persistent=True)


@pytest.fixture(scope="session")
def address(stomp_broker):
    return stomp_broker.host, stomp_broker.port


@pytest.fixture(scope="module")
def inbox(stomp_broker):
    """A subscription that the tests of the module share."""
    destination = stomp_broker.queue("inbox")
    with stomp_broker.client() as client:
        client.subscribe(destination, receipt=True)
        yield destination, client


@pytest.fixture
def orders(stomp_client, stomp_broker):
    destination = stomp_broker.queue("orders")
    stomp_client.subscribe(destination, receipt=True)
    return destination


def test_function(orders, stomp_client):
    stomp_client.send(orders, "one pizza")
    assert stomp_client.receive().body == b"one pizza"
    stomp_client.receive_nothing()


def test_names_are_new(orders, stomp_client):
    stomp_client.receive_nothing()


def test_module(inbox, stomp_client):
    destination, client = inbox
    stomp_client.send(destination, "one pizza")
    assert client.receive().body == b"one pizza"


def test_session(archive, stomp_broker, address):
    assert address == (stomp_broker.host, stomp_broker.port)
    assert archive.port != stomp_broker.port
    orders = archive.queue("orders")
    with archive.client() as client:
        client.send(orders, "kept", persistent="true")
    archive.restart()
    with archive.client() as client:
        client.subscribe(orders, receipt=True)
        assert client.receive().body == b"kept"


@pytest.mark.stomp_requires("nack")
def test_marker(stomp_client):
    stomp_client.disconnect()
