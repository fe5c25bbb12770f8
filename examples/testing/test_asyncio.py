"""A test with asyncio: here under pytest-asyncio, in its strict mode."""

import asyncio

import pytest

from stompkit.frames import Frame, encode
from stompkit.testing import AsyncBroker


async def place(order, orders, broker):
    """The program: it logs in, and sends an order."""
    login = {"login": broker.login, "passcode": broker.passcode} if broker.login else {}
    reader, writer = await asyncio.open_connection(broker.host, broker.port)
    writer.write(encode(Frame("CONNECT", {"accept-version": "1.2", "host": broker.vhost, **login})))
    await reader.readuntil(b"\0")
    writer.write(encode(Frame("SEND", {"destination": orders}, order)))
    writer.close()
    await writer.wait_closed()


@pytest.mark.asyncio
async def test_an_order_is_sent(stomp_broker):
    broker = AsyncBroker(stomp_broker)
    orders = broker.queue("orders")
    await place(b"one pizza", orders, broker)
    sent = await broker.wait_for("SEND", destination=orders)
    assert sent.text == "one pizza"
