"""The client against brokers in separate processes, over TCP, that are killed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime

from stompkit.client import BufferLimits, Client, Message, ReconnectPolicy
from stompkit.testing import LaunchConfig, RunningBroker, launch

pytest.importorskip("pytest_twisted")

DEADLINE_S = 60.0
COUNT = 5_000
#: Maximum number of unconfirmed messages; the broker cannot have all before it is killed.
UNCONFIRMED = 200
QUEUE = "/queue/a"
QUICK = ReconnectPolicy(max_s=0.5)


Brokers = list[RunningBroker]


def in_the_reactor(
    scenario: Callable[[Brokers], Coroutine[Deferred[Any], Any, None]],
) -> Callable[[Brokers], Deferred[None]]:
    """Make a test of a coroutine; pytest-twisted waits for the returned Deferred."""

    @wraps(scenario)
    def test(brokers: Brokers) -> Deferred[None]:
        from twisted.internet import reactor

        clock = cast("IReactorTime", reactor)
        return Deferred.fromCoroutine(scenario(brokers)).addTimeout(DEADLINE_S, clock)

    return test


@pytest.fixture
def brokers() -> Iterator[list[RunningBroker]]:
    """Two brokers."""
    running = [launch(LaunchConfig(name="stompkit")) for _ in range(2)]
    yield running
    for broker in running:
        broker.stop()
        assert "Traceback" not in broker.log


def address(broker: RunningBroker) -> str:
    return f"{broker.host}:{broker.port}"


class Collector:
    """A handler that fires a Deferred when enough messages have arrived."""

    def __init__(self, enough: Callable[[list[bytes]], bool]) -> None:
        """Start empty."""
        self.bodies: list[bytes] = []
        self.done: Deferred[None] = Deferred()
        self._enough = enough

    def __call__(self, message: Message) -> None:
        """Take a message."""
        self.bodies.append(message.body)
        if self._enough(self.bodies) and not self.done.called:
            self.done.callback(None)


@in_the_reactor
async def test_what_a_killed_broker_has_not_confirmed_goes_to_the_next(brokers: Brokers) -> None:
    first, second = brokers
    client = Client(
        [address(first), address(second)],
        reconnect=QUICK,
        buffers=BufferLimits(send_messages=UNCONFIRMED),
    )
    await client.connect()
    confirmed: list[int] = []
    killed_at: list[int] = []

    def note(_: None, number: int) -> None:
        confirmed.append(number)
        if len(confirmed) == COUNT // 10:
            first.kill()
            killed_at.append(len(confirmed))

    sent = [
        client.send(QUEUE, b"%d" % number, wait=True).addCallback(note, number)
        for number in range(COUNT)
    ]
    outcomes = await DeferredList(sent)
    assert all(success for success, _ in outcomes)
    assert sorted(confirmed) == list(range(COUNT))
    await client.disconnect()

    collector = Collector(lambda bodies: bodies[-1] == b"%d" % (COUNT - 1))
    reader = Client([address(second)])
    await reader.connect()
    await reader.subscribe(QUEUE, collector)
    await collector.done
    await reader.disconnect()
    # The second broker has, in order, all messages that the first has not confirmed.
    numbers = [int(body) for body in collector.bodies]
    assert killed_at[0] <= numbers[0] <= killed_at[0] + UNCONFIRMED
    assert numbers == list(range(numbers[0], COUNT))
    assert set(range(numbers[0])) <= set(confirmed)


@in_the_reactor
async def test_a_consumer_goes_on_with_the_second_broker(brokers: Brokers) -> None:
    first, second = brokers
    lost: list[Exception] = []
    consumer = Client(
        [address(first), address(second)], reconnect=QUICK, on_disconnected=lost.append
    )
    collector = Collector(lambda bodies: len(bodies) == 2)
    await consumer.connect()
    await consumer.subscribe(QUEUE, collector)
    for broker in brokers:
        producer = Client([address(broker)], heart_beat_ms=(0, 0))
        await producer.connect()
        await producer.send(QUEUE, address(broker).encode())
        await producer.disconnect()
        first.kill()
    await collector.done
    assert collector.bodies == [address(first).encode(), address(second).encode()]
    assert len(lost) == 1
    await consumer.disconnect()


@in_the_reactor
async def test_a_host_that_does_not_answer_is_passed_over(brokers: Brokers) -> None:
    first, second = brokers
    first.stop()
    client = Client([f"tcp:{first.host}:{first.port}", f"tcp:{second.host}:{second.port}"])
    await client.connect()
    message = b"x" * 1_000_000
    subscription = await client.subscribe(QUEUE)
    await client.send(QUEUE, message)
    assert (await subscription.get()).body == message
    await client.disconnect()


@in_the_reactor
async def test_a_consumer_that_holds_back_gets_everything(brokers: Brokers) -> None:
    consumer = Client([address(brokers[0])], buffers=BufferLimits(queue_messages=10))
    producer = Client([address(brokers[0])])
    await consumer.connect()
    await producer.connect()
    subscription = await consumer.subscribe("/topic/a", ack="auto")
    for number in range(COUNT):
        await producer.drain()
        producer.send("/topic/a", b"%d" % number)
    for number in range(COUNT):
        assert (await subscription.get()).body == b"%d" % number
    await consumer.disconnect()
    await producer.disconnect()
