"""Parts of a broker that an embedding program can replace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, cast

from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock

from stompkit.frames import Frame
from stompkit.server import BrokerConfig, BrokerFactory, Connection, Handler, RefusedError
from stompkit.testing.memory import MemoryClient, MemoryTransport
from tests.server.brokers import refusal, take_one
from tests.server.many_queues import QUEUE

CONNECT = {"accept-version": "1.2", "host": "x"}


def on_send(connection: Connection, frame: Frame) -> None:
    """Accept the same frames as ordinary brokers, except for secret messages."""
    if frame.headers["destination"] == "/queue/secret":
        raise RefusedError("secret", "no-secrets")
    Connection.handlers["SEND"](connection, frame)


class Discreet(Connection):
    """A connection that refuses secret messages."""

    handlers: ClassVar[Mapping[str, Handler]] = {**Connection.handlers, "SEND": on_send}


def client_of(factory: BrokerFactory, clock: Clock) -> MemoryClient:
    """Return a client that has logged in."""
    peer = IPv4Address("TCP", "127.0.0.1", 50_000)
    client = MemoryClient(factory.buildProtocol(peer), MemoryTransport(clock, peer))
    client.send("CONNECT", CONNECT)
    return client


def test_what_a_frame_does_can_be_something_else() -> None:
    clock = Clock()
    factory = BrokerFactory(clock=cast("IReactorTime", clock), connection=Discreet)
    client = client_of(factory, clock)
    client.subscribe(QUEUE)
    client.publish(QUEUE, b"x")
    assert take_one(client).body == b"x"
    client.publish("/queue/secret", b"x", receipt="r")
    assert refusal(client) == "no-secrets"
    ordinary = client_of(BrokerFactory(clock=cast("IReactorTime", clock)), clock)
    ordinary.publish("/queue/secret", b"x", receipt="r")
    assert ordinary.take("RECEIPT")


def test_closing_goes_by_a_clock_of_its_own() -> None:
    clock, closing = Clock(), Clock()
    factory = BrokerFactory(
        BrokerConfig(drain_timeout_s=5.0),
        cast("IReactorTime", clock),
        closing_clock=cast("IReactorTime", closing),
    )
    client = client_of(factory, clock)
    client.stop_reading()
    factory.disconnect_all("enough", "enough")
    # An advance of the broker's clock does not shorten the time for reading the last frames.
    clock.advance(100.0)
    assert not client.lost
    closing.advance(5.0)
    clock.advance(0.0)
    assert client.lost


def test_a_reset_can_be_asked_of_the_factory() -> None:
    clock = Clock()
    factory = BrokerFactory(clock=cast("IReactorTime", clock))
    client = client_of(factory, clock)
    client.publish(QUEUE, b"x")
    told: list[object] = []
    factory.reset(told.append)
    assert told == [None]
    assert refusal(client) == "reset"
    assert factory.broker.hosts[""].destinations == {}
