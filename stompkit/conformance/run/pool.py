"""Parallel execution of cases in separate processes: most of a run is waiting."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO, Final, cast

import msgspec

from stompkit.conformance.address import Address
from stompkit.conformance.case import Case
from stompkit.conformance.target import Capabilities
from stompkit.conformance.verdict import CaseResult

__all__ = ["Done", "Pool", "Task"]

#: Time in seconds beyond all timeouts of a case before its process is ended: it must be stuck then.
_SLACK_S: Final = 30.0
#: Time in seconds for processes to end once they have no case.
_END_S: Final = 5.0
_CHUNK_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Task:
    """The first message to a process."""

    address: Address
    capabilities: Capabilities
    #: The folder with the cases; by default that of the suite.
    folder: str | None


class Done(msgspec.Struct, kw_only=True):
    """A process's answer about one case."""

    result: CaseResult | None = None
    #: Errors of the suite itself.
    errors: list[str] = []
    #: Reason why no other case can be run.
    cut_short: str = ""


class _Mother:
    """The process that loads the cases once, and forks the workers."""

    def __init__(self, task: bytes, ends: Iterable[socket.socket]) -> None:
        """Start it; a worker is forked for each of *ends*."""
        numbers = [end.fileno() for end in ends]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "stompkit.conformance.run.worker", *map(str, numbers)],
            stdin=subprocess.PIPE,
            pass_fds=numbers,
        )
        # If it has ended, reading from the workers shows that.
        with suppress(BrokenPipeError), cast("IO[bytes]", self._process.stdin) as stdin:
            stdin.write(task + b"\n")

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()

    def stop(self) -> None:
        """Wait until it has ended, which it does after all workers."""
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Worker:
    """One process, and the case that it runs."""

    def __init__(self, mother: _Mother, end: socket.socket) -> None:
        self._mother = mother
        self.end = end
        self.case: Case | None = None
        self.until = 0.0
        self._heard = b""
        #: Its process id, which it reports first; None until then.
        self._pid: int | None = None

    def begin(self, case: Case, limit_s: float) -> None:
        """Start a case."""
        self.case = case
        self.until = time.monotonic() + limit_s
        # If the worker has ended, reading from it shows that.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.end.sendall(case.id.encode() + b"\n")

    def hear(self) -> bytes | None:
        """Read from it; return its answer, None if that is incomplete, or empty if it has ended."""
        octets = b""
        with suppress(ConnectionResetError):
            octets = self.end.recv(_CHUNK_BYTES)
        if not octets:
            return octets
        self._heard += octets
        if self._pid is None and b"\n" in self._heard:
            number, _, self._heard = self._heard.partition(b"\n")
            self._pid = int(number)
        if not self._heard.endswith(b"\n"):
            return None
        line, self._heard = self._heard, b""
        return line

    def stop(self) -> None:
        """End it; a worker without a case sees the end of its input."""
        if self.case is not None:
            self._kill()
        self.end.close()

    def _kill(self) -> None:
        if self._pid is None:
            self._mother.kill()
            return
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


class Pool:
    """Several processes, each of which runs one case after the other."""

    def __init__(
        self,
        task: Task,
        *,
        jobs: int,
        slack_s: float = _SLACK_S,
        on_case: Callable[[Case], None],
        on_result: Callable[[CaseResult], None],
    ) -> None:
        """Prepare the pool; no process is started yet.

        ``slack_s`` is the additional time in seconds after which a case counts as stuck.
        """
        self._task = task
        self._jobs = jobs
        self._on_case = on_case
        self._on_result = on_result
        address = task.address
        # After the case, the suite may try what the target lacks, and waits until it answers.
        self._limit_s = address.case_s + 4 * address.recovery_s + slack_s
        #: Errors of the suite itself.
        self.errors: list[str] = []
        #: Reason why not all cases were run.
        self.cut_short = ""

    def run(self, cases: Iterable[Case]) -> None:
        """Run all cases, unless the target ends or no process is left."""
        waiting = deque(cases)
        task = msgspec.json.encode(self._task)
        with selectors.DefaultSelector() as selector, ExitStack() as stack:
            for worker in _workers(task, min(self._jobs, len(waiting)), stack):
                selector.register(worker.end, selectors.EVENT_READ, worker)
                self._next(worker, waiting)
            while workers := [cast("_Worker", key.data) for key in selector.get_map().values()]:
                left = min(worker.until for worker in workers) - time.monotonic()
                for key, _ in selector.select(max(0.0, left)):
                    worker = key.data
                    if self._hear(worker, busy=len(workers)) and not self.cut_short:
                        self._next(worker, waiting)
                    if worker.case is None:
                        selector.unregister(worker.end)
                self._end_stuck(selector)

    def _next(self, worker: _Worker, waiting: deque[Case]) -> None:
        if waiting:
            case = waiting.popleft()
            self._on_case(case)
            worker.begin(case, self._limit_s)

    def _hear(self, worker: _Worker, *, busy: int) -> bool:
        """Process a worker's answer; ``busy`` is the number of workers that run a case.

        Returns True if the worker can run another case.
        """
        line = worker.hear()
        if line is None:
            return False
        case, worker.case = worker.case, None
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
                selector.unregister(worker.end)


def _workers(task: bytes, number: int, stack: ExitStack) -> list[_Worker]:
    """Start workers, which are ended with the stack."""
    pairs = [socket.socketpair() for _ in range(number)]
    mother = _Mother(task, [theirs for _, theirs in pairs])
    # After the workers, which would remain zombies otherwise.
    stack.callback(mother.stop)
    workers = []
    for ours, theirs in pairs:
        theirs.close()
        workers.append(_Worker(mother, ours))
        stack.callback(workers[-1].stop)
    return workers
