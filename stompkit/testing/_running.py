"""A broker that runs, and the process that it runs in."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from stompkit.testing._brokers._launcher import url_host
from stompkit.testing._config import LaunchConfig
from stompkit.testing._ports import Ports

__all__ = ["LOG_NAME", "GuardedProcess", "RunningBroker"]

LOG_NAME: Final = "broker.log"
#: Set for every process of a broker, so that whoever finds one knows where it belongs.
_DIRECTORY_VARIABLE: Final = "STOMPKIT_BROKER_DIRECTORY"
_GUARD: Final = Path(__file__).with_name("_guard.py")
#: What the guard may take beyond the time that the command has, in seconds.
_GUARD_S: Final = 15.0


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
    ) -> None:
        """Start ``command`` in ``directory``, which goes with this process if ``temporary``."""
        self.command = list(command)
        self._log_path = directory / LOG_NAME
        self._stop_timeout_s = stop_timeout_s
        guard = [sys.executable, "-I", str(_GUARD), "--grace", str(stop_timeout_s)]
        if temporary:
            guard += ["--remove", str(directory)]
        with self._log_path.open("ab") as log:
            # There may be one from an earlier broker in the same directory.
            self._log_start_bytes = log.tell()
            self._guard = subprocess.Popen(
                [*guard, "--", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env={**environment, _DIRECTORY_VARIABLE: str(directory)},
                # Out of reach of the terminal's Ctrl-C: tests get to their end first.
                start_new_session=True,
            )

    def status(self) -> int | None:
        """How the command ended: exit status, or minus a signal's number; ``None``: it runs."""
        return self._guard.poll()

    def stop(self) -> None:
        """Have the command shut down, killed if it takes too long; harmless when it has ended."""
        self._finish(b"s", self._stop_timeout_s + _GUARD_S)

    def kill(self) -> None:
        """Kill the command, as ``kill -9`` does; harmless when it has ended."""
        self._finish(b"k", _GUARD_S)

    def log(self) -> str:
        """What the command has written so far."""
        try:
            written = self._log_path.read_bytes()[self._log_start_bytes :]
        except FileNotFoundError:
            return ""
        return written.decode("utf-8", "replace")

    def _finish(self, word: bytes, timeout_s: float) -> None:
        """Tell the guard what to do, and wait until it has."""
        assert self._guard.stdin is not None
        # An error means that the guard has ended, and the command before it.
        with contextlib.suppress(OSError, ValueError):
            self._guard.stdin.write(word)
            self._guard.stdin.flush()
        try:
            self._guard.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        # Only now: the end of its input would tell the guard that this process is gone.
        with contextlib.suppress(OSError):
            self._guard.stdin.close()


class RunningBroker:
    """A broker to talk to: one that was launched, or one that somebody else runs.

    A context manager: leaving it stops a broker that was launched.
    """

    name: str
    """The broker's name."""
    host: str
    """The address that it listens on."""
    port: int
    """The TCP port that it listens on."""
    login: str | None
    """The user to log in as; ``None``: CONNECT needs no login."""
    passcode: str | None
    """That user's password."""
    vhost: str
    """What to put into CONNECT's ``host`` header."""
    directory: Path | None
    """Where its configuration, data and log are; ``None`` for a broker that somebody else runs."""

    def __init__(
        self,
        config: LaunchConfig,
        port: int,
        *,
        process: GuardedProcess | None = None,
        ports: Ports | None = None,
        directory: Path | None = None,
        temporary: bool = False,
    ) -> None:
        """Describe a broker; use ``launch`` or ``given`` to get one."""
        self.name = config.name
        self.host = config.host
        self.port = port
        self.login = config.login
        self.passcode = config.passcode
        self.vhost = config.host if config.vhost is None else config.vhost
        self.directory = directory
        self._process = process
        self._ports = ports
        self._temporary = temporary
        self._last_log: str | None = None
        self._owner = os.getpid()
        if process is not None:
            atexit.register(self._stop_at_exit)

    def __repr__(self) -> str:
        """Name and address."""
        return f"<RunningBroker {self.name} {self.url}>"

    @property
    def url(self) -> str:
        """The address as ``stomp://host:port``."""
        return f"stomp://{url_host(self.host)}:{self.port}"

    @property
    def log(self) -> str:
        """All that the broker has written so far; empty for one that somebody else runs."""
        if self._last_log is not None:
            return self._last_log
        return "" if self._process is None else self._process.log()

    def stop(self) -> None:
        """Shut the broker down and remove its temporary directory.

        It is killed if it takes longer than its ``stop_timeout_s``.  Nothing happens the second
        time, or for a broker that somebody else runs.
        """
        if self._process is not None:
            self._process.stop()
            self._forget()

    def kill(self) -> None:
        """Kill the broker with everything that it started, as ``kill -9`` does.

        Its directory stays until ``stop`` is called.  Nothing happens to a broker that has
        stopped, or that somebody else runs.
        """
        if self._process is not None:
            self._process.kill()

    def __enter__(self) -> Self:
        """Return the broker."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it."""
        self.stop()

    def _stop_at_exit(self) -> None:
        """Stop the broker with the interpreter, but not with a copy of it that was forked."""
        if os.getpid() == self._owner:
            self.stop()

    def _forget(self) -> None:
        """Let go of what the broker needed."""
        self._last_log = self.log
        self._process = None
        atexit.unregister(self._stop_at_exit)
        if self._ports is not None:
            self._ports.close()
        if self._temporary and self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
