"""Fuzzing over the network: real processes, and faults that the fuzzer has to find."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuzz.network import Found, Victim, main, play
from stompkit.testing import LaunchConfig, RunningBroker, given, launch
from stompkit.testing.proxy import Proxy


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker that all tests here use."""
    with launch(LaunchConfig()) as running:
        yield running


def test_a_broker_bears_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--rounds", "3", "--seconds", "600"]) == 0
    assert capsys.readouterr().out.startswith("3 rounds of seed 3, ")


def test_a_broker_that_runs_already_bears_it(broker: RunningBroker) -> None:
    mq = f"{broker.host}:{broker.port}"
    assert main(["--mq", mq, "--seed", "4", "--rounds", "1", "--seconds", "600"]) == 0


def test_the_same_round_has_the_same_connections(broker: RunningBroker) -> None:
    with Victim(broker, 5) as victim:
        assert play(broker, victim, 5, 7) == play(broker, victim, 5, 7)
        victim.disconnect()


def test_a_message_that_is_lost_is_found(broker: RunningBroker) -> None:
    with (
        Proxy(broker.host, broker.port) as proxy,
        Victim(given(proxy.host, proxy.port), 6) as victim,
    ):
        proxy.drop("MESSAGE", times=1)
        victim.send(2)
        with pytest.raises(Found, match="instead of message 0 came"):
            victim.receive(0)
