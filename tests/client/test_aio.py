"""The client for asyncio, on separate event loops, against brokers in separate processes."""

from __future__ import annotations

import asyncio
import logging
import ssl
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from itertools import cycle
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from stompkit.client import (
    BrokerError,
    BufferFullError,
    BufferLimits,
    ClientClosedError,
    ConnectFailedError,
    LoginRefusedError,
    ReconnectPolicy,
    SubscriptionEndedError,
    TransactionLostError,
)
from stompkit.client import aio as package
from stompkit.client.aio import Client, Message
from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.client.logs import Log
from tests.server.certificates import Authority
from tests.server.processes import TWIST, announced, processes

DEADLINE_S = 60.0
QUEUE = "/queue/a"
QUICK = ReconnectPolicy(initial_s=0.01, max_s=0.1)

Scenario = Callable[..., Coroutine[Any, Any, None]]


def on_a_loop(scenario: Scenario) -> Callable[..., None]:
    """Make a test of a coroutine function; asyncio runs in debug mode."""

    @wraps(scenario)
    def test(**fixtures: object) -> None:
        async def bounded() -> None:
            complaints: list[object] = []
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: complaints.append(context))
            await asyncio.wait_for(scenario(**fixtures), DEADLINE_S)
            assert complaints == []

        asyncio.run(bounded(), debug=True)

    return test


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker for all tests; each test uses another queue."""
    with launch(LaunchConfig(name="stompkit")) as running:
        yield running
        assert "Traceback" not in running.log


@pytest.fixture
def pair() -> Iterator[list[RunningBroker]]:
    """Two brokers that a test may kill."""
    with (
        launch(LaunchConfig(name="stompkit")) as first,
        launch(LaunchConfig(name="stompkit")) as second,
    ):
        yield [first, second]


def address(broker: RunningBroker) -> str:
    return f"{broker.host}:{broker.port}"


# Functions.


@on_a_loop
async def test_what_is_sent_is_received_in_its_order(broker: RunningBroker) -> None:
    queue = broker.queue("order")
    async with Client(address(broker)) as client:
        assert client.is_connected
        assert client.version == "1.2"
        assert client.connected_headers["server"].startswith("stompkit/")
        sent = [client.send(queue, b"%d" % number, {"n": str(number)}) for number in range(100)]
        await asyncio.gather(*sent)
        subscription = await client.subscribe(queue, prefetch=10)
        assert (subscription.destination, subscription.ack) == (queue, "client-individual")
        found = []
        async for message in subscription:
            assert message.destination == queue
            assert message.id
            assert not message.redelivered
            is_settled = [message.is_settled, await message.ack(receipt=True), message.is_settled]
            assert is_settled == [False, True, True]
            found.append((message.body, message.headers["n"]))
            if len(found) == 100:
                break
        assert found == [(b"%d" % number, str(number)) for number in range(100)]
        await subscription.unsubscribe()
        await subscription.when_ended()
        with pytest.raises(SubscriptionEndedError):
            await subscription.get()
    assert repr(client) == f"<Client of {address(broker)}: closed>"
    with pytest.raises(ClientClosedError):
        await client.send(queue)


@on_a_loop
async def test_a_handler_may_await_and_what_it_fails_with_is_a_nack(
    broker: RunningBroker, log: Log
) -> None:
    queue = broker.queue("handler")
    seen: list[tuple[bytes, bool]] = []
    third, done = asyncio.Event(), asyncio.Event()

    async def handle(message: Message) -> None:
        await asyncio.sleep(0)
        seen.append((message.body, message.redelivered))
        if len(seen) == 1:
            raise KeyError("the first time")
        if len(seen) == 2:
            # This cancellation is not one of the handler's task; the handler stays in use.
            raise asyncio.CancelledError
        (done if message.body == b"last" else third).set()

    async with Client(address(broker)) as client:
        await client.subscribe(queue, handle, prefetch=1)
        await client.send(queue, b"x")
        await third.wait()
        await client.send(queue, b"last")
        await done.wait()
    assert seen == [(b"x", False), (b"x", True), (b"x", True), (b"last", False)]
    errors = log.take_errors()
    assert "the first time" in errors
    assert "CancelledError: it was cancelled" in errors


@on_a_loop
async def test_a_request_has_its_reply(broker: RunningBroker) -> None:
    queue = broker.queue("request")

    async with Client(address(broker)) as server, Client(address(broker)) as client:

        async def serve(message: Message) -> None:
            await server.reply(message, message.body.upper())

        await server.subscribe(queue, serve)
        replies = await asyncio.gather(*[client.request(queue, b"hello") for _ in range(5)])
        assert [each.body for each in replies] == [b"HELLO"] * 5
        with pytest.raises(TimeoutError):
            await client.request(broker.queue("nobody"), timeout_s=0.05)
        subscription = await server.subscribe(broker.queue("plain"), ack="auto")
        await client.send(broker.queue("plain"), b"")
        with pytest.raises(ValueError, match="asks for no reply"):
            client.reply(await subscription.get())


@on_a_loop
async def test_a_transaction_is_done_as_a_whole_or_not_at_all(broker: RunningBroker) -> None:
    queue, other = broker.queue("all"), broker.queue("other")
    async with Client(address(broker)) as client:
        await client.send(queue, b"first")
        subscription = await client.subscribe(queue)
        message = await subscription.get()
        with pytest.raises(RuntimeError, match="on purpose"):
            async with client.transaction() as transaction:
                transaction.send(other, b"never")
                transaction.ack(message)
                raise RuntimeError("on purpose")
        is_settled = [message.is_settled]
        async with client.transaction() as transaction:
            assert transaction.name
            transaction.send(other, b"one")
            await client.send(other, b"two", transaction=transaction)
            transaction.ack(message)
        assert [*is_settled, message.is_settled] == [False, True]
        results = await client.subscribe(other, ack="auto")
        assert [(await results.get()).body for _ in range(2)] == [b"one", b"two"]
        assert results.take(10, 1_000) == []


@on_a_loop
async def test_much_is_taken_and_acknowledged_at_once(broker: RunningBroker) -> None:
    queue = broker.queue("many")
    async with Client(address(broker)) as client:
        subscription = await client.subscribe(queue)
        await asyncio.gather(*[client.send(queue, b"%d" % number) for number in range(50)])
        messages: list[Message] = [await subscription.get()]
        while len(messages) < 50:
            messages += subscription.take(100, 10_000) or [await subscription.get()]
        assert subscription.ack_all(messages) == 50
        assert subscription.ack_all(messages) == 0


@on_a_loop
async def test_who_gives_up_waiting_loses_no_message(broker: RunningBroker) -> None:
    queue = broker.queue("patience")
    async with Client(address(broker)) as client:
        subscription = await client.subscribe(queue, ack="auto")
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(subscription.get(), 0.01)
        await client.send(queue, b"x")
        assert (await subscription.get()).body == b"x"


@on_a_loop
async def test_a_message_that_comes_as_its_reader_is_cancelled_is_the_next_one_s(
    broker: RunningBroker,
) -> None:
    queue = broker.queue("cancel")
    async with Client(address(broker)) as sender, Client(address(broker)) as client:
        subscription = await client.subscribe(queue, ack="auto")
        sent = [asyncio.ensure_future(sender.send(queue, b"%d" % number)) for number in range(300)]
        found = []
        for turns in cycle(range(6)):
            reader = asyncio.create_task(subscription.get())
            for _ in range(turns):
                await asyncio.sleep(0)
            reader.cancel()
            with suppress(asyncio.CancelledError):
                found.append((await reader).body)
            if all(each.done() for each in sent):
                break
        while len(found) < 300:
            found.append((await subscription.get()).body)
        assert found == [b"%d" % number for number in range(300)]


@on_a_loop
async def test_tasks_cancelled_as_their_transactions_begin_leave_none_open(
    broker: RunningBroker,
) -> None:
    """A broker refuses more than a hundred of one connection."""
    tasks: list[asyncio.Task[None]] = []
    connections: list[dict[str, str]] = []

    def connected(headers: dict[str, str]) -> None:
        connections.append(headers)
        for task in tasks:
            task.cancel()

    async def work() -> None:
        async with client.transaction():
            raise AssertionError("it was cancelled before")

    client = Client(address(broker), on_connected=connected)
    tasks += [asyncio.create_task(work()) for _ in range(60)]
    await asyncio.sleep(0)
    await client.connect()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    async with client:
        others = [client.transaction() for _ in range(60)]
        for other in others:
            await other.begin()
        await others[-1].commit()
        assert len(connections) == 1


@on_a_loop
async def test_a_task_cancelled_as_it_subscribes_leaves_no_subscription(
    broker: RunningBroker,
) -> None:
    queue = broker.queue("nobody")

    async def work() -> None:
        subscribed = client.subscribe(queue)
        # The task is cancelled between the completion and its next step.
        subscribed.add_done_callback(lambda _: task.cancel())
        await subscribed

    async with Client(address(broker)) as client:
        task = asyncio.create_task(work())
        await asyncio.wait([task])
        assert task.cancelled()
        subscription = await client.subscribe(queue)
        for number in range(4):
            await client.send(queue, b"%d" % number)
        assert [(await subscription.get()).body for _ in range(4)] == [b"0", b"1", b"2", b"3"]


@on_a_loop
@pytest.mark.parametrize("moment", ["connecting", "connected"])
async def test_a_task_cancelled_as_it_connects_leaves_no_client(
    broker: RunningBroker, moment: str
) -> None:
    async def work() -> None:
        async with client:
            raise AssertionError("it was cancelled before")

    host = "127.0.0.1:1" if moment == "connecting" else address(broker)
    client = Client(host, on_connected=lambda _: task.cancel())
    task = asyncio.create_task(work())
    if moment == "connecting":
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    await client.when_closed()


# Connections.


@on_a_loop
async def test_what_a_killed_broker_has_not_confirmed_goes_to_the_next(
    pair: list[RunningBroker],
) -> None:
    first, second = pair
    lost: list[Exception] = []
    came: list[str] = []

    async def connected(headers: dict[str, str]) -> None:
        await asyncio.sleep(0)
        came.append(headers["version"])

    client = Client(
        [address(first), f"stomp://{address(second)}"],
        reconnect=QUICK,
        buffers=BufferLimits(send_messages=50),
        on_connected=connected,
        on_disconnected=lost.append,
    )
    await client.connect()
    confirmed: set[int] = set()

    async def send(number: int) -> None:
        await client.send(QUEUE, b"%d" % number, wait=True)
        confirmed.add(number)
        if len(confirmed) == 200:
            first.kill()

    await asyncio.gather(*map(send, range(1_000)))
    assert confirmed == set(range(1_000))
    subscription = await client.subscribe(QUEUE)
    numbers = []
    async for message in subscription:
        numbers.append(int(message.body))
        message.ack()
        if numbers[-1] == 999:
            break
    assert numbers == list(range(numbers[0], 1_000))
    assert set(range(numbers[0])) <= confirmed
    assert len(lost) == 1
    await client.disconnect()
    await client.when_closed()
    assert came == ["1.2", "1.2"]


@on_a_loop
async def test_a_transaction_that_is_lost_with_its_broker_says_so(
    pair: list[RunningBroker],
) -> None:
    first, second = pair
    client = Client([address(first), address(second)], reconnect=QUICK)
    await client.connect()
    transaction = client.transaction()
    await transaction.begin()
    transaction.send(QUEUE, b"x")
    first.kill()
    with pytest.raises(TransactionLostError):
        await transaction.commit()
    await client.connect()
    await client.disconnect()


@on_a_loop
async def test_a_broker_that_stands_still_is_left_for_the_next(pair: list[RunningBroker]) -> None:
    first, second = pair
    client = Client([address(first), address(second)], reconnect=QUICK, heart_beat_ms=(100, 100))
    await client.connect()
    subscription = await client.subscribe(QUEUE, ack="auto")
    first.pause()
    async with Client(address(second)) as other:
        await other.send(QUEUE, b"from the second")
        assert (await subscription.get()).body == b"from the second"
    await client.disconnect()
    first.resume()


@on_a_loop
async def test_a_full_buffer_is_told_or_waited_for(broker: RunningBroker) -> None:
    queue = broker.queue("buffer")
    async with Client(address(broker), buffers=BufferLimits(send_messages=2)) as client:
        sent = [client.send(queue, b"%d" % number) for number in range(4)]
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        assert [type(each) for each in outcomes] == [type(None)] * 2 + [BufferFullError] * 2
        for number in range(20):
            await client.drain()
            client.send(queue, b"%d" % number)


@on_a_loop
async def test_what_a_broker_refuses_is_raised(broker: RunningBroker) -> None:
    async with Client(address(broker)) as client:
        with pytest.raises(BrokerError):
            await client.send("/nowhere/at/all", b"")


@on_a_loop
async def test_a_login_that_is_refused_is_raised(log: Log) -> None:
    with launch(LaunchConfig(name="stompkit", login="ann", passcode="right")) as strict:
        client = Client(address(strict), login="ann", passcode="of last year")
        with pytest.raises(LoginRefusedError) as caught:
            await client.connect()
        assert "last year" not in f"{caught.value!r} {client!r}"
        async with Client(address(strict), login="ann", passcode="right"):
            assert "login or passcode is wrong" in log.take_errors()


@on_a_loop
async def test_it_gives_up_when_it_is_told_to(log: Log) -> None:
    client = Client("127.0.0.1:1", reconnect=ReconnectPolicy(max_attempts=2, initial_s=0.01))
    with pytest.raises(ConnectFailedError):
        async with client:
            raise AssertionError("there is nobody")
    assert "giving up: 2 attempts" in log.take_errors()


@on_a_loop
async def test_tls_by_authorities_at_a_path_or_by_a_context(tmp_path: Path, log: Log) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "other").mkdir()
    Authority(tmp_path / "other", "other")
    (tmp_path / "run").mkdir()
    path = tmp_path / "announce"
    endpoint = f"ssl:0:interface=127.0.0.1:certKey={authority.server()}"
    endpoint += f":privateKey={authority.server()}"
    with processes(tmp_path / "run") as start:
        process = start(TWIST, "--endpoint", endpoint, "--announce", str(path))
        [where] = announced(process, path)
        host, port = where["host"], where["port"]
        trusting = ssl.create_default_context(cafile=authority.file)
        for url, context in (
            (f"stomps://{host}:{port}?ca={tmp_path}", None),
            (f"stomps://{host}:{port}?ca={authority.file}", None),
            (f"stomps://{host}:{port}", trusting),
        ):
            async with Client(url, tls=context) as client:
                big = b"x" * 1_000_000
                subscription = await client.subscribe(QUEUE, ack="auto")
                await client.send(QUEUE, big)
                assert (await subscription.get()).body == big
        once = ReconnectPolicy(max_attempts=1)
        for url in (f"stomps://{host}:{port}", f"stomps://{host}:{port}?ca={tmp_path / 'other'}"):
            with pytest.raises(ConnectFailedError, match="certificate verify failed"):
                await Client(url, reconnect=once).connect()
            assert "giving up" in log.take_errors()


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("mq", "neither HOST:PORT"),
        ("tls:mq:61614", "neither HOST:PORT"),
        ("mq:0", "'0' is not a port"),
        ("stomp://ann:secret@mq", "arguments of their own"),
        ("stomps://mq?ca=/does/not/exist", "/does/not/exist: No such file"),
        ([], "one host at least"),
        ([7], "not 7"),
    ],
)
def test_a_host_that_is_none_is_refused(host: Any, words: str) -> None:
    async def make() -> None:
        Client(host)

    with pytest.raises(ValueError, match=words):
        asyncio.run(make())


def test_a_directory_without_certificates_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("no certificate")

    async def make() -> None:
        Client(f"stomps://mq?ca={tmp_path}")

    with pytest.raises(ValueError, match="has no certificates"):
        asyncio.run(make())


def test_a_client_needs_a_loop() -> None:
    with pytest.raises(
        RuntimeError, match="needs a running event loop: create it in a coroutine for asyncio"
    ):
        Client("localhost:61613")


def test_twisted_client_names_this_one_in_an_asyncio_program() -> None:
    """With a reactor on the loop, it can be used there."""
    program = """
