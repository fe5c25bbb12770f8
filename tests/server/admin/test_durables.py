"""Durable subscriptions that operators give to other users, by the API and the commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing.client import BrokerSaidError, StompClient
from tests.server.admin.asking import DEADLINE_S, Asker

PASSCODE = "sesame"
NAME = "/durable/office/news"
NAMED = {"activemq.subscriptionName": "news"}


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """A broker with a store and two users."""
    users = f"memory:ann:{PASSCODE}:bob:{PASSCODE}"
    config = LaunchConfig(
        admin=True, persistent=True, arguments=("--auth", users), login="ann", passcode=PASSCODE
    )
    with launch(config) as running:
        yield running


@contextmanager
def reader(broker: RunningBroker, user: str) -> Iterator[StompClient]:
    """A client that uses the durable subscription."""
    with broker.client(login=user, passcode=PASSCODE, client_id="office") as client:
        client.subscribe("/topic/news", headers=NAMED, ack="client", receipt=True)
        yield client


def command(broker: RunningBroker, *arguments: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "stompkit", *arguments],
        env={**os.environ, "STOMPKIT_ADMIN": broker.admin_url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done
    return done.stdout + done.stderr


def test_a_durable_subscription_is_given_to_another_user(broker: RunningBroker) -> None:
    ask = Asker(broker.admin_url)
    with reader(broker, "ann"):
        assert ask.post("durables/hand-over", name=NAME, user="bob").code == "in-use"
        assert "close its connections first" in command(
            broker, "hand-over", NAME, "bob", "--yes", status=1
        )
    ask.wait_for(NAME, consumers=0)
    ask.post("publish", destination="/topic/news", body="kept")
    with pytest.raises(BrokerSaidError, match="belongs to another user"), reader(broker, "bob"):
        pass
    listed = command(broker, "durables").splitlines()
    assert listed[0].split() == [
        *("name", "topic", "client", "id", "owner", "host", "consumer", "ready"),
    ]
    assert listed[1].split() == [NAME, "/topic/news", "office", "ann", "-", "away", "1"]
    asked = command(broker, "hand-over", NAME, "bob", status=2)
    assert f"Give {NAME} of ann to bob? Say --yes" in asked
    assert command(broker, "hand-over", NAME, "bob", "--yes") == f"{NAME} belongs to bob now\n"
    # The answer came when the store had the change.
    broker.kill()
    broker.restart()
    found = json.loads(command(broker, "durables", "--filter", "bob", "--json"))
    assert [each["owner"] for each in found["durables"]] == ["bob"]
    with pytest.raises(BrokerSaidError, match="belongs to another user"), reader(broker, "ann"):
        pass
    with reader(broker, "bob") as bob:
        assert bob.receive(DEADLINE_S).body == b"kept"


def test_it_can_be_left_to_its_next_user(broker: RunningBroker) -> None:
    ask = Asker(broker.admin_url)
    with reader(broker, "ann"):
        pass
    ask.wait_for(NAME, consumers=0)
    told = command(broker, "hand-over", NAME, "--yes", "--json")
    assert json.loads(told) == {"name": NAME, "owner": None}
    with reader(broker, "bob"):
        [found] = ask.get("durables")["durables"]
        assert found["owner"] == "bob"


def test_what_cannot_be_given_is_refused(broker: RunningBroker) -> None:
    ask = Asker(broker.admin_url)
    with reader(broker, "ann"):
        pass
    ask.wait_for(NAME, consumers=0)
    assert ask.post("durables/hand-over", name="/durable/none/a", user="bob").status == 404
    for user in ("a\nb", "x" * 400):
        answer = ask.post("durables/hand-over", name=NAME, user=user)
        assert (answer.status, answer.code) == (400, "bad-user")
    assert ask.post("durables/hand-over", name=NAME).code == "bad-body"
    assert "no-such-durable" in command(broker, "hand-over", "/durable/none/a", "bob", status=1)
    assert command(broker, "durables", "--filter", "nobody") == "no durable subscriptions\n"
