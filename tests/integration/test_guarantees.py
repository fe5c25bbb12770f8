"""The guarantees of docs/explanation/guarantees.rst for a broker that ends, is full, or waits."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks._client import Client as Sender
from benchmarks._client import fill
from benchmarks._process import MIB, memory, process_id
from stompkit.frames import Frame
from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing.client import BrokerSaidError, StompClient
from stompkit.testing.launching.polling import wait_until
from tests.effort import effort
from tests.server.processes import LOOPBACK, TWISTD, Client, Start, announced, processes

KILLS = effort(5, 40)
#: Messages of a transaction.
TOGETHER = 5
SETTINGS = """
[store]
path = "{data}"
sync = "{sync}"
max_octets = {octets}

[[destination]]
name = "/queue/memory"
storage = "memory"

[[destination]]
name = "/fanout/both"
children = ["/queue/left", "/queue/right"]
"""
DURABLY = {"durable": "true", "auto-delete": "false", "x-queue-name": "news"}


def started(directory: Path, sync: str = "always", octets: int = 1 << 30) -> RunningBroker:
    """Launch a broker on the data in ``directory``."""
    directory.mkdir(exist_ok=True)
    settings = directory / "settings.toml"
    settings.write_text(SETTINGS.format(data=directory / "data", sync=sync, octets=octets))
    return launch(LaunchConfig(directory=directory, arguments=("--config", str(settings))))


def drained(client: StompClient, queue: str) -> list[Frame]:
    """Return all messages of a queue without consumers; a last one is sent to mark the end."""
    client.send(queue, b"end", receipt=True)
    client.subscribe(queue, id=queue)
    messages = []
    while (message := client.receive()).body != b"end":
        messages.append(message)
    client.unsubscribe(queue)
    return messages


@pytest.mark.parametrize("sync", ["always", "interval:60000", "never"])
def test_a_process_that_is_killed_loses_nothing_confirmed_whatever_sync_is(
    tmp_path: Path, sync: str
) -> None:
    with started(tmp_path, sync) as broker:
        with broker.client() as client:
            client.subscribe("/topic/news", id="n", headers=DURABLY, receipt=True)
            client.disconnect()
        with broker.client() as client:
            for number in range(20):
                client.send("/queue/a", b"%d" % number, receipt=True)
                client.send("/topic/news", b"%d" % number, receipt=True)
            client.subscribe("/queue/a", ack="client-individual")
            for message in client.receive_many(20)[:10]:
                client.ack(message, receipt=True)
            broker.kill()
    with started(tmp_path, sync) as broker, broker.client() as client:
        bodies = [message.body for message in drained(client, "/queue/a")]
        assert bodies == [b"%d" % number for number in range(10, 20)]
        client.subscribe("/topic/news", id="n", headers=DURABLY)
        bodies = [message.body for message in client.receive_many(20)]
        assert bodies == [b"%d" % number for number in range(20)]


def test_what_is_not_persistent_is_gone_with_the_process(tmp_path: Path) -> None:
    with started(tmp_path) as broker:
        with broker.client() as client:
            client.send("/queue/memory", b"gone", receipt=True)
            client.begin("t")
            client.send("/queue/a", b"open", transaction="t", receipt=True)
            client.send("/queue/a", b"kept", receipt=True)
        broker.kill()
    with started(tmp_path) as broker, broker.client() as client:
        assert drained(client, "/queue/memory") == []
        assert [message.body for message in drained(client, "/queue/a")] == [b"kept"]


def test_a_delivery_that_was_followed_by_a_commit_is_known_after_a_crash(tmp_path: Path) -> None:
    with started(tmp_path) as broker:
        with broker.client() as client:
            client.send("/queue/a", b"delivered", receipt=True)
            client.subscribe("/queue/a", ack="client")
            first = client.receive()
            assert first.body == b"delivered"
            # Deliveries are recorded with the next commit.
            client.send("/queue/b", b"another", receipt=True)
            broker.kill()
    with started(tmp_path) as broker, broker.client() as client:
        [message] = drained(client, "/queue/a")
        assert message.headers["redelivered"] == "true"
        assert message.headers["message-id"] == first.headers["message-id"]


def test_a_transaction_is_in_the_store_whole_or_not_at_all_whenever_the_broker_is_killed(
    tmp_path: Path,
) -> None:
    chance, first = random.Random(1), 0
    for _ in range(KILLS):
        with started(tmp_path) as broker:
            with broker.client() as client:
                end = time.monotonic() + chance.uniform(0.02, 0.2)
                while time.monotonic() < end:
                    client.begin(name := f"t{first}")
                    for _ in range(TOGETHER):
                        body = b"%d" % first
                        client.send("/queue/a", body, transaction=name, receipt=False)
                    client.commit(name, receipt=False)
                    client.send("/fanout/both", b"%d" % first, receipt=False)
                    first += 1
                broker.kill()
    with started(tmp_path) as broker, broker.client() as client:
        counts = Counter(int(message.body) for message in drained(client, "/queue/a"))
        left = [message.body for message in drained(client, "/queue/left")]
        right = [message.body for message in drained(client, "/queue/right")]
    assert counts, "hardly anything was committed"
    assert set(counts.values()) == {TOGETHER}
    assert left == right, "a fan-out message is in one of its queues only"


def test_a_message_that_is_moved_in_a_transaction_is_in_one_queue_whenever_the_broker_is_killed(
    tmp_path: Path,
) -> None:
    chance, count = random.Random(2), 2_000
    with started(tmp_path) as broker, broker.client() as client:
        for number in range(count - 1):
            client.send("/queue/from", b"%d" % number, receipt=False)
        client.send("/queue/from", b"%d" % (count - 1), receipt=True)
    for _ in range(KILLS):
        with started(tmp_path) as broker:
            with broker.client() as client:
                client.subscribe("/queue/from", ack="client-individual")
                end = time.monotonic() + chance.uniform(0.02, 0.1)
                while time.monotonic() < end:
                    message = client.receive()
                    client.begin(name := message.headers["ack"])
                    client.ack(message, transaction=name, receipt=False)
                    client.send("/queue/to", message.body, transaction=name, receipt=False)
                    client.commit(name, receipt=False)
                broker.kill()
    with started(tmp_path) as broker, broker.client() as client:
        moved = [int(message.body) for message in drained(client, "/queue/to")]
        rest = [int(message.body) for message in drained(client, "/queue/from")]
    assert moved, "nothing was moved"
    assert sorted(moved + rest) == list(range(count))
    assert rest == sorted(rest), "the order has changed"


def test_a_full_store_refuses_what_it_can_not_keep_and_goes_on_with_all_else(
    tmp_path: Path,
) -> None:
    kept = 0
    with started(tmp_path, octets=1 << 20) as broker:
        with pytest.raises(BrokerSaidError, match="store-full"), broker.client() as client:
            while True:
                client.send("/queue/a", b"%06d" % kept + b"x" * 10_000, receipt=True)
                kept += 1
        with broker.client() as client:
            client.send("/queue/memory", b"in memory", receipt=True)
            client.subscribe("/topic/a", id="t")
            client.send("/topic/a", b"topic", receipt=True)
            assert client.receive().body == b"topic"
            assert [message.body for message in drained(client, "/queue/memory")] == [b"in memory"]
            client.subscribe("/queue/a", id="a", ack="client-individual", prefetch_count=str(kept))
            messages = client.receive_many(kept)
            assert [int(message.body[:6]) for message in messages] == list(range(kept))
            for message in messages:
                client.ack(message, receipt=True)
            client.send("/queue/a", b"room again", receipt=True)
            assert client.receive().body == b"room again"
        assert "Traceback" not in broker.log


def test_a_client_that_is_gone_in_any_way_gives_back_what_it_had(tmp_path: Path) -> None:
    """Each way in turn, with the same messages, which keep their order."""
    with started(tmp_path) as broker, broker.client() as producer:
        for number in range(10):
            producer.send("/queue/a", b"%d" % number, receipt=True)
        for delivery, leave in enumerate(("disconnect", "close", "reset", "error"), 1):
            with broker.client() as client:
                client.subscribe("/queue/a", ack="client-individual")
                messages = client.receive_many(10)
                assert [message.body for message in messages] == [b"%d" % n for n in range(10)]
                assert {message.headers.get("delivery-count", "1") for message in messages} == {
                    str(delivery)
                }
                if leave == "error":
                    with pytest.raises(BrokerSaidError):
                        client.abort("never begun")
                else:
                    getattr(client, leave)()


def test_memory_does_not_grow_with_the_backlog(tmp_path: Path) -> None:
    """Of 40 MiB more in a queue hardly any are in memory; the window has up to 4 MiB."""
    with started(tmp_path) as broker:
        sender = Sender(broker.port).log_in()
        fill(sender, "/queue/a", 5_000, 1_024, 500)
        before, _ = memory(process_id(broker))
        fill(sender, "/queue/a", 40_000, 1_024, 500)
        after, _ = memory(process_id(broker))
        sender.close()
        assert after - before < 10 * MIB
        with broker.client() as client:
            client.subscribe("/queue/a", ack="client", prefetch_count="10")
            assert int(client.receive().body[:8]) == 0


# Standby brokers.


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that starts commands, and ends all that still run."""
    with processes(tmp_path) as start:
        yield start


def test_a_broker_that_is_stopped_keeps_the_lock_and_one_that_is_killed_does_not(
    start: Start, tmp_path: Path
) -> None:
    """A standby takes over only from a process that has ended."""
    arguments = ("--data", str(tmp_path / "data"), "--endpoint", LOOPBACK)
    announces = [tmp_path / name for name in ("first", "second")]
    first = start([*TWISTD, "--pidfile", "1"], *arguments, "--announce", str(announces[0]))
    [where] = announced(first, announces[0])
    second = start([*TWISTD, "--pidfile", "2"], *arguments, "--announce", str(announces[1]))
    second.wait_for("waiting for")
    with Client(where) as client:
        assert client.send("/queue/a", "confirmed").startswith(b"RECEIPT\n")
    first.popen.send_signal(signal.SIGSTOP)
    # A correct standby passes, however short the time is.
    assert not wait_until(lambda: "taking over" in second.log, 1.0)
    assert not announces[1].exists()
    first.popen.send_signal(signal.SIGKILL)
    [where] = announced(second, announces[1])
    with Client(where) as client:
        assert client.subscribe("/queue/a").endswith(b"confirmed")
