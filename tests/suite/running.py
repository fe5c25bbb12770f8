"""Run parts side by side, the longest first, and collect their outcomes."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.suite.parts import ROOT, Part

__all__ = ["Outcome", "Runner"]

#: Exit status of pytest when its options deselect all tests of a part.
_NO_TESTS: Final = 5
#: Priority of parts, as ``nice`` has it. An urgent part, of 0, gets half of a processor beside ten
#: others.
_NICENESS: Final = 5
#: That of parts in the background. The others often wait, for servers and for clients: this fills
#: the gaps. With a lower priority they would be left over, and run alone at the end.
_BACKGROUND_NICENESS: Final = 7
#: Time in seconds that a part may take to end after SIGINT: it stops its servers first.
_END_S: Final = 20.0
#: Time in seconds after which a part is ended: several times that of the longest one, so that a
#: part that hangs does not use up the time of CI.
_LONGEST_S: Final = 2_400.0


@dataclass
class Outcome:
    """The result of a part."""

    part: Part
    status: int
    duration_s: float
    processor_s: float
    """Processor time of the part and its subprocesses, in seconds."""
    log: Path
    passed: int = 0
    failed: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Number of skipped tests by reason."""
    files: Mapping[str, float] = field(default_factory=dict)
    """Seconds by file of tests."""

    @property
    def is_good(self) -> bool:
        """True if everything passed."""
        return self.status == 0 or (self.part.has_tests and self.status == _NO_TESTS)


def _environment(part: Part) -> dict[str, str]:
    """Return the environment variables of a part."""
    variables = {**os.environ, **(part.environment or {})}
    # Without these caches, thousands of processes would compile all imports and rewrite asserts
    # again.
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    return variables


class Runner:
    """Runs parts in subprocesses; each one writes its output and its report into a folder."""

    def __init__(self, folder: Path, slots: int, *, limit_s: float = _LONGEST_S) -> None:
        """Run at most *slots* parts at a time, with their logs in *folder*.

        Parts in the background do not count. A part is ended after *limit_s* seconds.
        """
        self._folder = folder
        self._slots = slots
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._is_stopped = False
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def running(self) -> list[str]:
        """Names of the parts that run now."""
        with self._lock:
            return list(self._running)

    def run(
        self, parts: Sequence[Part], ended: Callable[[Outcome], None], idle: Callable[[], None]
    ) -> list[Outcome]:
        """Run all parts; call *ended* with each outcome, and *idle* once a second."""
        outcomes = []
        parts = sorted(parts, key=lambda part: not part.is_background)
        background = sum(part.is_background for part in parts)
        with ThreadPoolExecutor(self._slots + background) as pool:
            pending: set[Future[Outcome]] = {pool.submit(self._run, each) for each in parts}
            try:
                while pending:
                    done, pending = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
                    for each in done:
                        outcomes.append(each.result())
                        ended(outcomes[-1])
                    idle()
            except BaseException:
                self._stop()
                for each in pending:
                    each.cancel()
                raise
        return outcomes

    def _run(self, part: Part) -> Outcome:
        name = part.name.replace("/", "-").replace(" ", "-")
        log = self._folder / f"{name}.log"
        report = self._folder / f"{name}.xml"
        for each in (log, report):
            each.unlink(missing_ok=True)
        command = [*part.command, *([f"--junit-xml={report}"] if part.has_tests else [])]
        if not part.is_urgent:
            niceness = _BACKGROUND_NICENESS if part.is_background else _NICENESS
            command = ["nice", "-n", str(niceness), *command]
        started = time.monotonic()
        with log.open("ab") as output:
            with self._lock:
                if self._is_stopped:
                    return Outcome(part, -signal.SIGTERM, 0.0, 0.0, log)
                process = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env=_environment(part),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # A separate process group, so that a kill reaches all processes of the part.
                    start_new_session=True,
                )
                self._running[part.name] = process
            limit = threading.Timer(self._limit_s, _end_late, (process, log, self._limit_s))
            limit.start()
            _, status, usage = os.wait4(process.pid, 0)
            limit.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
        with self._lock:
            del self._running[part.name]
        outcome = Outcome(
            part,
            process.returncode,
            time.monotonic() - started,
            usage.ru_utime + usage.ru_stime,
            log,
        )
        if part.has_tests and report.exists():
            _read_report(report, outcome)
        return outcome

    def _stop(self) -> None:
        """End all parts that run."""
        with self._lock:
            self._is_stopped = True
            processes = list(self._running.values())
        for each in processes:
            # Only to pytest, which stops the processes that it has started.
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGINT)
        deadline = time.monotonic() + _END_S
        while self.running and time.monotonic() < deadline:
            time.sleep(0.1)
        _signal(processes, signal.SIGKILL)


def _end_late(process: subprocess.Popen[bytes], log: Path, limit_s: float) -> None:
    """End a part that hangs, in spite of the timeouts of its tests."""
    with log.open("ab") as output:
        output.write(b"\nended after %g seconds, since a part must not take longer\n" % limit_s)
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGINT)
        time.sleep(_END_S)
        os.killpg(process.pid, signal.SIGKILL)


def _signal(processes: Iterable[subprocess.Popen[bytes]], number: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def _read_report(report: Path, outcome: Outcome) -> None:
    """Count the tests of a JUnit report."""
    skipped: dict[str, int] = {}
    files: dict[str, float] = {}
    bad = 0
    for case in ElementTree.parse(report).iter("testcase"):
        file = _file_of(case)
        files[file] = files.get(file, 0.0) + float(case.get("time", 0.0))
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            bad += 1
        elif skip is not None:
            reason = skip.get("message", "")
            skipped[reason] = skipped.get(reason, 0) + 1
        else:
            outcome.passed += 1
    outcome.failed, outcome.skipped, outcome.files = bad, skipped, files


def _file_of(case: ElementTree.Element) -> str:
    """Return the file of a test; if its function is imported, the file of its class."""
    parts = [each for each in case.get("classname", "").split(".") if each]
    paths = (Path(*parts[:end]).with_suffix(".py") for end in range(len(parts), 0, -1))
    return next((str(path) for path in paths if (ROOT / path).exists()), case.get("file", ""))
