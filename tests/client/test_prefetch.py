"""A subscription with a prefetch goes on in each mode, on each kind of broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from stompkit.client import AckMode
from stompkit.client.aio import Client
from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.effort import in_matrix
from tests.testing.launched import require

DEADLINE_S = 60.0
#: Timeout of the start of a broker in seconds, on a busy machine.
START_S = 240.0
#: Bodies of two messages exceed a window of 1 MiB.
BODY = b"x" * 700_000
COUNT = 4
MODES: tuple[AckMode, ...] = ("auto", "client", "client-individual")


@contextmanager
def running(name: str) -> Iterator[RunningBroker]:
    """Start a broker, or for ``like NAME`` ours with the quirks of that one."""
    like = name.removeprefix("like ")
    shared = LaunchConfig(start_timeout_s=START_S)
    config = replace(shared, name=require(name)) if like == name else replace(shared, quirks=like)
    with launch(config) as broker:
        yield broker


@pytest.mark.parametrize(
    "name",
    [
        *("stompkit", "like activemq", "like artemis", "like rabbitmq"),
        *map(in_matrix, ("activemq", "artemis", "rabbitmq")),
    ],
)
def test_messages_continue_to_arrive(name: str) -> None:
    with running(name) as broker:
        asyncio.run(asyncio.wait_for(_all_modes(broker), DEADLINE_S))


async def _all_modes(broker: RunningBroker) -> None:
    async with Client(
        broker.url, login=broker.login, passcode=broker.passcode, virtual_host=broker.vhost
    ) as client:
        for ack in MODES:
            for prefetch in (1, 2):
                queue = broker.queue()
                for _ in range(COUNT):
                    await client.send(queue, BODY)
                subscription = await client.subscribe(queue, ack=ack, prefetch=prefetch)
                for _ in range(COUNT):
                    message = await subscription.get()
                    assert message.body == BODY
                    if ack != "auto":
                        await message.ack()
                await subscription.unsubscribe()
