"""A program and a network failure: here while the broker's receipt is in flight."""

import pytest

from stompkit.testing.client import ClientFailureError


def place(order, orders, connect):
    """The program: it sends an order until the broker has confirmed it, at most three times."""
    for left in (2, 1, 0):
        try:
            with connect() as client:
                return client.send(orders, order)
        except ClientFailureError:
            if not left:
                raise


@pytest.mark.stomp_requires("receipt")
def test_an_order_that_was_not_confirmed_is_sent_again(stomp_broker, stomp_proxy):
    orders = stomp_broker.queue("orders")
    with stomp_proxy.reset("RECEIPT", times=1) as fault:
        place("one pizza", orders, lambda: stomp_broker.client(via=stomp_proxy))
    assert fault.count == 1
    assert len(stomp_proxy.frames.find("SEND", body="one pizza")) == 2
