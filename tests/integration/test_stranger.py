"""An independent project passes on all brokers, in any order, with several processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import in_matrix
from tests.testing.launched import require

PROJECT = Path(__file__).with_name("stranger")
#: Number of its tests that a broker cannot run, by the broker's name.
SKIPPED = {"morbidq": 4, "coilmq": 1}
TESTS = 18
LONG_S = 300.0


@pytest.mark.matrix
@pytest.mark.parametrize("order", [1])
@pytest.mark.parametrize(
    "broker",
    [
        "stompkit",
        *map(in_matrix, ("coilmq", "morbidq", "activemq", "artemis", "rabbitmq", "rabbitmq:4")),
    ],
)
def test_the_project_passes_on(broker: str, order: int) -> None:
    require(broker)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("STOMPKIT_MQ")
    }
    options = f"-p no:cacheprovider -q -n 4 --order {order} --mq-broker {broker} --mq-missing fail"
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options.split()],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONG_S,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    *_, last = result.stdout.splitlines()
    counts = {what: int(count) for count, what in re.findall(r"(\d+) (\w+)", last)}
    skipped = SKIPPED.get(broker, 0)
    assert counts["passed"] == TESTS - skipped
    assert counts.get("skipped", 0) == skipped
