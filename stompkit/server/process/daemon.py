"""Report a failed start on the terminal from which ``twistd`` starts a daemon."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, Final

from stompkit.server.log import process_events

__all__ = ["DaemonStart", "StartFailedError"]


_STDERR: Final = 2


class StartFailedError(Exception):
    """Reason for a failed start of a daemon, as logged."""


class DaemonStart:
    """Reports on the terminal why a daemon cannot start; does nothing without a terminal.

    The waiting parent process reads the result of the start from a pipe. It has room for a few
    words, and ``twistd`` writes to it only after an ``Exception``. After SystemExit the parent
    would wait for ever. The standard error of the daemon is already closed by then.
    """

    def __init__(self, runner: MutableMapping[str, Any] | None) -> None:
        """Keep the terminal if ``runner``, the options of ``twistd``, may start a daemon."""
        self._runner = runner
        self._terminal: int | None = None
        if runner is not None and "nodaemon" in runner and not runner["nodaemon"]:
            with suppress(OSError):
                self._terminal = os.dup(_STDERR)

    def failed(self, end: SystemExit) -> Exception | SystemExit:
        """Return the exception to raise for SystemExit: itself, unless this is a daemon."""
        if self._runner is None or self._runner.get("statusPipe") is None:
            return end
        reason = str(end)
        process_events.fatal(reason=reason)
        # The reason is logged: no traceback is needed.
        sys.excepthook = lambda *_: None
        self._remove_pid_file(self._runner)
        if self._terminal is not None:
            with suppress(OSError):
                os.write(self._terminal, f"{reason}\n".encode("utf-8", "backslashreplace"))
        return StartFailedError(reason)

    @staticmethod
    def _remove_pid_file(runner: MutableMapping[str, Any]) -> None:
        """Remove the file before the failure is visible; ``twistd`` would do so afterwards."""
        path, runner["pidfile"] = runner.get("pidfile"), ""
        if path:
            with suppress(OSError):
                os.unlink(path)

    def done(self) -> None:
        """Close the terminal at the end of the start."""
        terminal, self._terminal = self._terminal, None
        if terminal is not None:
            os.close(terminal)
