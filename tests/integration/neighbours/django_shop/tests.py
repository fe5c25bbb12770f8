"""Test cases of Django, run by Django itself and by pytest."""

from __future__ import annotations

import urllib.request

from django.test import LiveServerTestCase, SimpleTestCase, TestCase

from stompkit.testing.unittest import StompBrokerMixin


class Orders(StompBrokerMixin):
    def setUp(self):
        super().setUp()
        self.orders = self.stomp_broker.queue("orders")
        address = (self.stomp_broker.host, self.stomp_broker.port)
        self.enterContext(self.settings(STOMP_ADDRESS=address, ORDERS=self.orders))

    def sent(self):
        return self.stomp_broker.frames.wait_for("SEND", destination=self.orders).text


class TestView(Orders, SimpleTestCase):
    """Tests without a database."""

    def test_order(self):
        answer = self.client.post("/orders", "one pizza", content_type="text/plain")
        self.assertEqual(answer.status_code, 202)
        self.assertEqual(self.sent(), "one pizza")


class TestDatabase(Orders, TestCase):
    """Tests in a transaction of the database."""

    def test_order(self):
        self.client.post("/orders", "another pizza", content_type="text/plain")
        self.assertEqual(self.sent(), "another pizza")


class TestServer(Orders, LiveServerTestCase):
    """Tests with a server in a thread."""

    def test_order(self):
        urllib.request.urlopen(f"{self.live_server_url}/orders", b"a third one").read()
        self.assertEqual(self.sent(), "a third one")
