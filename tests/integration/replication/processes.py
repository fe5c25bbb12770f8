"""Processes of stompkit's commands that are killed, and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

__all__ = ["Running", "replicating"]


class Running:
    """A command of stompkit's in a process, which goes on where it was killed."""

    def __init__(self, name: str, directory: Path, *command: str) -> None:
        """Start it."""
        self.name = name
        self._log = directory / f"{name}.log"
        self._command = [sys.executable, "-m", "stompkit", *command]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, again."""
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
        """The number of the process."""
        assert self._process is not None
        return self._process.pid

    def check(self) -> None:
        """Fail where it has ended by itself."""
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} has ended:\n{self.log}"

    @property
    def log(self) -> str:
        """What it has said, the last of it."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-10_000:]

    def stop(self) -> int:
        """Have it stop in order; gives its exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)
            raise

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing behind."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def replicating(name: str, directory: Path, *arguments: str) -> Running:
    """``stompkit replicate``."""
    state = str(directory / "state")
    return Running(name, directory, "replicate", "--name", name, "--state-dir", state, *arguments)
