"""Format and destination of the log, and logging of frames."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final, Literal, TextIO, cast

from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import (
    ILogObserver,
    LogEvent,
    Logger,
    formatEvent,
    jsonFileLogObserver,
    textFileLogObserver,
)
from twisted.python.components import Componentized
from twisted.python.logfile import LogFile
from zope.interface import implementer

from stompkit.frames import Frame

__all__ = ["LogObserver", "LogSwitch", "log_frame", "masked"]

_log: Final = Logger()

#: Headers with secret values.
_SECRET: Final = frozenset({"passcode", "password", "authorization"})
_MASK: Final = "***"
#: Maximum number of characters of headers in one log line.
_MOST_SHOWN: Final = 2_000

Format = Literal["text", "json"]


@implementer(ILogObserver)
class LogObserver:
    """Writes events to a file, as text or JSON; the format can change."""

    def __init__(self, stream: TextIO, switch: LogSwitch) -> None:
        """Use the current format of the switch."""
        self._switch = switch
        self.observers = {
            "text": textFileLogObserver(stream),
            # Without the separator that Twisted writes before each line by default: log readers
            # expect JSON lines.
            "json": jsonFileLogObserver(stream, recordSeparator=""),
        }

    def __call__(self, event: LogEvent) -> None:
        """Write an event; in JSON with its formatted text."""
        if self._switch.format == "json":
            event = {**event, "text": formatEvent(event)}
        self.observers[self._switch.format](event)


class ReopenedFile:
    """An append-only log file, reopened when it has been moved away."""

    def __init__(self, path: Path) -> None:
        """Open the file; raises OSError."""
        self._path = path
        self._stream = self._opened()

    def write(self, text: str) -> int:
        """Append a text of whole log lines."""
        return self._stream.write(text)

    def flush(self) -> None:
        """Pass buffered text to the operating system."""
        self._stream.flush()

    def reopen(self) -> None:
        """Continue in a new file of the same name, or in the old one if that fails."""
        try:
            stream = self._opened()
        except OSError as error:
            _log.error(
                "can't open {path}, so the log goes on where it was: {error}",
                path=self._path,
                error=error.strerror,
            )
            return
        before, self._stream = self._stream, stream
        before.close()

    def _opened(self) -> TextIO:
        # Append mode: after a copy-and-truncate, writing continues at the beginning.
        return self._path.open("a", encoding="utf-8", errors="backslashreplace")


class LogSwitch:
    """Controls the format and destination of the log of ``twistd`` or ``twist``."""

    def __init__(self, format: Format, path: Path | None = None) -> None:
        """Start with a format; ``path`` is the broker's own log file, if any."""
        self.format: Format = format
        self._path = path
        self._twistd: MutableMapping[str, Any] | None = None

    def install(self, runner: MutableMapping[str, Any]) -> None:
        """Make ``twistd`` or ``twist``, given its options, write its log through this switch.

        ``--logger`` and ``--syslog`` of ``twistd`` are respected.
        """
        if "fileLogObserverFactory" in runner:
            runner["fileLogObserverFactory"] = self.observer
        elif not runner.get("logger") and not runner.get("syslog"):
            self._twistd = runner

    def serve(self, application: object) -> None:
        """Register the observer in the application of ``twistd``; does nothing for ``twist``."""
        if self._twistd is not None and isinstance(application, Componentized):
            stream = sys.stdout if self._path is not None else _twistd_stream(self._twistd)
            observer = self.observer(stream)
            application.setComponent(ILogObserver, observer)  # type: ignore[no-untyped-call]  # Twisted's

    def observer(self, stream: TextIO) -> LogObserver:
        """Return the observer for the log file or a stream; raises SystemExit if it fails."""
        if self._path is None:
            return LogObserver(stream, self)
        try:
            file = ReopenedFile(self._path)
        except OSError as error:
            raise SystemExit(f"stompkit: can't log to {self._path}: {error.strerror}") from None
        _at_sigusr1(file.reopen)
        return LogObserver(cast("TextIO", file), self)


def _twistd_stream(runner: MutableMapping[str, Any]) -> TextIO:
    """Return the log file of ``twistd``, rotated by its signal."""
    name = runner["logfile"]
    if name == "-" and not runner["nodaemon"]:
        raise SystemExit("a daemon has no standard output to log to: leave --logfile=- out")
    if name == "-" or (not name and runner["nodaemon"]):
        return sys.stdout
    file = LogFile.fromFullPath(name or "twistd.log")  # type: ignore[no-untyped-call]  # Twisted's
    if signal.getsignal(signal.SIGUSR1) in (None, signal.SIG_DFL):
        _at_sigusr1(file.rotate)
    return cast("TextIO", file)


def masked(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers with secret values masked."""
    return {name: _MASK if name.lower() in _SECRET else value for name, value in headers.items()}


def _at_sigusr1(do: Callable[[], object]) -> None:
    """Call a function at each SIGUSR1, which would otherwise end the process."""

    def handle(number: int, frame: object) -> None:
        from twisted.internet import reactor

        cast("IReactorFromThreads", reactor).callFromThread(do)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR1, handle)


def log_frame(direction: str, peer: str, frame: Frame) -> None:
    """Log a frame: its command, its headers without secrets, and the length of its body."""
    headers = masked(frame.headers)
    _log.info(
        "{peer} {direction} {command} {headers} {octets} octets",
        peer=peer,
        direction=direction,
        command=frame.command,
        # As a Python literal, so that no value can start a new log line.
        headers=repr(headers)[:_MOST_SHOWN],
        octets=len(frame.body),
    )
