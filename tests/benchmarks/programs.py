"""Run the programs that measure a broker, and read their results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

__all__ = ["ROOT", "figures", "missing", "run"]

ROOT = Path(__file__).resolve().parents[2]


def run(
    name: str,
    *arguments: str,
    before: Callable[[], None] | None = None,
    stderr: int = subprocess.PIPE,
    path: Path | None = None,
    timeout_s: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """Run one to its end; ``before`` is called in its process first, ``stderr`` is as in Popen.

    ``path`` is the first entry of its import path, and of its children's. It measures the
    uncompiled package, which needs no compiler.
    """
    paths = [str(each) for each in (path, ROOT) if each is not None]
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "STOMPKIT_PURE": "1"},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=timeout_s,
        preexec_fn=before,
    )


def figures(done: subprocess.CompletedProcess[str], path: Path) -> dict[str, float]:
    """Return the figures in ``path``, after comparing them with the status and the output.

    A bound may depend on the time taken, and does not fail a test.
    """
    assert done.stderr == "", "progress is for terminals"
    made: dict[str, Any] = json.loads(path.read_text())
    holds = [bound["holds"] for bound in made["bounds"]]
    assert done.returncode == (0 if all(holds) else 1), done.stdout
    assert done.stdout.count("\nholds: ") == holds.count(True)
    assert done.stdout.count("\nBROKEN: ") == holds.count(False)
    measured: dict[str, float] = made["figures"]
    for bound in made["bounds"]:
        assert bound["holds"] == (measured[bound["figure"]] <= bound["at_most"])
    return measured


def missing(reason: str) -> BaseException:
    """Return the exception that skips a test without a requirement, or fails it."""
    fails = os.environ.get("STOMPKIT_MQ_MISSING") == "fail"
    return (pytest.fail if fails else pytest.skip).Exception(reason)
