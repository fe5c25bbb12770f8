"""Runs in separate namespaces: the outer side starts the run, and the inner side plays it.

Mounts, networks and processes inside vanish with the inner side.
"""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tests.campaign.checker import Finding, check
from tests.campaign.history import Event, read, write
from tests.campaign.plan import Plan
from tests.campaign.stage import Stage

__all__ = ["APART", "Apart", "play_inside"]

#: Options of ``unshare``: all processes inside end with the first one.
APART: Final = ("--pid", "--fork", "--kill-child")
_TIMEOUT_S: Final = 900.0
_HISTORY: Final = "apart.jsonl"
_LOG: Final = "apart.log"
_PROBLEM: Final = "apart.txt"


class Apart:
    """A run in namespaces; a :class:`tests.campaign.stage.Stage`."""

    def __init__(
        self,
        plan: Plan,
        directory: Path,
        report: Path,
        *,
        namespaces: Sequence[str],
        module: str,
        checks: Callable[[Sequence[Event]], Finding] = check,
    ) -> None:
        """Prepare without starting anything.

        ``namespaces`` are options of ``unshare``. ``module`` calls :func:`play_inside`.
        """
        self._plan = plan
        self._directory = directory
        self._command = ["unshare", *namespaces, *APART, sys.executable, "-m", module]
        self._command += [str(directory), str(report), json.dumps(asdict(plan))]
        self._checks = checks
        self.log = ""
        self.events: Sequence[Event] = ()

    def play(self) -> None:
        """Run it."""
        done = subprocess.run(
            self._command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        history = self._directory / _HISTORY
        assert history.exists(), done.stderr
        self.events = read(history)
        self.log = (self._directory / _LOG).read_text(encoding="utf-8")
        problem = (self._directory / _PROBLEM).read_text(encoding="utf-8")
        assert not problem, problem

    def check(self) -> Finding:
        """Check the history of the clients."""
        return self._checks(self.events)


def play_inside(make: Callable[[Plan, Path, Path], Stage]) -> None:
    """Play the run that the command line describes; ``make`` gets its plan and directories."""
    directory, report = map(Path, sys.argv[1:3])
    work = directory / "work"
    work.mkdir()
    stage = make(Plan(**json.loads(sys.argv[3])), work, report)
    problem = ""
    try:
        stage.play()
    except Exception:
        problem = traceback.format_exc(limit=-6)
    (directory / _LOG).write_text(stage.log, encoding="utf-8")
    (directory / _PROBLEM).write_text(problem, encoding="utf-8")
    write(directory / _HISTORY, stage.events)
