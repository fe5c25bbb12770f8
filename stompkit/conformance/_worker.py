"""A process that runs cases for the pool: their names come in, what was found goes out."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec
import pytest

from stompkit.conformance import plugin
from stompkit.conformance._pool import Done, Task
from stompkit.conformance._session import Selection, Session, run_pytest

__all__ = ["main"]


class _Worker(Session):
    """Takes the order of the cases from somebody else."""

    def __init__(self, task: Task, orders: BinaryIO, answers: BinaryIO) -> None:
        super().__init__(
            Selection(folder=Path(task.folder) if task.folder else None),
            task.address,
            task.capabilities,
        )
        self._orders = orders
        self._answers = answers

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run what is asked for, until nothing is any more."""
        items = {item.stash[plugin.CASE].id: item for item in session.items}
        for line in self._orders:
            item = items[line.decode().strip()]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            self._tell(str(session.shouldstop or ""))
        return True

    def _tell(self, cut_short: str) -> None:
        result = self.results.pop() if self.results else None
        done = Done(result=result, errors=self.errors, cut_short=cut_short)
        sys.stdout.flush()
        self._answers.write(msgspec.json.encode(done) + b"\n")
        self._answers.flush()
        self.errors = []


def main() -> None:
    """Run cases until the input ends."""
    # Both are the business of the process that has started this one, and ends it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # What a case prints must not get between the answers.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    orders = sys.stdin.buffer
    task = msgspec.json.decode(orders.readline(), type=Task)
    run_pytest(_Worker(task, orders, answers))


if __name__ == "__main__":
    main()
