"""Celery workers in separate processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep

import pytest

from stompkit.testing import RunningBroker
from tests.kombu.conftest import url_of
from tests.kombu.consuming import LONG_S

__all__ = ["Worker", "Workers", "until"]

ROOT = Path(__file__).resolve().parents[2]


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds."""
    end = monotonic() + LONG_S
    while not condition():
        assert monotonic() < end, f"not in {LONG_S} s: {what}"
        sleep(0.05)


class Worker:
    """One worker, with all processes that it has started."""

    def __init__(
        self,
        arguments: list[str],
        environment: dict[str, str],
        log: Path,
        directory: Path = ROOT,
    ) -> None:
        """Start ``celery`` with arguments; it is ready when its log says so."""
        self._log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "celery", *arguments],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """Output of the worker."""
        return self._log.read_text(errors="replace")

    def ready(self) -> Worker:
        """Wait until the worker accepts tasks."""

        def is_ready() -> bool:
            assert self.process.poll() is None, self.log
            return " ready." in self.log

        until(is_ready, f"worker ready; its log: {self.log}")
        return self

    def kill(self) -> None:
        """Kill the worker and its subprocesses immediately."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Shut the worker down gracefully, and return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(LONG_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


class Workers:
    """Starts workers of ``tests.kombu.application`` on one broker."""

    def __init__(self, broker: RunningBroker, queue: str, directory: Path) -> None:
        """Choose the queue and the result backend."""
        self._stack = ExitStack()
        self._count = 0
        self._directory = directory
        self.settings = {
            "TEST_BROKER_URL": url_of(broker),
            "TEST_RESULT_BACKEND": "rpc://",
            "TEST_QUEUE": queue,
        }

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of a worker."""
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        return {**os.environ, **self.settings, "PYTHONPATH": path}

    def start(self, pool: str = "solo", *more: str) -> Worker:
        """Start a worker, and return it when it is ready."""
        self._count += 1
        arguments = ["-A", "tests.kombu.application", "worker", f"--pool={pool}", "-l", "INFO"]
        arguments += ["-c", "2", "-n", f"w{self._count}@test", *more]
        worker = Worker(arguments, self.environment, self._directory / f"worker{self._count}.log")
        self._stack.callback(self._end, worker)
        return worker.ready()

    def _end(self, worker: Worker) -> None:
        if worker.process.poll() is None:
            worker.kill()

    def close(self) -> None:
        """Kill the workers that still run."""
        self._stack.close()


@pytest.fixture
def workers(broker: RunningBroker, name: str, tmp_path: Path) -> Iterator[Workers]:
    """Starts workers on a queue of this test."""
    made = Workers(broker, name, tmp_path)
    try:
        yield made
    finally:
        made.close()
