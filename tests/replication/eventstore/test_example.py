"""The example of event sourcing prints the expected output, with each kind of store."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.servers import RedisServer

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "replication" / "event_sourcing.py"
LONG_S = 120.0

#: The expected output, with dots for times and session ids.
SAID = """\
before the commit there is a note: {'pizzas_write': [1, 2]}
which pizzas have changed:
  pizzas_write: [1, 2]
  pizzas_update: [1]
  pizzas_delete: [2]
a process has died, and left: ...
recovered: {'id': 1, 'name': 'Margherita', 'state': 'delivered'}
all that has happened:
  ... write {'id': 1} {'id': 1, 'name': 'Margherita', 'state': 'ordered'}
  ... write {'id': 2} {'id': 2, 'name': 'Funghi', 'state': 'ordered'}
  ... update {'id': 1} {'id': 1, 'name': 'Margherita', 'state': 'in the oven'}
  ... delete {'id': 2}
  ... update {'id': 1} {'id': 1, 'name': 'Margherita', 'state': 'delivered'}
"""


def _run(*arguments: str) -> str:
    """Return the output of the example, with the varying parts replaced."""
    result = subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONG_S,
    )
    assert result.returncode == 0, result.stdout
    said = re.sub(r"\b[0-9a-f]{32}\b|\b\d\d:\d\d:\d\d\.\d{6}\b", "...", result.stdout)
    return "".join(f"{line.rstrip()}\n" for line in said.splitlines())


def test_the_example_keeps_events_in_sqlite() -> None:
    assert _run() == SAID


def test_the_example_keeps_events_in_redis(redis: RedisServer) -> None:
    assert _run("--redis", redis.url) == SAID
