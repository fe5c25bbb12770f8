"""Processes that run cases for the pool: they read case names and write results.

    python -m stompkit.conformance.run.worker DESCRIPTOR [DESCRIPTOR ...]

Standard input carries the task. The cases are loaded once; then a process is forked for each
descriptor, which is a socket. The process first writes its process id.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from stompkit.conformance import plugin
from stompkit.conformance.run.pool import Done, Task
from stompkit.conformance.run.session import Selection, Session, run_pytest
from stompkit.conformance.run.signals import ENDING

__all__ = ["main"]


class _Worker(Session):
    """Takes the order of the cases from the pool."""

    def __init__(self, task: Task, ends: list[socket.socket]) -> None:
        super().__init__(
            Selection(folder=Path(task.folder) if task.folder else None),
            task.address,
            task.capabilities,
        )
        self._ends = ends

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Fork, and run each requested case, until the input ends."""
        end = self._forked()
        if end is not None:
            with end:
                self._serve(session, end)
        return True

    def _forked(self) -> socket.socket | None:
        """Return the socket of a new process; None in the parent, once all children have ended."""
        for end in self._ends:
            if os.fork() == 0:
                for other in self._ends:
                    if other is not end:
                        other.close()
                return end
        for end in self._ends:
            end.close()
        for _ in self._ends:
            os.wait()
        return None

    def _serve(self, session: pytest.Session, end: socket.socket) -> None:
        items = {item.stash[plugin.CASE].id: item for item in session.items}
        # The parent process may have been killed.
        with suppress(BrokenPipeError, ConnectionResetError):
            end.sendall(b"%d\n" % os.getpid())
            for line in end.makefile("rb"):
                item = items[line.decode().strip()]
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                sys.stdout.flush()
                end.sendall(msgspec.json.encode(self._done(session)) + b"\n")

    def _done(self, session: pytest.Session) -> Done:
        result = self.results.pop() if self.results else None
        errors, self.errors = self.errors, []
        return Done(result=result, errors=errors, cut_short=str(session.shouldstop or ""))


def main(arguments: list[str]) -> None:
    """Run cases until the input ends."""
    # The parent process handles these signals, and ends this process.
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    # Standard output is reserved for the report.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=Task)
    run_pytest(_Worker(task, [socket.socket(fileno=int(each)) for each in arguments]))


if __name__ == "__main__":
    main(sys.argv[1:])
