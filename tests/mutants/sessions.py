"""One run of pytest in a copy, with a limit for each test and a budget for all."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = ["Session", "Tester", "end_all"]

_POLL_S: Final = 0.1
#: Timeout in seconds for the start of Python, pytest and imports on a busy machine.
_START_S: Final = 300.0
_MARK: Final = "STOMPKIT_MUTANT_SESSION"
#: A plug-in that takes as long to load as all others, and is not needed.
_HEAVY: Final = "schemathesis"
#: Exit statuses of pytest.
_GOOD: Final = (0, 5)


@dataclass
class Session:
    """The result of a run."""

    collected: list[str] = field(default_factory=list)
    passed: dict[str, float] = field(default_factory=dict)
    #: Failed tests, or files that cannot be imported, and the reasons.
    failed: dict[str, str] = field(default_factory=dict)
    #: The test that exceeded its limit.
    hung: str = ""
    #: True if the budget ended before all tests were run.
    is_over: bool = False
    #: Duration without the start of pytest, if the start succeeded.
    seconds: float = 0.0


class Tester:
    """Runs pytest independently of random numbers and of earlier runs."""

    def __init__(
        self,
        tree: Path,
        python: Path,
        scratch: Path,
        *,
        hang_s: float,
        arguments: Sequence[str] = (),
    ) -> None:
        """Test the product in *tree*; a test that takes longer than *hang_s* hangs."""
        self._arguments = arguments
        self._tree = tree
        self._python = python
        self._scratch = scratch
        self._hang_s = hang_s

    def check(self) -> None:
        """Raise RuntimeError unless the product is imported from the tree."""
        with self._folder() as folder:
            where = subprocess.run(
                [self._python, "-c", "import stompkit; print(stompkit.__file__)"],
                cwd=folder,
                env=self._environment(Path(folder)),
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            ).stdout.strip()
        if not Path(where).is_relative_to(self._tree):
            raise RuntimeError(f"{self._python} imports stompkit from {where}, not {self._tree}")

    def run(
        self,
        targets: Sequence[str],
        *options: str,
        budget_s: float = math.inf,
    ) -> Session:
        """Run tests or files of tests; no test begins after the budget is over.

        The start is not counted: its duration depends on the load of the machine.
        """
        with self._folder() as name:
            folder = Path(name)
            arguments = folder / "arguments"
            files = dict.fromkeys(target.partition("::")[0] for target in targets)
            there = [name for name in files if (self._tree / name).exists()]
            if files and not there:
                return Session()
            arguments.write_text("\n".join(there), encoding="utf-8")
            has_single = any("::" in target for target in targets)
            wanted = folder / "wanted"
            wanted.write_text("\n".join(targets if has_single else ()), encoding="utf-8")
            events = folder / "events"
            events.touch()
            if not any(self._has_word(_HEAVY, target) for target in targets):
                options = (*options, "-p", f"no:{_HEAVY}")
            environment = self._environment(folder)
            environment["MUTANTS_BUDGET_S"] = str(budget_s)
            environment[_MARK] = mark = uuid.uuid4().hex
            with (folder / "output").open("wb") as output:
                process = subprocess.Popen(
                    [
                        *(self._python, "-m", "pytest", "-q", "--tb=short", "-m", ""),
                        *("-p", "pytest_events", "-p", "no:cacheprovider", "-n", "0"),
                        # The installed package may have another module than the tree.
                        *("-p", "no:stompkit", "-p", "stompkit.testing.plugin"),
                        *("--hypothesis-seed=0", "--continue-on-collection-errors"),
                        f"--basetemp={folder / 't'}",
                        *self._arguments,
                        *options,
                        f"@{arguments}",
                    ],
                    cwd=self._tree,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            _RUNNING[process] = mark
            try:
                session = self._watched(process, events)
            finally:
                _end(process, mark)
                del _RUNNING[process]
            if process.returncode not in _GOOD and not (session.failed or session.hung):
                if not session.is_over:
                    text = (folder / "output").read_text(encoding="utf-8", errors="replace")
                    session.failed[[*targets, "start"][0].partition("::")[0]] = text.strip()[-300:]
        return session

    def _has_word(self, word: str, target: str) -> bool:
        path = self._tree / target.partition("::")[0]
        return not path.is_file() or word in path.read_text(encoding="utf-8")

    def _watched(self, process: subprocess.Popen[bytes], events: Path) -> Session:
        session = Session()
        running = ""
        since = begun = time.monotonic()
        with events.open(encoding="utf-8") as file:
            while True:
                has_ended = process.poll() is not None
                while (position := file.tell(), line := file.readline())[1].endswith("\n"):
                    running = _take(session, event := json.loads(line), running)
                    if "collected" in event:
                        begun = time.monotonic()
                    since = time.monotonic()
                file.seek(position)
                session.seconds = time.monotonic() - begun
                if has_ended:
                    return session
                if time.monotonic() - since > (self._hang_s if running else _START_S):
                    session.hung = running or "start"
                    return session
                time.sleep(_POLL_S)

    def _folder(self) -> tempfile.TemporaryDirectory[str]:
        """Return a folder for one run, with a short path because of sockets."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(dir=self._scratch, ignore_cleanup_errors=True)

    def _environment(self, folder: Path) -> dict[str, str]:
        plugins = folder / "plugins"
        plugins.mkdir()
        source = Path(__file__).with_name("pytest_events.py")
        (plugins / source.name).write_bytes(source.read_bytes())
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST_", "COV", "MUTANTS_"))
            and name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
        }
        return environment | {
            "PYTHONPATH": f"{self._tree}{os.pathsep}{plugins}",
            "PYTHONHASHSEED": "0",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
            "MUTANTS_EVENTS": str(folder / "events"),
            "MUTANTS_WANTED": str(folder / "wanted"),
        }


def _take(session: Session, event: dict[str, Any], running: str) -> str:
    """Process an event; return the running test."""
    match event:
        case {"collected": ids}:
            session.collected = ids
        case {"failed": test, "why": why}:
            session.failed.setdefault(test, why)
        case {"passed": test, "took_s": took_s}:
            session.passed[test] = took_s
        case {"begun": test}:
            return str(test)
        case {"over": _}:
            session.is_over = True
        case {"ended": _}:
            return ""
    return running


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """Kill the rest of a run, in other process groups too: all processes with its mark."""
    if process.poll() is None:  # otherwise another process may have its id by now
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    wanted = f"{_MARK}={mark}".encode()
    while left := [each for each in _processes() if _has_mark(each, wanted)]:
        for number in left:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(_POLL_S)


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _has_mark(number: int, mark: bytes) -> bool:
    """Return True if a process was started with a mark in its environment, and is not a zombie."""
    with suppress(OSError):
        return mark in Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
    return False


def end_all() -> None:
    """Kill all runs, since the process that watches them is about to end."""
    for process, mark in list(_RUNNING.items()):
        _end(process, mark)


_RUNNING: Final[dict[subprocess.Popen[bytes], str]] = {}
