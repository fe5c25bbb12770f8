"""Commands under a guard, as launches of brokers start them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stompkit.testing.launching.processes import process
from stompkit.testing.launching.processes.process import GuardedProcess


@pytest.mark.skipif(sys.platform != "linux", reason="/proc lists the children")
def test_a_guard_that_hangs_is_killed_while_a_test_has_frozen_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As freezegun does, in the module subprocess, too."""
    before = _children()
    started = GuardedProcess([sys.executable, "-c", "input()"], dict(os.environ), tmp_path, 0.1)
    (guard,) = _children() - before
    os.kill(guard, signal.SIGSTOP)
    monkeypatch.setattr(process, "_GUARD_S", 0.1)
    monkeypatch.setattr(subprocess, "_time", lambda: 1.0)
    started.stop()
    assert started.status() == -signal.SIGKILL


def _children() -> set[int]:
    """Return the processes that this thread has started."""
    return {int(number) for number in Path("/proc/thread-self/children").read_text().split()}
