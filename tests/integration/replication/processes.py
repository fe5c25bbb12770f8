"""Processes of stompkit's commands that are killed and restarted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

__all__ = ["Running", "replicating"]


class Running:
    """A command of stompkit in a process that resumes where it was killed."""

    def __init__(self, name: str, directory: Path, *command: str) -> None:
        """Start it."""
        self.name = name
        self._log = directory / f"{name}.log"
        self._command = [sys.executable, "-m", "stompkit", *command]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, for the first time or again."""
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ
            )

    def kill(self) -> None:
        """Kill it with ``kill -9``, and start it again."""
        self.check()
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.start()

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def check(self) -> None:
        """Fail if it has ended by itself."""
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} has ended:\n{self.log}"

    @property
    def log(self) -> str:
        """The end of its output."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-10_000:]

    def stop(self) -> int:
        """Stop it gracefully; return its exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)
            raise

    def __enter__(self) -> Self:
        """Return the process."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def replicating(name: str, directory: Path, *arguments: str) -> Running:
    """Return the command ``stompkit replicate``."""
    state = str(directory / "state")
    return Running(name, directory, "replicate", "--name", name, "--state-dir", state, *arguments)
