"""A test with stomp.py, or any other blocking client."""

import queue

import stomp


class Inbox(stomp.ConnectionListener):
    def __init__(self):
        self.messages = queue.Queue()

    def on_message(self, frame):
        self.messages.put(frame.body)


def test_an_order_arrives(stomp_broker):
    orders = stomp_broker.queue("orders")
    connection = stomp.Connection12(
        [(stomp_broker.host, stomp_broker.port)], vhost=stomp_broker.vhost
    )
    connection.set_listener("inbox", inbox := Inbox())
    connection.connect(stomp_broker.login, stomp_broker.passcode, wait=True)
    connection.subscribe(orders, id="1")
    connection.send(orders, "one pizza")
    assert inbox.messages.get(timeout=5) == "one pizza"
    assert stomp_broker.frames.wait_for("SEND", destination=orders).text == "one pizza"
    connection.disconnect()
