"""A broker in memory, for tests of what talks to one: no sockets, no threads, no waiting.

:class:`MemoryBroker` is the real broker, on a clock that moves only when it is told to; its
clients speak to it through the real protocol, over streams that a test can fill up, drain, half
close and cut::

    broker = MemoryBroker()
    producer, consumer = broker.client(), broker.client("1.1")
    consumer.subscribe("/queue/a", ack="client")
    producer.publish("/queue/a", b"hello", content_type="text/plain")
    [message] = consumer.take("MESSAGE")
    consumer.ack(message)
    assert message.body == b"hello"

Everything has happened when a call returns, except what waits for a time: that happens in
``broker.clock.advance(seconds)``.

A program on Twisted is tested as it is, on the same clock, over a :class:`MemoryNetwork`::

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
