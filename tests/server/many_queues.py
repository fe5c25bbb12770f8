"""Common actions of tests of queues."""

from __future__ import annotations

from stompkit.frames import Frame
from stompkit.testing.memory import MemoryBroker, MemoryClient

__all__ = ["QUEUE", "fill", "left", "numbered", "received"]

QUEUE = "/queue/a"


def numbered(first: int, last: int) -> list[bytes]:
    """Return numbered bodies."""
    return [b"%d" % number for number in range(first, last + 1)]


def fill(broker: MemoryBroker, last: int, queue: str = QUEUE) -> None:
    """Put messages 1 to ``last`` into a queue."""
    producer = broker.client()
    for body in numbered(1, last):
        producer.publish(queue, body)
    producer.close()


def received(client: MemoryClient) -> dict[bytes, Frame]:
    """Return the new messages by their bodies."""
    return {message.body: message for message in client.take("MESSAGE")}


def left(broker: MemoryBroker, queue: str = QUEUE) -> list[bytes]:
    """Remove and return the undelivered messages of a queue, which must have no subscribers."""
    for connection in list(broker.broker.connections):
        for subscription in connection.subscriptions.values():
            assert queue not in {home.name for home in subscription.homes}, "somebody else reads it"
    client = broker.client()
    client.subscribe(queue)
    bodies = client.bodies()
    client.close()
    return bodies
