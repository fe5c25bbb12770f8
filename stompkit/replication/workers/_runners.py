"""Runners of callbacks: in a separate process, or in the calling thread."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final, Literal, Protocol

from stompkit.replication.workers._worker import Report, describe, reports, work
from stompkit.replication.workers.messages import Key

__all__ = [
    "InlineRunner",
    "ProcessRunner",
    "Runner",
    "StartMethod",
    "WorkerDiedError",
    "WorkerUnusableError",
    "check_callback",
]

#: Not ``fork``: this process has threads, and a fork would inherit the pipes of other workers.
StartMethod = Literal["spawn", "forkserver"]

Callback = Callable[[Any], Any]

#: Serialises process starts in several threads; multiprocessing's list of processes is shared.
_STARTING: Final = threading.Lock()


class WorkerDiedError(Exception):
    """The process of a worker has ended unexpectedly or was killed; ``str()`` gives the details."""


class WorkerUnusableError(Exception):
    """A worker could not start; ``str()`` gives the reason."""


class Runner(Protocol):
    """Runs a callback; used by one thread, except for :meth:`kill`."""

    @property
    def pid(self) -> int | None:
        """Id of the running process, if any."""

    @property
    def sentinel(self) -> int | None:
        """File descriptor that becomes readable when the process dies."""

    def start(self) -> None:
        """Start or restart; raises :class:`WorkerUnusableError`."""

    def run(self, keys: list[Key]) -> Iterator[Report]:
        """Call the callback with keys; raises :class:`WorkerDiedError`."""

    def under_way(self, left: int) -> int:
        """Return how many of the *left* unreported keys may have been started."""

    def kill(self) -> None:
        """Kill the process, if there is one."""

    def stop(self) -> None:
        """End when the current call has ended."""


class InlineRunner:
    """Runs a callback in the calling thread."""

    sentinel: Final = None

    def __init__(self, callback: Callback, *, multi: bool) -> None:
        """With ``multi``, the callback takes lists of keys."""
        self._callback = callback
        self._multi = multi
        self.pid: int | None = None

    def start(self) -> None:
        """Do nothing: there is no process."""

    def run(self, keys: list[Key]) -> Iterator[Report]:
        """Call the callback."""
        return reports(self._callback, keys, multi=self._multi)

    def under_way(self, left: int) -> int:
        """Return the number of keys that the callback takes at a time."""
        return left if self._multi else min(left, 1)

    def kill(self) -> None:
        """Do nothing: a thread cannot be killed."""

    def stop(self) -> None:
        """Do nothing: there is no process."""


class ProcessRunner:
    """Runs a callback in a process, which ends with this one in any case."""

    def __init__(
        self, name: str, callback: Callback, *, multi: bool, method: StartMethod, grace_s: float
    ) -> None:
        """Configure; ``grace_s`` is the maximum time in seconds of the current call at the end.

        Raises ``ValueError`` for a callback that another process cannot import.
        """
        self._name = name
        self._pickled = check_callback(callback)
        self._multi = multi
        self._context = (
            multiprocessing.get_context("forkserver")
            if method == "forkserver"
            else multiprocessing.get_context("spawn")
        )
        self._grace_s = grace_s
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._is_killed = False

    @property
    def pid(self) -> int | None:
        """Id of the process."""
        process = self._process
        return None if process is None else process.pid

    @property
    def sentinel(self) -> int | None:
        """File descriptor that becomes readable when the process dies."""
        return None if self._process is None else self._process.sentinel

    def start(self) -> None:
        """Start a process, and wait until it is ready."""
        self.stop()
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=work,
            args=(theirs, self._pickled, self._grace_s),
            kwargs={"multi": self._multi},
            name=self._name,
            # When this process exits, multiprocessing would wait for other processes.
            daemon=True,
        )
        try:
            with _STARTING:
                process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            # From now on, the child's end of the pipe is closed when the child ends.
            theirs.close()
        self._process, self._pipe = process, ours
        if self._is_killed:
            process.kill()
        try:
            problem = ours.recv()
        except (EOFError, OSError):
            process.join()
            problem = (
                f"it has ended with {process.exitcode} before it was ready; what a program starts "
                'has to stand below `if __name__ == "__main__":`'
            )
        if problem is not None:
            self.stop()
            raise WorkerUnusableError(f"worker {self._name}: {problem}")

    def run(self, keys: list[Key]) -> Iterator[Report]:
        """Send keys to the worker, and yield its reports."""
        assert self._pipe is not None
        assert self._process is not None
        try:
            try:
                self._pipe.send(keys)
            except (pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
                yield f"the keys cannot be given to a worker: {describe(error)}"
                return
            left = len(keys)
            while left:
                report: Report = self._pipe.recv()
                left -= left if isinstance(report, str) else len(report)
                yield report
        except (EOFError, OSError):
            self._process.join(self._grace_s)
            code = self._process.exitcode
            raise WorkerDiedError(f"worker {self._name} has ended with {code} meanwhile") from None

    def under_way(self, left: int) -> int:
        """Return the number of keys that the callback takes at a time."""
        return left if self._multi else min(left, 1)

    def kill(self) -> None:
        """Kill the process, and any that is started later; thread-safe."""
        self._is_killed = True
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        """End the process, if there is one."""
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.join(self._grace_s)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
        self._process = self._pipe = None


def check_callback(callback: Callback) -> bytes:
    """Return the pickled callback; raises ``ValueError`` if another process could not import it."""
    try:
        return pickle.dumps(callback)
    except Exception as error:
        raise ValueError(
            f"{callback!r} runs in processes of its own, which have to import it by its name: it "
            f"has to be a function at the top level of a module ({error})"
        ) from None
