"""A standby takes over from a broker that is killed, without loss of confirmed messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThread

from stompkit.client import Client, Message, ReconnectPolicy
from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.ports import free_ports

pytest.importorskip("pytest_twisted")

DEADLINE_S = 120.0
QUEUE = "/queue/orders"
COUNT = 6_000
#: Numbers of confirmed messages after which the active broker is killed.
KILLED_AFTER = (1_000, 3_000)
QUICK = ReconnectPolicy(max_s=0.3)


@pytest.fixture
def ports() -> Iterator[list[int]]:
    """A port for each broker."""
    with free_ports(len(KILLED_AFTER) + 1) as ports:
        yield ports


def start(port: int, directory: Path, data: Path) -> RunningBroker:
    """Launch a broker; return when it answers, which a standby does after its takeover."""
    return launch(
        LaunchConfig(
            port=port,
            directory=directory,
            arguments=("--data", str(data)),
            start_timeout_s=DEADLINE_S,
        )
    )


def test_nothing_confirmed_is_lost_where_a_standby_takes_over(
    tmp_path: Path, ports: list[int]
) -> Deferred[None]:
    from twisted.internet import reactor

    scenario = Deferred.fromCoroutine(_take_over(tmp_path, ports))
    return scenario.addTimeout(DEADLINE_S, cast("IReactorTime", reactor))


async def _take_over(tmp_path: Path, ports: list[int]) -> None:
    data = tmp_path / "data"
    running = [start(ports[0], tmp_path / "0", data)]
    # All the others wait for the lock on the data from now on.
    standbys = [
        deferToThread(start, port, tmp_path / str(number), data)
        for number, port in enumerate(ports[1:], 1)
    ]
    for standby in standbys:
        standby.addCallback(running.append)
    hosts = [f"127.0.0.1:{port}" for port in ports]
    confirmed: list[int] = []
    received: list[int] = []
    complete: Deferred[None] = Deferred()
    killed: list[RunningBroker] = []

    def note(_: None, number: int) -> None:
        confirmed.append(number)
        due = sum(len(confirmed) >= each for each in KILLED_AFTER)
        # Clients may be connected to a standby before its launcher has noticed the takeover.
        if len(killed) < min(due, len(running)):
            killed.append(running[len(killed)])
            killed[-1].kill()

    async def take(message: Message) -> None:
        number = int(message.body)
        received.append(number)
        if len(set(received)) == COUNT and not complete.called:
            complete.callback(None)

    try:
        producer = Client(hosts, reconnect=QUICK)
        consumer = Client(hosts, reconnect=QUICK)
        await producer.connect()
        await consumer.connect()
        await consumer.subscribe(QUEUE, take)
        sent = [
            producer.send(QUEUE, b"%d" % number, wait=True).addCallback(note, number)
            for number in range(COUNT)
        ]
        outcomes = await DeferredList(sent)
        assert all(success for success, _ in outcomes)
        await complete
        assert set(received) == set(range(COUNT))
        await DeferredList(standbys, consumeErrors=True)
        assert len(running) == len(ports), "a broker was killed and nobody has taken over"
        await producer.disconnect()
        await consumer.disconnect()
    finally:
        for broker in running:
            broker.stop()
    await DeferredList(standbys, consumeErrors=True)
    for broker in running:
        assert "Traceback" not in broker.log
