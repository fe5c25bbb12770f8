"""The conformance suite on real brokers: it finds what is known of each, and nothing else.

What is known stands in ``conformance/brokers/``, with a reason for each deviation.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from stompkit.testing import RunningBroker

#: The runs mostly wait, so they are made side by side; the first to be asked for starts all.
BROKERS = ("rabbitmq", "activemq", "coilmq")
LIMIT_S = 900.0

Run = Callable[[str], tuple[int, str]]


def command(broker: RunningBroker) -> list[str]:
    """The command that tests a broker against what is known of it."""
    options = {"login": broker.login, "passcode": broker.passcode, "vhost": broker.vhost}
    return [
        # Three runs side by side are enough for a small machine.
        *(sys.executable, "-m", "stompkit.conformance", "--strict", "--jobs", "2"),
        *("--mq", f"{broker.host}:{broker.port}", "--expect", broker.name),
        *(f"--{name}={value}" for name, value in options.items() if value),
    ]


@pytest.fixture(scope="module")
def run(stomp_broker_factory: Callable[..., RunningBroker]) -> Iterator[Run]:
    """Gives exit status and output of the suite on a broker, by its name."""
    processes: dict[str, subprocess.Popen[str]] = {}
    missing: dict[str, BaseException] = {}
    for name in BROKERS:
        try:
            broker = stomp_broker_factory(name, frames=False)
        except (pytest.skip.Exception, pytest.fail.Exception) as absent:
            missing[name] = absent
            continue
        processes[name] = subprocess.Popen(
            command(broker), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def result(name: str) -> tuple[int, str]:
        if name in missing:
            raise missing[name]
        output, _ = processes[name].communicate(timeout=LIMIT_S)
        return processes[name].returncode, output

    yield result
    for process in processes.values():
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", BROKERS)
def test_suite_finds_what_is_known(run: Run, name: str) -> None:
    status, output = run(name)
    assert status == 0, output
    assert "expected to deviate" in output, "no deviation was found at all"
