"""Requests without a virtual host apply to the first one, as clients do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing.client import StompClient
from tests.server.admin.asking import DEADLINE_S, Asker

HOSTS = ("first", "second")
QUEUE = "/queue/a"
DEAD = "/dlq/a"
DURABLE = "/durable/office/news"
NAMED = {"activemq.subscriptionName": "news"}

REQUESTS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("publish", {"destination": QUEUE, "body": "x"}),
    ("pause", {"name": QUEUE}),
    ("resume", {"name": QUEUE}),
    ("purge", {"name": QUEUE}),
    ("delete-messages", {"name": QUEUE, "ids": ["none"]}),
    ("move", {"from": QUEUE, "to": "/queue/b"}),
    ("retry", {"name": DEAD}),
    ("delete", {"name": QUEUE}),
    ("durables/hand-over", {"name": DURABLE, "user": None}),
    ("durables/delete", {"name": DURABLE}),
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker with two hosts that have the same destinations."""
    file = tmp_path / "stompkit.toml"
    file.write_text(f"[broker]\nhosts = {json.dumps(HOSTS)}\n")
    config = LaunchConfig(
        admin=True, persistent=True, arguments=("--config", str(file)), vhost=HOSTS[0]
    )
    with launch(config) as running:
        for host in HOSTS:
            with running.client(host=host, client_id="office") as client:
                _fill(client)
        yield running


def _fill(client: StompClient) -> None:
    """Leave a dead letter, a message of a queue and a durable subscription."""
    client.send(QUEUE, "dead", receipt=True)
    client.subscribe(QUEUE, ack="client-individual", receipt=True)
    client.nack(client.receive(DEADLINE_S), headers={"requeue": "false"}, receipt=True)
    client.subscribe("/topic/news", id="news", headers=NAMED, receipt=True)
    client.disconnect()


def _places(ask: Asker, host: str) -> Any:
    found = ask.get("destinations", host=host)["destinations"]
    return {each["name"]: (each["ready"], each["is_paused"]) for each in found}


def test_commands_without_a_host_apply_to_the_first(broker: RunningBroker) -> None:
    ask = Asker(broker.admin_url)
    for command, fields in REQUESTS:
        for host in HOSTS:
            assert ask.post("publish", destination=QUEUE, body="x", host=host).status == 200
        other = _places(ask, HOSTS[1])
        answer = ask.post(command, **fields)
        assert answer.status == 200, (command, answer)
        assert _places(ask, HOSTS[1]) == other
        # With its name, the second host becomes what the first is after the command without one.
        assert ask.post(command, **fields, host=HOSTS[1]).status == 200
        assert _places(ask, HOSTS[1]) == _places(ask, HOSTS[0]), command


def test_queries_with_an_empty_host_show_the_first(broker: RunningBroker) -> None:
    ask = Asker(broker.admin_url)
    assert _places(ask, "") == _places(ask, HOSTS[0])
    assert ask.get("destination", name=DEAD)["host"] == HOSTS[0]
    assert len(ask.get("messages", name=DEAD)["messages"]) == 1
    with broker.client(host=HOSTS[0]) as client:
        client.subscribe(QUEUE, receipt=True)
        for host, count in (("", 1), (HOSTS[0], 1), (HOSTS[1], 0)):
            assert ask.get("subscriptions", host=host)["total"] == count


def test_a_durable_subscription_of_the_first_host_is_handed_over(broker: RunningBroker) -> None:
    ask = Asker(broker.admin_url)
    command = [sys.executable, "-m", "stompkit", "hand-over", DURABLE, "bob", "--yes"]
    done = subprocess.run(
        [*command, "--admin", ask.where], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stderr
    owners = {each["host"]: each["owner"] for each in ask.get("durables")["durables"]}
    assert owners == {HOSTS[0]: "bob", HOSTS[1]: None}
