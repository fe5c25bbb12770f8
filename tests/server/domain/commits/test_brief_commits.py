"""Commits for a single busy client run in the broker's thread; others share those of a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stompkit.server.interfaces import MessageStore, StoreError
from stompkit.server.stores import InlineRunner, LmdbStore, MemoryStore
from stompkit.testing.memory import MemoryBroker
from tests.server.brokers import stored
from tests.server.many_queues import QUEUE


class Runner(InlineRunner):
    """Records which calls may run in the broker's thread."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.calls: list[str] = []

    def run(
        self,
        work: Callable[[], object],
        done: Callable[[object], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """Make a call of any kind."""
        self.calls.append("any")
        super().run(work, done, failed)

    def run_brief(
        self,
        work: Callable[[], object],
        done: Callable[[object], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """Make a brief call."""
        self.calls.append("brief")
        super().run(work, done, failed)

    def take(self) -> list[str]:
        """Return the calls since the last one."""
        calls, self.calls = self.calls, []
        return calls


@pytest.fixture
def runner() -> Runner:
    return Runner()


@pytest.fixture
def broker(tmp_path: Path, runner: Runner) -> Iterator[MemoryBroker]:
    """A broker whose store commits small batches by one write."""
    broker = MemoryBroker(store=LmdbStore(tmp_path), runner=runner)
    yield broker
    broker.broker.close()


def test_who_sends_alone_is_answered_by_brief_calls(broker: MemoryBroker, runner: Runner) -> None:
    client = broker.client()
    for number in range(3):
        client.publish(QUEUE, b"%d" % number, receipt="r")
    runner.take()
    for number in range(3, 20):
        client.publish(QUEUE, b"%d" % number, receipt="r")
        assert client.take("RECEIPT")
        assert runner.take() == ["brief"]
    assert stored(broker, QUEUE) == [b"%d" % number for number in range(20)]


def test_who_sends_beside_others_shares_commits(broker: MemoryBroker, runner: Runner) -> None:
    clients = [broker.client(), broker.client()]
    for client in clients:
        client.publish(QUEUE, b"", receipt="r")
    runner.take()
    for _ in range(10):
        for client in clients:
            client.publish(QUEUE, b"", receipt="r")
    assert runner.take() == ["any"] * 20


def test_who_sends_while_others_are_served_does_not_have_them_wait(
    broker: MemoryBroker, runner: Runner
) -> None:
    client, other = broker.client(), broker.client()
    for _ in range(5):
        client.publish(QUEUE, b"", receipt="r")
    runner.take()
    for _ in range(10):
        for _ in range(4):
            other.publish("/topic/news", b"")
        client.publish(QUEUE, b"", receipt="r")
    assert runner.take() == ["any"] * 10


def test_what_is_long_goes_to_the_thread(broker: MemoryBroker, runner: Runner) -> None:
    client = broker.client()
    for _ in range(5):
        client.publish(QUEUE, b"", receipt="r")
    runner.take()
    client.publish(QUEUE, bytes(100_000), receipt="r")
    assert runner.take() == ["any"]


def test_a_store_that_knows_nothing_of_that_is_called_as_ever(runner: Runner) -> None:
    store: MessageStore = MemoryStore()
    broker = MemoryBroker(store=store, runner=runner)
    client = broker.client()
    for _ in range(5):
        client.publish(QUEUE, b"", receipt="r")
    assert set(runner.take()) == {"any"}
    broker.broker.close()
