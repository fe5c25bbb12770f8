"""Programs of a run, in child processes, which are killed and restarted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["Command"]

_STOP_S: Final = 60.0
#: Environment variables for the broker and its disk only.
_NOT_MINE: Final = ("LD_PRELOAD", "STOMPKIT_DISK")


class Command:
    """A module that is run by ``python -m`` and resumes where it was killed."""

    def __init__(
        self,
        name: str,
        directory: Path,
        *command: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare; ``environment`` is added to the environment of this process."""
        self.name = name
        self._log = directory / f"{name}.log"
        self._command = [sys.executable, "-m", *command]
        kept = {key: value for key, value in os.environ.items() if not key.startswith(_NOT_MINE)}
        self._environment = {**kept, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, for the first time or again."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
            )

    @property
    def is_running(self) -> bool:
        """True if it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def has_done(self) -> bool:
        """True if it has ended with exit status 0."""
        return self._process is not None and self._process.poll() == 0

    @property
    def log(self) -> str:
        """Return all its output."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def check(self) -> None:
        """Fail if it has ended by itself with an error."""
        assert self.is_running or self.has_done, f"{self.name} has ended {self._how()}"

    def _how(self) -> str:
        status = None if self._process is None else self._process.returncode
        return f"with {status}:\n{self.log[-4_000:]}"

    def kill(self) -> None:
        """End it with ``kill -9``."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Stop it by SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        self._signal(signal.SIGCONT)

    def stop(self) -> int:
        """Stop it by SIGTERM; return its exit status."""
        assert self._process is not None
        self._signal(signal.SIGTERM)
        return self._process.wait(_STOP_S)

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running:
            assert self._process is not None
            self._process.send_signal(number)
