"""The terminal that ``twistd`` was started from, while it starts a daemon."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, Final

from twisted.logger import Logger

__all__ = ["DaemonStart", "StartFailed"]

_log: Final = Logger()

_STDERR: Final = 2


class StartFailed(Exception):
    """What has kept a daemon from its work, in the words of the log."""


class DaemonStart:
    """Says on the terminal why a daemon can't start; harmless where there is none.

    The process that the terminal waits for reads how the start went from a pipe, which has room
    for a few words, and which ``twistd`` writes to after an ``Exception`` only: after SystemExit
    it would wait for ever. The standard error of the daemon is that of nobody by then.
    """

    def __init__(self, runner: MutableMapping[str, Any] | None) -> None:
        """Keep the terminal if ``runner``, the options of ``twistd``, may ask for a daemon."""
        self._runner = runner
        self._terminal: int | None = None
        if runner is not None and "nodaemon" in runner and not runner["nodaemon"]:
            with suppress(OSError):
                self._terminal = os.dup(_STDERR)

    def failed(self, end: SystemExit) -> Exception | SystemExit:
        """What to raise in place of an end of the process: itself, unless this is a daemon."""
        if self._runner is None or self._runner.get("statusPipe") is None:
            return end
        reason = str(end)
        _log.critical("{reason}", reason=reason)
        # The log has it: no traceback is needed behind it.
        sys.excepthook = lambda *_: None
        self._remove_pid_file(self._runner)
        if self._terminal is not None:
            with suppress(OSError):
                os.write(self._terminal, f"{reason}\n".encode("utf-8", "backslashreplace"))
        return StartFailed(reason)

    @staticmethod
    def _remove_pid_file(runner: MutableMapping[str, Any]) -> None:
        """Remove the file before anybody learns of the end; ``twistd`` would do it after that."""
        path, runner["pidfile"] = runner.get("pidfile"), ""
        if path:
            with suppress(OSError):
                os.unlink(path)

    def done(self) -> None:
        """Let go of the terminal: the start has gone well, or not."""
        terminal, self._terminal = self._terminal, None
        if terminal is not None:
            os.close(terminal)
