"""A test with pytest-twisted, and the client of stompkit."""

import pytest_twisted

from stompkit.client import Client
from stompkit.testing.twisted import TwistedBroker


@pytest_twisted.ensureDeferred
async def test_an_order_is_read(stomp_broker):
    broker = TwistedBroker(stomp_broker)
    orders = broker.queue("orders")
    address = f"{broker.host}:{broker.port}"
    login = {"login": broker.login, "passcode": broker.passcode}
    client = Client([address], virtual_host=broker.vhost, **login)
    await client.connect()
    await client.send(orders, b"one pizza")
    subscription = await client.subscribe(orders)
    message = await subscription.get()
    await message.ack()
    await broker.wait_for("ACK")
    await client.disconnect()
