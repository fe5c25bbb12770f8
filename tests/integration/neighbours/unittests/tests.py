"""Test cases of unittest, run by unittest itself and by pytest."""

from __future__ import annotations

import unittest

from stompkit.client.aio import Client
from stompkit.testing import AsyncBroker
from stompkit.testing.unittest import StompBrokerMixin


class TestPlain(StompBrokerMixin, unittest.TestCase):
    """The mixin in synchronous test cases."""

    def test_sends(self):
        orders = self.stomp_broker.queue("orders")
        with self.stomp_broker.client() as client:
            client.send(orders, "one pizza")
            client.subscribe(orders)
            self.assertEqual(client.receive().body, b"one pizza")

    def test_subtests(self):
        for body in ("one", "two"):
            with self.subTest(body), self.stomp_broker.client() as client:
                client.send(self.stomp_broker.queue("orders"), body)

    def test_killed(self):
        self.stomp_broker.kill()


class TestAwaited(StompBrokerMixin, unittest.IsolatedAsyncioTestCase):
    """The mixin in asyncio test cases."""

    async def asyncSetUp(self):
        self.client = await self.enterAsyncContext(Client(self.stomp_broker.url))

    async def test_sends(self):
        broker = AsyncBroker(self.stomp_broker)
        await self.client.send(orders := broker.queue("orders"), b"one pizza")
        frame = await broker.wait_for("SEND", destination=orders)
        self.assertEqual(frame.text, "one pizza")

    async def test_restart(self):
        await AsyncBroker(self.stomp_broker).restart()
        await self.client.send(self.stomp_broker.queue("orders"), b"x")
