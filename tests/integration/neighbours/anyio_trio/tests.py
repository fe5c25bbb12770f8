"""Tests of anyio, each on asyncio and on trio."""

from __future__ import annotations

import anyio
import anyio.to_thread
import pytest

from stompkit.frames import Frame, encode

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture(scope="module")
async def stream(anyio_backend, stomp_broker):
    """A connection for all tests of the module."""
    async with await anyio.connect_tcp(stomp_broker.host, stomp_broker.port) as stream:
        login = {"accept-version": "1.2", "host": stomp_broker.vhost}
        await stream.send(encode(Frame("CONNECT", login)))
        assert (await stream.receive()).startswith(b"CONNECTED")
        yield stream


async def test_module(stream, stomp_broker, stomp_client):
    orders = stomp_broker.queue("orders")
    stomp_client.subscribe(orders, receipt=True)
    await stream.send(encode(Frame("SEND", {"destination": orders}, b"one pizza")))
    message = await anyio.to_thread.run_sync(stomp_client.receive)
    assert message.body == b"one pizza"


async def test_task_group(stomp_broker):
    orders = stomp_broker.queue("orders")
    found = []

    async def note():
        waiting = stomp_broker.frames.wait_for
        found.append(await anyio.to_thread.run_sync(lambda: waiting("SEND", destination=orders)))

    with stomp_broker.client() as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(note)
            await anyio.to_thread.run_sync(client.send, orders, "one pizza")
    assert found[0].text == "one pizza"


async def test_restart(stomp_broker_factory):
    broker = stomp_broker_factory()
    await anyio.to_thread.run_sync(broker.restart)
    async with await anyio.connect_tcp(broker.host, broker.port):
        pass
