"""Where callbacks run: in a process of their own, or in the thread that asks."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final, Literal, Protocol

from stompkit.replication.replicators._worker import Report, describe, reports, work
from stompkit.replication.replicators.messages import Key

__all__ = [
    "InlineRunner",
    "ProcessRunner",
    "Runner",
    "StartMethod",
    "WorkerDied",
    "WorkerUnusable",
    "check_callback",
]

#: Not ``fork``: this process has threads, and a fork of it would hold the pipes of the others.
StartMethod = Literal["spawn", "forkserver"]

Callback = Callable[[Any], Any]

#: Processes are started by the threads of several lanes; multiprocessing's list of them is shared.
_STARTING: Final = threading.Lock()


class WorkerDied(Exception):
    """The process of a worker has ended by itself, or was killed; ``str()`` says how."""


class WorkerUnusable(Exception):
    """A worker did not get as far as to take keys; ``str()`` says why."""


class Runner(Protocol):
    """Runs a callback; used by one thread, except for :meth:`kill`."""

    @property
    def pid(self) -> int | None:
        """The id of the process that it runs in, if it runs."""

    @property
    def sentinel(self) -> int | None:
        """A file descriptor that becomes readable when it dies."""

    def start(self) -> None:
        """Begin, or begin again; raises :class:`WorkerUnusable`."""

    def run(self, keys: list[Key]) -> Iterator[Report]:
        """Call the callback with keys; raises :class:`WorkerDied`."""

    def under_way(self, left: int) -> int:
        """Of keys that no report has told of, how many may have been begun."""

    def kill(self) -> None:
        """End at once what can be ended."""

    def stop(self) -> None:
        """End when nothing is under way."""


class InlineRunner:
    """Runs a callback in the thread that asks."""

    sentinel: Final = None

    def __init__(self, callback: Callback, *, multi: bool) -> None:
        """With ``multi`` the callback takes lists of keys."""
        self._callback = callback
        self._multi = multi
        self.pid: int | None = None

    def start(self) -> None:
        """Nothing has to be started."""

    def run(self, keys: list[Key]) -> Iterator[Report]:
        """Call the callback."""
        return reports(self._callback, keys, multi=self._multi)

    def under_way(self, left: int) -> int:
        """As many as the callback takes at a time."""
        return left if self._multi else min(left, 1)

    def kill(self) -> None:
        """A thread can't be ended from outside."""

    def stop(self) -> None:
        """There is nothing to end."""


class ProcessRunner:
    """Runs a callback in a process, which ends with this one however that ends."""

    def __init__(
        self, name: str, callback: Callback, *, multi: bool, method: StartMethod, grace_s: float
    ) -> None:
        """Prepare; ``grace_s`` is how long a call may take that is under way at the end.

        Raises ``ValueError`` for a callback that can't be imported by another process.
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
        """The id of the process."""
        process = self._process
        return None if process is None else process.pid

    @property
    def sentinel(self) -> int | None:
        """What becomes readable when the process dies."""
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
            # At the end of this process multiprocessing would wait for others.
            daemon=True,
        )
        try:
            with _STARTING:
                process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            # From now on its end of the pipe is closed when it ends.
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
            raise WorkerUnusable(f"worker {self._name}: {problem}")

    def run(self, keys: list[Key]) -> Iterator[Report]:
        """Have the worker call the callback."""
        assert self._pipe is not None
        assert self._process is not None
        try:
            try:
                self._pipe.send(keys)
            except (pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
                yield f"the keys can't be given to a worker: {describe(error)}"
                return
            left = len(keys)
            while left:
                report: Report = self._pipe.recv()
                left -= left if isinstance(report, str) else len(report)
                yield report
        except (EOFError, OSError):
            self._process.join(self._grace_s)
            code = self._process.exitcode
            raise WorkerDied(f"worker {self._name} has ended with {code} meanwhile") from None

    def under_way(self, left: int) -> int:
        """As many as the callback takes at a time."""
        return left if self._multi else min(left, 1)

    def kill(self) -> None:
        """Kill the process, and any that is started later; for other threads, too."""
        self._is_killed = True
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        """Have the process end, if there is one."""
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.join(self._grace_s)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
        self._process = self._pipe = None


def check_callback(callback: Callback) -> bytes:
    """A callback pickled; raises ``ValueError`` for one that another process could not import."""
    try:
        return pickle.dumps(callback)
    except Exception as error:
        raise ValueError(
            f"{callback!r} runs in processes of its own, which have to import it by its name: it "
            f"has to be a function at the top level of a module ({error})"
        ) from None
