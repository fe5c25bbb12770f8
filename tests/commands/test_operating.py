"""The commands that change a broker over its admin interface, on a real one."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from uuid import uuid4

import pytest

from stompkit.testing import RunningBroker
from stompkit.testing.client import BrokerSaidError, StompClient
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.plugin import BrokerFactory
from tests.commands.test_messages import LONG_S, Commands


@pytest.fixture(scope="module")
def broker(stomp_broker_factory: BrokerFactory) -> Iterator[RunningBroker]:
    """A broker with an admin interface."""
    with stomp_broker_factory("stompkit", admin=True, frames=False) as broker:
        yield broker


@pytest.fixture
def commands(broker: RunningBroker) -> Commands:
    """Commands that are configured for it by their environment."""
    made = Commands(broker)
    made.environment["STOMPKIT_ADMIN"] = broker.admin_url
    return made


@pytest.fixture
def queue() -> str:
    """A unique name."""
    return f"/queue/{uuid4().hex}"


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[StompClient]:
    """A client that is connected."""
    with broker.client(login="ann", client_id="office") as client:
        yield client


def test_a_queue_is_paused_and_resumed(commands: Commands, client: StompClient, queue: str) -> None:
    client.send(queue, "a")
    assert commands.run("pause", queue) == f"{queue} paused\n".encode()
    client.subscribe(queue, receipt=True)
    assert json.loads(commands.run("resume", queue, "--json")) == {
        "name": queue,
        "is_paused": False,
    }
    assert client.receive(LONG_S).body == b"a"
    refused = commands.both("pause", f"{queue}-none", status=1)[1]
    assert refused.startswith("stompkit pause: there is no destination")


def test_a_queue_is_drained(commands: Commands, client: StompClient, queue: str) -> None:
    client.send(queue, "a", receipt=True)
    output, told = commands.both("drain", queue, "--timeout", "0.1", status=1)
    assert output == b""
    assert f"warning: {queue} has no consumers" in told
    assert f"{queue} still has 1 message" in told
    waiting = subprocess.Popen(
        [sys.executable, "-m", "stompkit", "drain", queue, f"{queue}-none", "--json"],
        env=commands.environment,
        stdout=subprocess.PIPE,
    )
    client.subscribe(queue, ack="client-individual")
    client.ack(client.receive(LONG_S))
    found, _ = waiting.communicate(timeout=LONG_S)
    assert waiting.returncode == 0
    assert json.loads(found)["left"] == {queue: 0, f"{queue}-none": 0}


def test_a_paused_queue_is_not_drained(commands: Commands, client: StompClient, queue: str) -> None:
    client.send(queue, "a", receipt=True)
    commands.run("pause", queue)
    client.subscribe(queue, receipt=True)
    told = commands.both("drain", queue, "--timeout", "0.1", status=1)[1]
    assert "is paused; `stompkit resume` ends that" in told


def test_a_destination_is_deleted(commands: Commands, client: StompClient, queue: str) -> None:
    client.send(queue, "a", receipt=True)
    told = commands.both("delete", queue, status=2)[1]
    assert told.startswith(f"stompkit delete: Delete {queue} and its 1 message? Say --yes")
    assert commands.run("delete", queue, "--yes") == f"{queue} deleted\n".encode()
    assert "there is no destination" in commands.both("delete", queue, "--yes", status=1)[1]
    client.subscribe(queue, receipt=True)
    assert "(in-use)" in commands.both("delete", queue, "--yes", status=1)[1]


def test_a_durable_subscription_is_deleted(commands: Commands, broker: RunningBroker) -> None:
    with broker.client(client_id="reader") as reader:
        headers = {"durable": "true", "auto-delete": "false"}
        reader.subscribe("/topic/news", headers=headers, receipt=True)
    [found] = json.loads(commands.run("queues", "--kind", "durable", "--json"))["destinations"]
    name = found["name"]

    def is_deleted() -> bool:
        # The broker may not have noticed the end of the reader's connection yet.
        done = subprocess.run(
            [sys.executable, "-m", "stompkit", "delete", name, "--yes", "--json"],
            env=commands.environment,
            capture_output=True,
            check=False,
        )
        return done.returncode == 0

    assert wait_until(is_deleted, LONG_S)


def test_connections_are_listed_and_closed(
    commands: Commands, client: StompClient, broker: RunningBroker, queue: str
) -> None:
    client.subscribe(queue, receipt=True)
    output = commands.run("connections", "--filter", "office").decode()
    head, line = output.splitlines()
    assert head.split() == (
        "id address user client id host protocol subscriptions in flight since".split()
    )
    [found] = json.loads(commands.run("connections", "--filter", "office", "--json"))["connections"]
    assert line.split()[:2] == [found["id"], found["address"]]
    assert found["address"].startswith("127.0.0.1:")
    assert (found["client_id"], found["subscriptions"]) == ("office", 1)
    told = commands.both("close", found["id"], status=2)[1]
    assert f"from {found['address']}, with 1 subscription?" in told
    reason = ["--reason", "maintenance at noon"]
    closed = commands.run("close", found["id"], *reason, "--yes")
    assert closed == f"connection {found['id']} closed\n".encode()
    with pytest.raises(BrokerSaidError, match="closed by an operator: maintenance at noon"):
        client.receive(LONG_S)
    assert "there is no connection" in commands.both("close", "none", "--yes", status=1)[1]
    assert commands.run("connections", "--filter", "nobody") == b"no connections\n"


@pytest.mark.parametrize("command", [["failover"], ["failover", "--show"], ["drain", "/queue/a"]])
def test_a_command_with_a_time_limit_does_not_wait_for_a_broker_that_hangs(
    commands: Commands, command: list[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        admin = f"127.0.0.1:{deaf.getsockname()[1]}"
        said = commands.both(*command, "--timeout", "0.1", "--admin", admin, status=1)[1]
    name = command[0]
    assert said == f"stompkit {name}: the broker at {admin} does not answer in time\n"
