"""The command in a separate process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import msgspec

import stompkit
from stompkit.conformance.report import Report

ROOT = Path(stompkit.__file__).resolve().parents[1]
#: Modules that runs in separate processes need, which are imported once for all of them.
_SHARED = ["stompkit.conformance.run.runner", "stompkit.testing", "tests.conformance.clusters"]
#: Time limit for a run to end, in seconds; ten times the duration of the longest run.
BOUND_S = 120.0


@dataclass(frozen=True)
class Finished:
    """A finished run."""

    status: int
    out: str
    err: str

    @property
    def told(self) -> str:
        """Return all output of the run."""
        return f"exit status {self.status}\n{self.out}\n{self.err}"


def environment(**extra: str) -> dict[str, str]:
    """Return the environment for a checkout that is not installed, without the user's settings."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STOMPKIT_")}
    return {**kept, "PYTHONPATH": path.rstrip(os.pathsep), **extra}


@contextmanager
def interruptible() -> Iterator[None]:
    """Make processes that are started in the context handle SIGINT.

    Tests that run in the background may ignore SIGINT. A process inherits an ignored signal, but
    not a handled one.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def processes(count: int) -> ProcessPoolExecutor:
    """Return a pool of processes that run the suite, as pytest cannot run within pytest."""
    context = get_context("forkserver")
    context.set_forkserver_preload(_SHARED)
    return ProcessPoolExecutor(count, context)


def run_command(*arguments: object, cwd: Path, **variables: str) -> Finished:
    """Run ``python -m stompkit.conformance``, with warnings as errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "stompkit.conformance", *map(str, arguments)],
        cwd=cwd,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=BOUND_S,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def read_report(path: Path) -> Report:
    """Read a JSON report."""
    return msgspec.json.decode(path.read_bytes(), type=Report)
