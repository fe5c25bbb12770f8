"""The client and the real broker, in memory: guarantees hold whatever happens."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from stompkit.client import BrokerError, BufferLimits, Client, Message
from stompkit.frames import VERSIONS, Version
from stompkit.server import BrokerConfig
from stompkit.testing.memory import MemoryBroker, MemoryClient, MemoryEndpoint
from tests.client.logs import Log
from tests.client.network import Network, failed, online, result
from tests.effort import drawn

QUEUE = "/queue/a"


def left(broker: MemoryBroker, queue: str = QUEUE) -> list[bytes]:
    """Remove and return the bodies of all messages in a queue."""
    client = broker.client()
    client.subscribe(queue)
    bodies = client.bodies()
    client.close()
    return bodies


def fill(broker: MemoryBroker, count: int) -> None:
    """Put numbered messages into the queue."""
    producer: MemoryClient = broker.client()
    for number in range(count):
        producer.publish(QUEUE, b"%d" % number)
    producer.close()


def firsts(bodies: list[bytes]) -> list[bytes]:
    """Return each body once, in the order of first arrival."""
    return list(dict.fromkeys(bodies))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_is_sent_received_and_acknowledged(net: Network, version: Version) -> None:
    endpoint = net.broker()
    client = net.connected(endpoint, versions=(version,))
    subscription = net.wait(client.subscribe(QUEUE))
    net.wait(client.send(QUEUE, b"\0body\xff", {"x": "a:b"}))
    message = net.wait(subscription.get())
    assert message.body == b"\0body\xff"
    assert message.headers["x"] == "a:b"
    assert net.wait(message.ack(receipt=True)) is True
    net.wait(client.disconnect())
    assert left(endpoint.broker) == []


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_handler_that_fails_sends_the_message_to_the_dead_letters(
    net: Network, log: Log, version: Version
) -> None:
    def handler(message: Message) -> None:
        seen.append(message.redelivered)
        raise RuntimeError

    seen: list[bool] = []
    endpoint = net.broker()
    client = net.connected(endpoint, versions=(version,))
    net.wait(client.subscribe(QUEUE, handler))
    net.wait(client.send(QUEUE, b"poison"))
    net.run()
    assert seen == [False, True, True, True, True, True]
    net.wait(client.disconnect())
    assert left(endpoint.broker, "/dlq/a") == [b"poison"]
    log.take_errors()


def test_unsettled_messages_come_again_after_a_lost_connection(net: Network) -> None:
    endpoint = net.broker()
    fill(endpoint.broker, 3)
    client = net.connected(endpoint)
    subscription = net.wait(client.subscribe(QUEUE))
    first, second = net.wait(subscription.get()), result(subscription.get())
    result(first.ack())
    net.run()
    endpoint.drop()
    net.advance(0.1)
    assert result(second.ack()) is False
    again = [result(subscription.get()) for _ in range(2)]
    assert [message.body for message in again] == [b"1", b"2"]
    assert again[0].redelivered
    for message in again:
        assert net.wait(message.ack(receipt=True)) is True
    net.wait(client.disconnect())
    assert left(endpoint.broker) == []


def test_a_queue_that_is_full_refuses_one_message_and_takes_the_next(net: Network) -> None:
    config = BrokerConfig(max_queue_messages=1)
    endpoint = net.broker(MemoryBroker(config))
    client = net.connected(endpoint)
    sent = [client.send(QUEUE, b"1"), client.send(QUEUE, b"2"), client.send("/queue/b", b"3")]
    net.advance(0.1)
    result(sent[0])
    assert failed(sent[1], BrokerError).headers["stompkit-code"] == "queue-full"
    result(sent[2])
    assert left(endpoint.broker) == [b"1"]
    assert left(endpoint.broker, "/queue/b") == [b"3"]


def test_a_transaction_is_whole_or_not_at_all(net: Network) -> None:
    async def work(*, commit: bool) -> None:
        async with client.transaction() as transaction:
            transaction.send("/queue/b", b"out")
            transaction.ack(message)
            if not commit:
                raise RuntimeError

    endpoint = net.broker()
    fill(endpoint.broker, 1)
    client = net.connected(endpoint)
    message = net.wait(net.wait(client.subscribe(QUEUE)).get())
    failed(Deferred.fromCoroutine(work(commit=False)), RuntimeError)
    net.run()
    assert left(endpoint.broker, "/queue/b") == []
    net.wait(Deferred.fromCoroutine(work(commit=True)))
    net.wait(client.disconnect())
    assert left(endpoint.broker, "/queue/b") == [b"out"]
    assert left(endpoint.broker) == []


def test_a_request_is_answered_on_every_connection(net: Network) -> None:
    async def serve(message: Message) -> None:
        await server.reply(message, b"re: " + message.body)

    endpoint = net.broker()
    client, server = net.connected(endpoint), net.connected(endpoint)
    net.wait(server.subscribe("/queue/service", serve))
    assert net.wait(client.request("/queue/service", b"1")).body == b"re: 1"
    endpoint.drop()
    reply = client.request("/queue/service", b"2")
    net.advance(0.2)
    assert result(reply).body == b"re: 2"
    late = client.request("/queue/nobody", timeout_s=1.0)
    net.advance(1.1)
    failed(late, TimeoutError)


def test_heart_beats_keep_an_idle_connection(net: Network) -> None:
    endpoint = net.broker()
    client = net.connected(endpoint, heart_beat_ms=(1000, 1000))
    net.advance(20)
    assert len(endpoint.lines) == 1
    net.wait(client.send(QUEUE))


def test_a_second_broker_takes_the_load(net: Network) -> None:
    first, second = net.broker(), net.broker()
    client = net.connected(first, second)
    got: list[bytes] = []
    net.wait(client.subscribe(QUEUE, lambda message: got.append(message.body)))
    net.wait(client.send(QUEUE, b"1"))
    first.is_down = True
    first.drop()
    sent = client.send(QUEUE, b"2")
    net.advance(0.2)
    result(sent)
    assert got == [b"1", b"2"]


# Random failures.

STEPS = st.lists(
    st.sampled_from(["send", "send", "send", "carry", "carry", "run", "drop", "fill", "wait"]),
    max_size=60,
)


def act(net: Network, endpoint: MemoryEndpoint, step: str) -> None:
    """Perform one step of the network, which may be a failure."""
    if step == "carry":
        endpoint.carry()
    elif step == "run":
        net.run()
    elif step == "drop":
        endpoint.drop()
    elif step == "wait":
        net.advance(1.0, step_s=0.25)
    elif endpoint.lines:
        transport, _ = endpoint.lines[0]
        (transport.start_taking if transport.is_full else transport.stop_taking)()


def recover(net: Network, endpoint: MemoryEndpoint, client: Client) -> None:
    """Repair the network, and wait until the client has recovered."""
    for transport, _ in endpoint.lines:
        transport.start_taking()
    net.advance(60.0, step_s=0.5)
    assert online(client)


@settings(max_examples=drawn(200), deadline=None)
@given(STEPS)
def test_what_is_sent_with_a_receipt_arrives_once_at_least_and_in_order(steps: list[str]) -> None:
    net = Network()
    endpoint = net.broker()
    client = net.client(endpoint, buffers=BufferLimits(send_messages=5))
    client.connect()
    sent: list[Deferred[None]] = []
    for step in steps:
        if step == "send":
            sent.append(client.send(QUEUE, b"%d" % len(sent), wait=True))
        else:
            act(net, endpoint, step)
    recover(net, endpoint, client)
    for deferred in sent:
        result(deferred)
    arrived = left(endpoint.broker)
    assert firsts(arrived) == [b"%d" % number for number in range(len(sent))]
    losses = steps.count("drop")
    assert all(times <= losses + 1 for times in Counter(arrived).values())


@settings(max_examples=drawn(200), deadline=None)
@given(STEPS, st.sampled_from(["client", "client-individual"]), st.integers(1, 4))
def test_every_message_is_handled_and_none_is_left(
    steps: list[str], ack: str, prefetch: int
) -> None:
    net = Network()
    endpoint = net.broker(MemoryBroker(BrokerConfig(max_deliveries=1_000)))
    client = net.client(endpoint, buffers=BufferLimits(queue_messages=2))
    client.connect()
    handled: list[bytes] = []
    doors: list[Deferred[None]] = []

    def handler(message: Message) -> Deferred[None]:
        handled.append(message.body)
        doors.append(Deferred())
        return doors[-1]

    client.subscribe(QUEUE, handler, ack=ack, prefetch=prefetch)  # type: ignore[arg-type]  # a mode
    producer = endpoint.broker.client()
    count = 0
    for step in steps:
        if step == "send":
            producer.publish(QUEUE, b"%d" % count)
            count += 1
        elif step == "fill":
            while doors:
                doors.pop().callback(None)
        else:
            act(net, endpoint, step)
    for _ in range(count + 1):
        recover(net, endpoint, client)
        while doors:
            doors.pop().callback(None)
            net.run()
    assert set(handled) == {b"%d" % number for number in range(count)}
    net.wait(client.disconnect())
    assert left(endpoint.broker) == []
