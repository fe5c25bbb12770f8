"""A client that continues with the second broker after the first one has ended."""

import pytest_twisted

from stompkit.client import Client
from stompkit.testing.twisted import TwistedBroker


@pytest_twisted.ensureDeferred
async def test_orders_go_on(stomp_failover):
    first, second = map(TwistedBroker, stomp_failover.brokers)
    addresses = [f"{host}:{port}" for host, port in stomp_failover.addresses]
    login = {"login": first.login, "passcode": first.passcode}
    client = Client(addresses, virtual_host=first.vhost, **login)
    await client.connect()
    await client.send(orders := first.queue("orders"), b"one pizza")
    await first.run(stomp_failover.fail_over)
    await client.send(orders, b"another pizza")
    assert (await second.wait_for("SEND")).text == "another pizza"
    await client.disconnect()