import asyncio, sys
from stompkit.client import Client
async def main():
    if sys.argv[1] == "with reactor":
        from twisted.internet import asyncioreactor
        asyncioreactor.install(asyncio.get_running_loop())
    Client(["127.0.0.1:1"])
    print("made")
asyncio.run(main())
"""
    command = [sys.executable, "-c", program]
    made = subprocess.run([*command, "with reactor"], capture_output=True, text=True, check=False)
    assert (made.returncode, made.stdout) == (0, "made\n"), made.stderr
    refused = subprocess.run([*command, "without"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "RuntimeError: stompkit.client.Client needs Twisted's reactor" in refused.stderr
    assert "use stompkit.client.aio.Client" in refused.stderr


# Settings and life cycle.


@on_a_loop
async def test_what_it_says_is_in_the_log_of_python(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture, log: Log
) -> None:
    caplog.set_level(logging.INFO, "stompkit.client")
    client = Client(
        ["127.0.0.1:1", address(broker)], reconnect=QUICK, login="ann", passcode="secret"
    )
    await client.connect()
    await client.disconnect()
    [record] = [each for each in caplog.records if each.name == "stompkit.client"]
    assert "no connection to 127.0.0.1:1: " in record.getMessage()
    assert f"; connecting to {address(broker)} in " in record.getMessage()
    assert record.levelno == logging.INFO, "one host of two has not been tried"
    assert "secret" not in caplog.text


@on_a_loop
async def test_a_client_that_reaches_no_host_warns(
    caplog: pytest.LogCaptureFixture, log: Log
) -> None:
    client = Client("127.0.0.1:1", reconnect=replace(QUICK, max_attempts=3))
    with pytest.raises(ConnectFailedError):
        await client.connect()
    [warning] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "no connection to 127.0.0.1:1: " in warning.getMessage()
    log.take_errors()


def test_the_example_runs_and_has_no_reactor(broker: RunningBroker) -> None:
    _, _, rest = (package.__doc__ or "").partition("::\n\n")
    program = rest.partition("\nIt is the client of")[0]
    program = program.replace("stomp://localhost", f"stomp://{address(broker)}")
    ends = "await message.ack()"
    program = dedent(program.replace(ends, f"{ends}\n                break"))
    program += "\nimport sys\nassert 'twisted.internet.reactor' not in sys.modules\n"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "b'one pizza'\n", "")
