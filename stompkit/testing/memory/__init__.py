"""A broker in memory, for tests of clients: no sockets, no threads, no waiting.

:class:`MemoryBroker` is the real broker, on a clock that only tests advance. Its clients use the
real protocol, over streams that a test can fill, drain, half close and reset::

    broker = MemoryBroker()
    producer, consumer = broker.client(), broker.client("1.1")
    consumer.subscribe("/queue/a", ack="client")
    producer.publish("/queue/a", b"hello", content_type="text/plain")
    [message] = consumer.take("MESSAGE")
    consumer.ack(message)
    assert message.body == b"hello"

All effects of a call are complete when it returns, except delayed ones: those happen in
``broker.clock.advance(seconds)``.

A Twisted program is tested unchanged, on the same clock, over a :class:`MemoryNetwork`::

    network = MemoryNetwork()
    client = stompkit.client.Client([network.broker()], reactor=network.clock)
    network.wait(client.connect())
    network.wait(client.send("/queue/a", b"hello"))
    network.advance(60)
"""

from stompkit.testing.memory._broker import MemoryBroker
from stompkit.testing.memory._client import MemoryClient
from stompkit.testing.memory._network import MemoryEndpoint, MemoryNetwork
from stompkit.testing.memory._transport import MemoryTransport

__all__ = ["MemoryBroker", "MemoryClient", "MemoryEndpoint", "MemoryNetwork", "MemoryTransport"]
