"""A command that ends with its parent process, and can be paused or made unable to write."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stompkit.testing.launching.errors import BrokerError
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.launching.processes.forking import DIRECTORY, ForkedGuard, can_fork, fork
from stompkit.testing.launching.processes.leftovers import lock_of, remove_when_killed

__all__ = ["LOG_NAME", "GuardedProcess", "ProcessLog"]

LOG_NAME: Final = "broker.log"
_GUARD: Final = Path(__file__).with_name("guard.py")
#: Additional time in seconds that the guard may take beyond the timeout of the command.
_GUARD_S: Final = 15.0


class ProcessLog:
    """The file to which commands write, one after the other, from now on."""

    def __init__(self, directory: Path) -> None:
        """Start at the end of the output of an earlier broker in the directory."""
        self.path = directory / LOG_NAME
        with self.path.open("ab") as file:
            self._start_bytes = file.tell()

    def write(self, line: str) -> None:
        """Add a line that the command did not write."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def text(self) -> str:
        """Return the text written so far; empty if the file has been removed."""
        try:
            written = self.path.read_bytes()[self._start_bytes :]
        except FileNotFoundError:
            return ""
        return written.decode("utf-8", "replace")


@dataclass(frozen=True)
class _Start:
    """Parameters for the start of a guard."""

    command: list[str]
    environment: Mapping[str, str]
    directory: Path
    working_directory: Path
    grace_s: float

    def guard(self, log: int, answers: int, lock: int) -> subprocess.Popen[bytes] | ForkedGuard:
        """Start the guard, in the fastest available way; the arguments are descriptors."""
        if can_fork(self.command, self.environment):
            # If forking fails, the fallback below shows the reason.
            with contextlib.suppress(OSError):
                return fork(
                    self.command,
                    self.environment,
                    self.directory,
                    self.working_directory,
                    grace_s=self.grace_s,
                    log=log,
                    answers=answers,
                    lock=lock,
                )
        guard = [sys.executable, "-I", str(_GUARD), "--grace", str(self.grace_s)]
        guard += ["--parent", str(os.getpid()), "--answers", str(answers)]
        return subprocess.Popen(
            [*guard, "--", *self.command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self.working_directory,
            env={**self.environment, DIRECTORY: str(self.directory)},
            pass_fds=[answers, lock],
            # Not in the terminal's process group: Ctrl-C lets the tests finish first.
            start_new_session=True,
        )


class GuardedProcess:
    """A command under the guard, which ends it with this process; output goes to a log file."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        directory: Path,
        stop_timeout_s: float,
        *,
        temporary: bool = False,
        log: ProcessLog | None = None,
        working_directory: Path | None = None,
    ) -> None:
        """Start ``command``, whose files are in ``directory``.

        The directory is removed with this process if ``temporary``. It is also the command's
        working directory unless another one is given.
        """
        self.command = list(command)
        self.is_paused = self.is_disk_full = False
        self._log = ProcessLog(directory) if log is None else log
        self._stop_timeout_s = stop_timeout_s
        ours, answers = os.pipe()
        self._answers = open(ours, "rb", buffering=0)
        start = _Start(
            self.command,
            environment,
            directory,
            working_directory or directory,
            stop_timeout_s,
        )
        if temporary:
            remove_when_killed(directory)
        try:
            with self._log.path.open("ab") as log_file, lock_of(directory) as lock:
                self._log_start = log_file.tell()
                self._guard = start.guard(log_file.fileno(), answers, lock)
        except BaseException:
            self._answers.close()
            raise
        finally:
            os.close(answers)

    def status(self) -> int | None:
        """Return the exit status, or minus a signal's number; ``None`` while the command runs."""
        return self._guard.poll()

    def stop(self) -> None:
        """Shut the command down, or kill it after the timeout; harmless if it has ended."""
        self._finish(b"s", self._stop_timeout_s + _GUARD_S)

    def kill(self) -> None:
        """Kill the command, as ``kill -9`` does; harmless if it has ended."""
        self._finish(b"k", _GUARD_S)

    def pause(self) -> None:
        """Stop the command and all its descendants, as by SIGSTOP; return when they have stopped.

        This and the next three methods raise BrokerError on failure.
        """
        self._ask(b"p")
        self.is_paused = True

    def resume(self) -> None:
        """Resume the command."""
        self._ask(b"c")
        self.is_paused = False

    def fill_disk(self) -> None:
        """Make every write to a file fail, for the command and all its descendants.

        Log output of this period is lost.
        """
        self._ask(b"f")
        self.is_disk_full = True

    def free_disk(self) -> None:
        """Undo ``fill_disk``."""
        self._ask(b"e")
        self.is_disk_full = False

    def log(self) -> str:
        """Return the output of the command so far."""
        return self._log.text()

    def has_logged(self, text: str) -> bool:
        """Return True if this process, and not one before it, has written a text to the log."""
        with self._log.path.open("rb") as log_file:
            log_file.seek(self._log_start)
            return text.encode() in log_file.read()

    def _ask(self, word: bytes) -> None:
        """Send an order to the guard and wait for its answer."""
        answer = b""
        if self._guard.poll() is None and self._send(word):
            # Not select(), which takes no descriptor above 1,023: tests can have many open.
            answers = select.poll()
            answers.register(self._answers, select.POLLIN)
            if not answers.poll(_GUARD_S * 1000):
                raise BrokerError(f"the broker's guard gave no answer in {_GUARD_S:g} s")
            # The answer is short enough to come in one piece; it is empty if the guard has ended.
            answer = self._answers.readline()
        if not answer:
            raise BrokerError("the broker's process has ended: restart() starts another one")
        problem = answer.decode("utf-8", "replace").strip()
        if problem:
            raise BrokerError(f"cannot be done to the broker's processes: {problem}")

    def _send(self, word: bytes) -> bool:
        """Write to the guard; return True if it still runs."""
        assert self._guard.stdin is not None
        try:
            self._guard.stdin.write(word)
            self._guard.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def _finish(self, word: bytes, timeout_s: float) -> None:
        """Send the guard its last order and wait until it has ended."""
        assert self._guard.stdin is not None
        # If writing fails, the guard has ended, and the command before it.
        self._send(word)
        # Popen.wait() never times out while a test has frozen the time, as with freezegun.
        if not wait_until(lambda: self._guard.poll() is not None, timeout_s, interval_s=0.002):
            self._guard.kill()
            self._guard.wait()
        # Close it only now: the end of its input would mean to the guard that this process has
        # gone.
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        self.is_paused = self.is_disk_full = False
        self._answers.close()
