"""Cases side by side: most of a run is waiting, which processes of their own can do together."""

from __future__ import annotations

import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Final, cast

import msgspec

from stompkit.conformance.address import Address
from stompkit.conformance.case import Case
from stompkit.conformance.target import Capabilities
from stompkit.conformance.verdict import CaseResult

__all__ = ["Done", "Pool", "Task"]

#: What a case may take beyond all that it is granted, in seconds, before its process is ended: it
#: must be stuck then, which no case may be.
_SLACK_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Task:
    """What a process is told first."""

    address: Address
    capabilities: Capabilities
    #: The folder with the cases; that of the suite if it is not given.
    folder: str | None


class Done(msgspec.Struct, kw_only=True):
    """What a process says of one case."""

    result: CaseResult | None = None
    #: Mistakes of the suite's own.
    errors: list[str] = []
    #: Why no other case can be run.
    cut_short: str = ""


class _Worker:
    """One process, and the case that it is busy with."""

    def __init__(self, task: bytes) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stompkit.conformance._worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.input = cast("IO[bytes]", self.process.stdin)
        self.output = cast("IO[bytes]", self.process.stdout)
        self.case: Case | None = None
        self.until = 0.0
        self._say(task)

    def begin(self, case: Case, limit_s: float) -> None:
        """Have it run a case."""
        self.case = case
        self.until = time.monotonic() + limit_s
        self._say(case.id.encode())

    def _say(self, line: bytes) -> None:
        try:
            self.input.write(line + b"\n")
            self.input.flush()
        except BrokenPipeError:
            pass  # it has ended, which reading from it will show

    def stop(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.wait()
        self.input.close()
        self.output.close()


class Pool:
    """Some processes, each of which runs one case after the other."""

    def __init__(
        self,
        task: Task,
        *,
        jobs: int,
        slack_s: float = _SLACK_S,
        on_case: Callable[[Case], None],
        on_result: Callable[[CaseResult], None],
    ) -> None:
        """Begin; nothing is started yet.

        ``slack_s`` is what a case may take beyond its time before it is held to be stuck.
        """
        self._task = task
        self._jobs = jobs
        self._on_case = on_case
        self._on_result = on_result
        address = task.address
        self._limit_s = address.case_timeout_s + 2 * address.recovery_s + slack_s
        #: Mistakes of the suite's own.
        self.errors: list[str] = []
        #: Why not all cases were run.
        self.cut_short = ""

    def run(self, cases: Iterable[Case]) -> None:
        """Run them all, unless the target ends or no process is left."""
        waiting = deque(cases)
        task = msgspec.json.encode(self._task)
        with selectors.DefaultSelector() as selector, ExitStack() as stack:
            for _ in range(min(self._jobs, len(waiting))):
                worker = _Worker(task)
                stack.callback(worker.stop)
                selector.register(worker.output, selectors.EVENT_READ, worker)
                self._next(worker, waiting)
            while workers := [cast("_Worker", key.data) for key in selector.get_map().values()]:
                left = min(worker.until for worker in workers) - time.monotonic()
                for key, _ in selector.select(max(0.0, left)):
                    worker = key.data
                    if self._hear(worker, busy=len(workers)) and not self.cut_short:
                        self._next(worker, waiting)
                    if worker.case is None:
                        selector.unregister(worker.output)
                self._end_stuck(selector)

    def _next(self, worker: _Worker, waiting: deque[Case]) -> None:
        if waiting:
            case = waiting.popleft()
            self._on_case(case)
            worker.begin(case, self._limit_s)

    def _hear(self, worker: _Worker, *, busy: int) -> bool:
        """Take what a process says of its case, ``busy`` being the number of them that run.

        Gives whether it can be asked for another one.
        """
        case, worker.case = worker.case, None
        line = worker.output.readline()
        if not line:
            self.errors.append(f"the process that ran {case and case.id} has ended")
            return False
        done = msgspec.json.decode(line, type=Done)
        if done.result is not None:
            if done.cut_short and busy > 1:
                done.result.detail += f" (it ran beside {busy - 1} others: see --jobs 1)"
            self._on_result(done.result)
        self.errors += done.errors
        self.cut_short = self.cut_short or done.cut_short
        return True

    def _end_stuck(self, selector: selectors.BaseSelector) -> None:
        for key in list(selector.get_map().values()):
            worker = cast("_Worker", key.data)
            if worker.case is not None and time.monotonic() >= worker.until:
                self.errors.append(f"{worker.case.id} does not end")
                selector.unregister(worker.output)
