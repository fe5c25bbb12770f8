"""The conformance suite on real brokers: it finds what is known of each, and nothing else.

What is known stands in ``conformance/brokers/``, with a reason for each deviation. Cases that
surprise are run once more by themselves: a broker that has to share a busy machine with other tests
answers some of them too late.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from stompkit.conformance.report import Report
from stompkit.conformance.runner import Exit
from stompkit.testing import RunningBroker

#: The runs mostly wait, so they are made side by side; the first to be asked for starts all.
BROKERS = ("rabbitmq", "activemq", "coilmq")
LIMIT_S = 900.0

Run = Callable[[str], tuple[int, str]]


def command(broker: RunningBroker, report: Path) -> list[str]:
    """The command that tests a broker against what is known of it."""
    options = {"login": broker.login, "passcode": broker.passcode, "vhost": broker.vhost}
    return [
        # Three runs side by side are enough for a small machine.
        *(sys.executable, "-m", "stompkit.conformance", "--strict", "--jobs", "2"),
        *("--mq", f"{broker.host}:{broker.port}", "--expect", broker.name),
        *("--json", str(report)),
        *(f"--{name}={value}" for name, value in options.items() if value),
    ]


def started(arguments: list[str], output: Path) -> subprocess.Popen[bytes]:
    """Start a run whose output is added to that file."""
    with output.open("ab") as file:
        return subprocess.Popen(arguments, stdout=file, stderr=subprocess.STDOUT)


def surprises(report: Path) -> list[str]:
    """The cases of a run that did not end as they were expected to."""
    found = msgspec.json.decode(report.read_bytes(), type=Report)
    assert found.complete, found.cut_short
    assert not found.errors
    return [*(each.id for each in found.unexpected(strict=True)), *found.better_than_expected]


@pytest.fixture(scope="module")
def run(
    stomp_broker_factory: Callable[..., RunningBroker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    """Gives exit status and output of the suite on a broker, by its name."""
    folder = tmp_path_factory.mktemp("runs")
    runs: dict[str, tuple[list[str], subprocess.Popen[bytes]]] = {}
    missing: dict[str, BaseException] = {}
    for name in BROKERS:
        try:
            broker = stomp_broker_factory(name, frames=False)
        except (pytest.skip.Exception, pytest.fail.Exception) as absent:
            missing[name] = absent
        else:
            arguments = command(broker, folder / f"{name}.json")
            runs[name] = arguments, started(arguments, folder / f"{name}.txt")

    def result(name: str) -> tuple[int, str]:
        if name in missing:
            raise missing[name]
        arguments, process = runs[name]
        output = folder / f"{name}.txt"
        if process.wait(LIMIT_S) == Exit.FAILURES:
            for _, other in runs.values():
                other.wait(LIMIT_S)
            again = [*arguments, *surprises(folder / f"{name}.json")]
            process = started(again, output)
        return process.wait(LIMIT_S), output.read_text()

    yield result
    for _, process in runs.values():
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", BROKERS)
def test_suite_finds_what_is_known(run: Run, name: str) -> None:
    status, output = run(name)
    assert status == 0, output
    assert "expected to deviate" in output, "no deviation was found at all"
