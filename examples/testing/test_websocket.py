"""A test of a STOMP client over WebSocket, here with stomp.py."""

import queue
from urllib.parse import urlsplit

import stomp


class Page(stomp.ConnectionListener):
    def __init__(self):
        self.orders = queue.Queue()

    def on_message(self, frame):
        self.orders.put(frame.body)


def test_a_page_gets_an_order(stomp_broker_factory):
    broker = stomp_broker_factory("stompkit", websocket=True)
    url = urlsplit(broker.ws_url)
    connection = stomp.WSStompConnection([(url.hostname, url.port)])
    connection.set_listener("page", page := Page())
    connection.connect(wait=True)
    connection.subscribe(orders := broker.queue("orders"), id="1")
    broker.client().send(orders, "one pizza")
    assert page.orders.get(timeout=5) == "one pizza"
    connection.disconnect()
