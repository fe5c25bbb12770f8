"""Helpers for tests of destinations: creating brokers, and common actions of clients."""

from __future__ import annotations

from typing import Protocol

from stompkit.frames import Frame
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.queues.upkeep import Outcome, Selection, Sweep, drop
from stompkit.testing.memory import MemoryBroker, MemoryClient

__all__ = ["MakeBroker", "end", "publish_all", "purged", "refusal", "stored", "take_one"]


class MakeBroker(Protocol):
    """Makes a broker; the type of the fixture ``broker_with``."""

    def __call__(self, **settings: object) -> MemoryBroker:
        """Make a broker with settings of :class:`BrokerConfig`, by their names."""


def publish_all(
    client: MemoryClient, destination: str, bodies: list[bytes], /, **headers: str
) -> None:
    """Send messages with the same headers."""
    for body in bodies:
        client.publish(destination, body, **headers)


def take_one(client: MemoryClient) -> Frame:
    """Return the only new message; fail if there is none, or more than one."""
    [message] = client.take("MESSAGE")
    return message


def refusal(client: MemoryClient) -> str | None:
    """Return the code of the ERROR that a client has received, if any."""
    return None if client.error is None else client.error.headers["stompkit-code"]


def end(client: MemoryClient, way: str) -> None:
    """End a connection by ``disconnect``, an ``error`` of the client's, ``close`` or ``drop``."""
    if way == "disconnect":
        client.send("DISCONNECT")
        client.close()
    elif way == "error":
        client.write(b"nonsense\n\n\0")
        client.close()
    else:
        getattr(client, way)()


def purged(broker: MemoryBroker, destination: str) -> int:
    """Delete the messages of a queue that no consumer has, as an operator; return their number."""
    queue = broker.destinations[destination]
    assert isinstance(queue, Queue)
    outcomes: list[Outcome] = []
    Sweep(queue, Selection(), drop, outcomes.append).start()
    while not outcomes:
        broker.clock.advance(0.0)
    return outcomes[0].done


def stored(broker: MemoryBroker, destination: str) -> list[bytes]:
    """Return the messages that a browser sees in a queue."""
    client = broker.client()
    client.subscribe(destination, id="browser", browser="true")
    *messages, end = client.take("MESSAGE")
    assert end.headers["browser"] == "end"
    client.close()
    return [message.body for message in messages]
