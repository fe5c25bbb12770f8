"""What the client promises, on the brokers that people run and on ours with their quirks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from itertools import count
from typing import Any, Final, cast

import pytest

from stompkit.client import AckMode, ReconnectPolicy
from stompkit.client.aio import Client, Message
from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.effort import in_matrix
from tests.testing.launched import require

DEADLINE_S: Final = 360.0
#: Timeout of the start of a broker in seconds, on a busy machine.
START_S: Final = 240.0
#: Time in seconds in which nothing more may arrive.
QUIET_S: Final = 1.0
LIKE: Final = "like "
MODES: Final[tuple[AckMode, ...]] = ("auto", "client", "client-individual")
QUICK: Final = ReconnectPolicy(initial_s=0.05, max_s=0.5)

NUMBERS: Final = count()
#: Name of a durable subscription.
NAME: Final = "on-brokers"
#: Headers of a durable subscription on each broker; ours knows those of the others.
DURABLE: Final = {
    "activemq": {"activemq.subscriptionName": NAME},
    "artemis": {"durable-subscription-name": NAME},
    "rabbitmq": {"durable": "true", "auto-delete": "false", "id": NAME},
}

Scenario = Callable[[RunningBroker], Coroutine[Any, Any, None]]


@pytest.fixture(
    scope="module",
    params=[
        *("stompkit", "like activemq", "like artemis", "like rabbitmq"),
        *map(in_matrix, ("activemq", "activemq:6", "artemis", "rabbitmq", "rabbitmq:4")),
    ],
)
def broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """A broker, or for ``like NAME`` ours with the quirks of that one."""
    name: str = request.param
    config = LaunchConfig(start_timeout_s=START_S, persistent=True)
    if name.startswith(LIKE):
        config = replace(config, quirks=name.removeprefix(LIKE))
    else:
        config = replace(config, name=require(name))
    with launch(config) as running:
        yield running


def on_a_loop(scenario: Scenario) -> Callable[[RunningBroker], None]:
    """Make a test of a coroutine function."""

    @wraps(scenario)
    def test(broker: RunningBroker) -> None:
        asyncio.run(asyncio.wait_for(scenario(broker), DEADLINE_S))

    return test


def new_queue(broker: RunningBroker) -> str:
    """Return the name of an unused queue."""
    return broker.queue(f"on-brokers-{next(NUMBERS)}")


def client_of(broker: RunningBroker, **settings: Any) -> Client:
    """Return a client that logs in."""
    given = {"login": broker.login, "passcode": broker.passcode, "virtual_host": broker.vhost}
    hosts = settings.pop("hosts", broker.url)
    return Client(hosts, reconnect=QUICK, **given | settings)


async def left(broker: RunningBroker, queue: str, least: int) -> list[bytes]:
    """Return the bodies of the messages in a queue; wait for *least*, and for others a while."""
    bodies: list[bytes] = []
    async with client_of(broker) as client:
        subscription = await client.subscribe(queue)
        while True:
            try:
                limit_s = DEADLINE_S if len(bodies) < least else QUIET_S
                message = await asyncio.wait_for(subscription.get(), limit_s)
            except TimeoutError:
                return bodies
            bodies.append(message.body)
            await message.ack(receipt=True)


@on_a_loop
async def test_bodies_and_headers_arrive_as_they_were_sent(broker: RunningBroker) -> None:
    headers = {"plain": "text", "colon": "a:b:c", "slash": "C:\\new", "name:d": "x", "ümlaut": "ß"}
    headers["lines"] = "one\ntwo"
    bodies = [b"", b"\0", b"a\0b\0", bytes(range(256)), b"x\n\n", b"\r\n", b"y" * (1 << 20)]
    queue = new_queue(broker)
    async with client_of(broker) as client:
        subscription = await client.subscribe(queue)
        for body in bodies:
            await client.send(queue, body, headers)
        for body in bodies:
            message = await subscription.get()
            assert message.body == body
            assert {name: message.headers.get(name) for name in headers} == headers
            await message.ack()


@on_a_loop
async def test_a_subscription_goes_on_with_any_prefetch(broker: RunningBroker) -> None:
    # Two of them exceed a window of 1 MiB.
    body, many = b"x" * 700_000, 4
    async with client_of(broker) as client:
        for ack in MODES:
            for prefetch in (1, 2):
                queue = new_queue(broker)
                for _ in range(many):
                    await client.send(queue, body)
                subscription = await client.subscribe(queue, ack=ack, prefetch=prefetch)
                for _ in range(many):
                    message = await subscription.get()
                    assert message.body == body
                    if ack != "auto":
                        await message.ack()
                await subscription.unsubscribe()


@on_a_loop
async def test_only_acknowledged_messages_are_gone(broker: RunningBroker) -> None:
    queue = new_queue(broker)
    async with client_of(broker) as client:
        for number in range(6):
            await client.send(queue, b"%d" % number)
        subscription = await client.subscribe(queue, prefetch=4)
        first, second, third = [await subscription.get() for _ in range(3)]
        await third.ack(receipt=True)
        await first.ack(receipt=True)
        assert second.body == b"1"
    assert sorted(await left(broker, queue, 4)) == [b"1", b"3", b"4", b"5"]


@on_a_loop
async def test_a_cumulative_acknowledgement_covers_earlier_messages(broker: RunningBroker) -> None:
    queue = new_queue(broker)
    async with client_of(broker) as client:
        for number in range(5):
            await client.send(queue, b"%d" % number)
        subscription = await client.subscribe(queue, ack="client")
        messages = [await subscription.get() for _ in range(3)]
        await messages[-1].ack(receipt=True)
    assert await left(broker, queue, 2) == [b"3", b"4"]


@on_a_loop
async def test_handlers_take_all_messages_at_once(broker: RunningBroker) -> None:
    queue, many = new_queue(broker), 200
    handled: list[bytes] = []
    done = asyncio.Event()

    async def handle(message: Message) -> None:
        await asyncio.sleep(0)
        handled.append(message.body)
        if len(handled) == many:
            done.set()

    async with client_of(broker) as client:
        await client.subscribe(queue, handle, concurrency=8, prefetch=20)
        bodies = [b"%d" % number for number in range(many)]
        await asyncio.gather(*[client.send(queue, body) for body in bodies])
        await done.wait()
    assert sorted(handled) == sorted(bodies)
    # The client may have been closed before the last handler returned.
    assert set(await left(broker, queue, 0)) <= {handled[-1]}


@on_a_loop
async def test_a_topic_reaches_all_its_subscribers(broker: RunningBroker) -> None:
    topic = broker.topic(f"on-brokers-{next(NUMBERS)}")
    async with client_of(broker) as client, client_of(broker) as other:
        subscriptions = [
            await each.subscribe(topic, ack="auto") for each in (client, client, other)
        ]
        for number in range(3):
            await client.send(topic, b"%d" % number)
        for subscription in subscriptions:
            assert [(await subscription.get()).body for _ in range(3)] == [b"0", b"1", b"2"]


@on_a_loop
async def test_a_transaction_is_whole_or_not_at_all(broker: RunningBroker) -> None:
    queue, other = new_queue(broker), new_queue(broker)
    async with client_of(broker) as client:
        async with client.transaction() as transaction:
            transaction.send(queue, b"1")
            transaction.send(queue, b"2")
        with pytest.raises(ZeroDivisionError):
            async with client.transaction() as transaction:
                transaction.send(other, b"3")
                raise ZeroDivisionError
        await client.send(other, b"4")
    assert await left(broker, queue, 2) == [b"1", b"2"]
    assert await left(broker, other, 1) == [b"4"]


@on_a_loop
async def test_a_request_gets_its_own_reply(broker: RunningBroker) -> None:
    queue = new_queue(broker)
    style = "rabbitmq" if broker.name == "rabbitmq" else "subscribe"
    async with client_of(broker) as server, client_of(broker, reply_style=style) as client:

        async def answer(message: Message) -> None:
            await server.reply(message, message.body.upper())

        await server.subscribe(queue, answer)
        requests = [client.request(queue, b"abc"), client.request(queue, b"def")]
        replies = await asyncio.gather(*requests)
        assert [reply.body for reply in replies] == [b"ABC", b"DEF"]


@on_a_loop
async def test_an_idle_connection_stays(broker: RunningBroker) -> None:
    lost: list[Exception] = []
    async with client_of(broker, heart_beat_ms=(1000, 1000), on_disconnected=lost.append) as client:
        queue = new_queue(broker)
        subscription = await client.subscribe(queue)
        # Several intervals, with the margins of both sides.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(subscription.get(), 6.0)
        assert lost == []
        await client.send(queue, b"x")
        assert (await subscription.get()).body == b"x"


@on_a_loop
async def test_a_durable_subscription_in_use_is_removed(broker: RunningBroker) -> None:
    assert broker.config is not None
    headers = DURABLE.get(broker.config.quirks or broker.name, DURABLE["activemq"])
    topic = broker.topic(f"on-brokers-{next(NUMBERS)}")
    async with client_of(broker, connect_headers={"client-id": NAME}) as client:
        subscription = await client.subscribe(topic, headers=headers)
        await subscription.unsubscribe(headers)
        await client.send(topic, b"x")
        again = await client.subscribe(topic, headers=headers)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(again.get(), QUIET_S)
        await again.unsubscribe(headers)


@on_a_loop
async def test_a_client_id_is_used_again_before_the_broker_notices_a_loss(
    broker: RunningBroker,
) -> None:
    halves: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
    tasks: list[asyncio.Task[None]] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(cast("asyncio.Task[None]", asyncio.current_task()))
        answers, requests = await asyncio.open_connection(broker.host, broker.port)
        halves.append((writer, requests))
        try:
            await asyncio.gather(_copy(reader, requests), _copy(answers, writer))
        finally:
            writer.close()
            requests.close()

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    address = "{}:{}".format(*server.sockets[0].getsockname())
    queue = new_queue(broker)
    async with client_of(broker, connect_headers={"client-id": NAME}, hosts=address) as client:
        await client.send(queue, b"1")
        halves[0][0].transport.abort()  # the broker's half stays
        sent = client.send(queue, b"2")
        while len(halves) < 4 and not sent.done():
            await asyncio.sleep(0.05)
        halves[0][1].transport.abort()
        await sent
    server.close()
    for _, requests in halves:
        requests.transport.abort()
    await asyncio.gather(*tasks)
    assert await left(broker, queue, 2) == [b"1", b"2"]


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)


@on_a_loop
async def test_a_subscription_is_restored_on_a_new_connection(broker: RunningBroker) -> None:
    """Persistent messages outlive the broker, and what was sent before it is back arrives."""
    queue = new_queue(broker)
    async with client_of(broker) as client:
        await client.send(queue, b"1", {"persistent": "true"})
        subscription = await client.subscribe(queue)
        first = await subscription.get()
        broker.kill()
        waiting = asyncio.ensure_future(client.send(queue, b"2", {"persistent": "true"}))
        await asyncio.get_running_loop().run_in_executor(None, broker.restart)
        await waiting
        assert not await first.ack(receipt=True)
        bodies: list[bytes] = []
        while set(bodies) != {b"1", b"2"}:
            message = await subscription.get()
            bodies.append(message.body)
            await message.ack(receipt=True)
    assert await left(broker, queue, 0) == []
