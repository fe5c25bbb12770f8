"""Counting: valgrind's part, and all that has to be the same each time."""

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
#: Enough: with 1,000 to 8,000 the figures are the same, but for half a per cent.
_MESSAGES: Final = 2_000
#: Longer than any machine takes that is in order.
_TIMEOUT_S: Final = 600.0
_ENVIRONMENT: Final = {
    "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONMALLOC": "pymalloc",
    # The C library has a way to copy and search memory for each generation of processors.
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-AVX,-ERMS,-FSRM,-BMI2",
}


class Uncountable(Exception):
    """Nothing can be counted here; says why."""


def missing() -> str | None:
    """What has to be installed first, if anything."""
    if shutil.which("valgrind") is None:
        return "valgrind counts the instructions: apt-get install valgrind"
    return None


def check(names: Sequence[str]) -> None:
    """Go through scenarios without counting; AssertionError for a message that has not arrived."""
    for name in names:
        scenario = SCENARIOS[name].make(_MESSAGES)
        scenario.run()
        scenario.check()


def count(
    names: Sequence[str], messages: int = _MESSAGES, *, tree: Path | None = None
) -> dict[str, float]:
    """Instructions for each delivery, by scenario; of the compiled package in ``tree``, if given.

    Raises :class:`Uncountable` where that can't be found out.
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
    # Of the tools that count, this one without caches takes the least time.
    tool = ["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=out.%p", "--quiet"]
    # Nothing of the environment that this runs in is imported: site would do that.
    python = [os.path.realpath(sys.executable), "-S", "-s", "-P", _counted.__file__]
    package = [] if tree is None else [str(tree)]
    path = [*package, str(_ROOT), *(entry for entry in sys.path if Path(entry).is_absolute())]
    return [valgrind, *tool, *python, *path, "--", str(messages), *names]


def _total(path: Path) -> int:
    """The sum in a file of cachegrind's, which is its last line."""
    *_, last = path.read_text(encoding="ascii", errors="replace").splitlines()
    title, figure = last.split()
    assert title == "summary:", last
    return int(figure)
