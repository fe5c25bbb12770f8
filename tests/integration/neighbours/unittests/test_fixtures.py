"""Test cases of unittest that use the broker of pytest's fixtures."""

from __future__ import annotations

import unittest

import pytest


@pytest.fixture(scope="class")
def broker(request, stomp_broker):
    request.cls.broker = stomp_broker


@pytest.mark.usefixtures("broker")
class TestFixture(unittest.TestCase):
    """A fixture of the class."""

    @pytest.fixture(autouse=True)
    def _client(self, stomp_client):
        self.client = stomp_client

    def test_sends(self):
        self.client.send(self.broker.queue("orders"), "one pizza")

    @pytest.mark.stomp_requires("nack")
    def test_marker(self):
        self.client.disconnect()
