"""Whoever launched brokers may end in any way: no broker and no folder stays."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stompkit.testing._launching.polling import wait_until

LONG_S = 30.0
#: Launches brokers, tells where they are, and ends as it is told to.
PROGRAM = """
import json, os, signal, sys
from stompkit.testing import FailoverPair, LaunchConfig, launch
config = LaunchConfig(name="stompkit", persistent=True)
if sys.argv[1] == "pair":
    held = FailoverPair.launch(config, shared=True)
    held.fail_over()
else:
    held = launch(config)
print(json.dumps([os.path.abspath(each) for each in os.listdir(".")]), flush=True)
if sys.argv[2] == "kill -9":
    os.kill(os.getpid(), signal.SIGKILL)
elif sys.argv[2] == "os._exit":
    os._exit(3)
elif sys.argv[2] == "Ctrl-C":
    signal.raise_signal(signal.SIGINT)
else:
    raise SystemExit(3)
"""


@pytest.mark.parametrize("end", ["kill -9", "os._exit", "Ctrl-C", "exit"])
@pytest.mark.parametrize("what", ["broker", "pair"])
def test_nothing_stays_however_who_launched_it_ends(tmp_path: Path, what: str, end: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, what, end],
        cwd=tmp_path,
        env={"TMPDIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_S,
    )
    assert json.loads(run.stdout), run.stderr
    # A guard is an orphan by then, and takes its time.
    assert wait_until(lambda: list(tmp_path.iterdir()) == [], LONG_S)
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(tmp_path) not in processes.stdout
