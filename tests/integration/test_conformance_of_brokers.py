"""The conformance suite on real brokers finds exactly the known deviations of each.

They are listed in ``conformance/brokers/``, with a reason for each. A broker that shares a busy
machine with other tests has more time for each answer than by default.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stompkit.testing import RunningBroker
from tests.effort import in_matrix, selected
from tests.testing.launched import require

#: The runs mostly wait, so they are concurrent; the first request starts all.
BROKERS = [
    in_matrix("coilmq"),
    in_matrix("rabbitmq"),
    in_matrix("rabbitmq:4"),
    in_matrix("activemq"),
    in_matrix("activemq:6"),
    in_matrix("artemis"),
]
LIMIT_S = 900.0
#: Timeouts of an answer, and of its absence, in seconds. RabbitMQ closes a rejected connection
#: after ten, which is a known delay.
ANSWER_S = "8"
QUIET_S = "1"
#: How lines about cases begin that are not as expected.
WRONG = ("not expected: ", "better than expected: ")

Run = Callable[[str], tuple[int, str]]


def command(broker: RunningBroker) -> list[str]:
    """Return the command that tests a broker against its known deviations."""
    options = {"login": broker.login, "passcode": broker.passcode, "vhost": broker.vhost}
    # Use the version that runs: the installed one may be another than here.
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
    """Yield a function that returns exit status and output of the suite on a broker, by name."""
    folder = tmp_path_factory.mktemp("runs")
    runs: dict[str, subprocess.Popen[bytes]] = {}
    missing: dict[str, BaseException] = {}
    for name in selected(request, "name"):
        try:
            broker = stomp_broker_factory(require(name), frames=False)
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
    # First what is wrong: the middle of a long output is left out of many logs.
    wrong = [each for each in output.splitlines() if each.startswith(WRONG)]
    assert status == 0, "\n".join([*wrong, output])
    assert "expected to deviate" in output, "no deviation was found at all"
