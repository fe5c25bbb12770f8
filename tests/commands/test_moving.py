"""``stompkit move`` and ``purge`` over STOMP, on a network in memory whose connections are lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from twisted.internet.defer import Deferred

from stompkit._commands.queues.moving import MovedBackError, moving
from stompkit._commands.shared.session import Session
from stompkit.client import Client
from stompkit.frames import Frame
from tests.client.network import Network, Peer, ScriptedEndpoint, failed, result, waits

QUIET_S = 2.0


class MemorySession:
    """The part of a session that these works use."""

    signal = None

    def __init__(self, net: Network, client: Client) -> None:
        """Start with a connected client."""
        self.reactor = net.clock
        self.client = client

    def on_signal(self, function: Callable[[], object]) -> None:
        """Ignore signals."""


def deliver(peer: Peer, subscription: Frame, count: int, **headers: str) -> None:
    for number in range(count):
        peer.message(subscription, b"%d" % number, number, **headers)


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Network:
    """A network whose clock is also that of the work."""
    made = Network()
    monkeypatch.setattr("stompkit._commands.queues.moving.monotonic", made.clock.seconds)
    return made


def begun(net: Network, limit: int | None) -> tuple[ScriptedEndpoint, Deferred[int]]:
    """Return a broker that has delivered as many messages as a work moves, and the work."""
    broker = net.scripted()
    session = cast("Session", MemorySession(net, net.connected(broker)))
    work = moving("/queue/a", "/queue/b", QUIET_S, limit=limit)
    done = Deferred.fromCoroutine(work.all(session))
    net.run()
    [subscription] = broker.peer.take("SUBSCRIBE")
    broker.peer.confirm(subscription)
    deliver(broker.peer, subscription, limit or 1)
    net.run()
    return broker, done


@pytest.mark.parametrize("limit", [1, 5])
def test_a_limit_is_reached_after_a_connection_is_lost_before_the_receipts(
    net: Network, limit: int
) -> None:
    broker, done = begun(net, limit)
    broker.peer.drop()
    net.advance(10)
    assert len(broker.peers) == 2
    # The broker redelivers the messages before it confirms the repeated SEND frames.
    frames = broker.peer.take()
    [subscription] = [each for each in frames if each.command == "SUBSCRIBE"]
    deliver(broker.peer, subscription, limit, redelivered="true")
    net.run()
    broker.peer.confirm(subscription, *[each for each in frames if each.command == "SEND"])
    net.run()
    assert waits(done)
    broker.obliging = True
    broker.peer.confirm(*broker.peer.take("SEND"))
    net.run()
    acknowledged = [each.headers["id"] for each in broker.peer.frames if each.command == "ACK"]
    assert acknowledged == [f"a{number}" for number in range(limit)]
    assert result(done) == 0


def test_no_more_messages_than_the_limit_are_moved(net: Network) -> None:
    broker, done = begun(net, 3)
    [subscription] = [each for each in broker.peer.frames if each.command == "SUBSCRIBE"]
    deliver(broker.peer, subscription, 9)
    net.run()
    sent = broker.peer.take("SEND")
    assert [each.body for each in sent] == [b"0", b"1", b"2"]
    broker.obliging = True
    broker.peer.confirm(*sent)
    net.run()
    assert not broker.peer.take("SEND")
    assert result(done) == 0


def test_a_message_that_comes_back_ends_the_move_when_those_before_it_are_settled(
    net: Network,
) -> None:
    broker, done = begun(net, None)
    [subscription] = [each for each in broker.peer.frames if each.command == "SUBSCRIBE"]
    broker.peer.message(subscription, b"1", 1)
    net.run()
    first, second = broker.peer.take("SEND")
    assert first.headers["stompkit-moved"] == second.headers["stompkit-moved"]
    # The queue has another name, too, so that the first message comes back.
    mark = {"stompkit-moved": first.headers["stompkit-moved"]}
    broker.peer.message(subscription, first.body, 2, **mark)
    broker.peer.message(subscription, b"3", 3)
    net.run()
    assert not broker.peer.take("SEND")
    assert waits(done)
    broker.obliging = True
    broker.peer.confirm(first, second)
    net.run()
    assert "one queue for this broker" in str(failed(done, MovedBackError))
    acknowledged = [each.headers["id"] for each in broker.peer.frames if each.command == "ACK"]
    assert acknowledged == ["a0", "a1"]


def test_a_queue_is_not_empty_while_its_broker_cannot_be_reached(net: Network) -> None:
    broker, done = begun(net, None)
    broker.peer.confirm(*broker.peer.take("SEND"))
    net.run()
    broker.refuses = True
    broker.peer.drop()
    net.advance(10)
    assert waits(done)
    broker.refuses, broker.obliging = False, True
    net.advance(10)
    assert result(done) == 0
