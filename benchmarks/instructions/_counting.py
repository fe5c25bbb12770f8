"""Counting with valgrind in a fixed environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.instructions import _counted
from benchmarks.instructions._scenarios import SCENARIOS

__all__ = ["Uncountable", "check", "count", "missing"]

_ROOT: Final = Path(__file__).resolve().parents[2]
#: With 1,000 to 8,000 messages the figures differ by half a per cent only.
_MESSAGES: Final = 2_000
#: Longer than a run takes on any working machine.
_TIMEOUT_S: Final = 600.0
_ENVIRONMENT: Final = {
    "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONMALLOC": "pymalloc",
    # The C library selects string functions by the generation of the processor.
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-AVX,-ERMS,-FSRM,-BMI2",
}


class Uncountable(Exception):
    """Counting is impossible here; the message gives the reason."""


def missing() -> str | None:
    """Return a description of the missing program, if any."""
    if shutil.which("valgrind") is None:
        return "valgrind counts the instructions: apt-get install valgrind"
    return None


def check(names: Sequence[str]) -> None:
    """Run scenarios without counting; raise AssertionError for a message that has not arrived."""
    for name in names:
        scenario = SCENARIOS[name].make(_MESSAGES)
        scenario.run()
        scenario.check()


def count(
    names: Sequence[str], messages: int = _MESSAGES, *, tree: Path | None = None
) -> dict[str, float]:
    """Return the instructions for each delivery, by scenario.

    With ``tree`` the compiled package in it is counted. Raise :class:`Uncountable` if counting
    fails.
    """
    if (reason := missing()) is not None:
        raise Uncountable(reason)
    with tempfile.TemporaryDirectory(prefix="stompkit-instructions-") as directory:
        done = subprocess.run(
            _command(names, messages, tree),
            cwd=directory,
            env={**_ENVIRONMENT, "TMPDIR": directory},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
        if done.returncode:
            raise Uncountable(f"valgrind, or what it ran, has failed:\n{done.stderr}")
        pairs = [line.split() for line in done.stdout.splitlines()]
        made = {}
        for name, (ready, run) in zip(names, pairs, strict=True):
            both = _total(Path(directory, f"out.{run}")), _total(Path(directory, f"out.{ready}"))
            made[name] = (both[0] - both[1]) / messages / SCENARIOS[name].deliveries
        return made


def _command(names: Sequence[str], messages: int, tree: Path | None) -> list[str]:
    valgrind = shutil.which("valgrind")
    assert valgrind is not None
    # Of the tools that count, this one without caches is the fastest.
    tool = ["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=out.%p", "--quiet"]
    # Import nothing from the environment, as site would do.
    python = [os.path.realpath(sys.executable), "-S", "-s", "-P", _counted.__file__]
    package = [] if tree is None else [str(tree)]
    path = [*package, str(_ROOT), *(entry for entry in sys.path if Path(entry).is_absolute())]
    return [valgrind, *tool, *python, *path, "--", str(messages), *names]


def _total(path: Path) -> int:
    """Return the sum in a file of cachegrind, which is its last line."""
    *_, last = path.read_text(encoding="ascii", errors="replace").splitlines()
    title, figure = last.split()
    assert title == "summary:", last
    return int(figure)
