"""The conformance suite on real brokers: it finds what is known of each, and nothing else.

What is known stands in ``conformance/brokers/``, with a reason for each deviation. A broker that
shares a busy machine with other tests has more time for each answer than by default.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stompkit.testing import RunningBroker
from tests.effort import in_matrix, selected

#: The runs mostly wait, so they are made side by side; the first to be asked for starts all.
BROKERS = [
    in_matrix("coilmq"),
    in_matrix("rabbitmq"),
    in_matrix("rabbitmq:4"),
    in_matrix("activemq"),
    in_matrix("activemq:6"),
    in_matrix("artemis"),
]
LIMIT_S = 900.0
#: How long to wait for an answer, and before nothing counts as nothing, in seconds. RabbitMQ closes
#: a rejected connection after ten, which is known as too late.
ANSWER_S = "8"
QUIET_S = "1"

Run = Callable[[str], tuple[int, str]]


def command(broker: RunningBroker) -> list[str]:
    """The command that tests a broker against what is known of it."""
    options = {"login": broker.login, "passcode": broker.passcode, "vhost": broker.vhost}
    # Of the version that really runs: what is installed may be another than here.
    known = f"{broker.name}:{broker.version}" if broker.version else broker.name
    return [
        # Cases mostly wait.
        *(sys.executable, "-m", "stompkit.conformance", "--strict", "--jobs", "4"),
        *("--timeout", ANSWER_S, "--quiet-time", QUIET_S),
        *("--mq", f"{broker.host}:{broker.port}", "--expect", known),
        *(f"--{name}={value}" for name, value in options.items() if value),
    ]


def started(arguments: list[str], output: Path) -> subprocess.Popen[bytes]:
    """Start a run that writes its output to a file."""
    with output.open("wb") as file:
        return subprocess.Popen(arguments, stdout=file, stderr=subprocess.STDOUT)


@pytest.fixture(scope="module")
def run(
    request: pytest.FixtureRequest,
    stomp_broker_factory: Callable[..., RunningBroker],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Run]:
    """Yield what gives exit status and output of the suite on a broker, by its name."""
    folder = tmp_path_factory.mktemp("runs")
    runs: dict[str, subprocess.Popen[bytes]] = {}
    missing: dict[str, BaseException] = {}
    for name in selected(request, "name"):
        try:
            broker = stomp_broker_factory(name, frames=False)
        except (pytest.skip.Exception, pytest.fail.Exception) as absent:
            missing[name] = absent
        else:
            runs[name] = started(command(broker), folder / f"{name}.txt")

    def result(name: str) -> tuple[int, str]:
        if name in missing:
            raise missing[name]
        return runs[name].wait(LIMIT_S), (folder / f"{name}.txt").read_text()

    yield result
    for process in runs.values():
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", BROKERS)
def test_suite_finds_what_is_known(run: Run, name: str) -> None:
    status, output = run(name)
    assert status == 0, output
    assert "expected to deviate" in output, "no deviation was found at all"
