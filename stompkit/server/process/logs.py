"""What the log looks like, and frames in it."""

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

#: Headers whose values are nobody's business.
_SECRET: Final = frozenset({"passcode", "password", "authorization"})
_MASK: Final = "***"
#: Characters of headers in one line of the log.
_MOST_SHOWN: Final = 2_000

Format = Literal["text", "json"]


@implementer(ILogObserver)
class LogObserver:
    """Writes events to a file, as text or JSON, which can change."""

    def __init__(self, stream: TextIO, switch: LogSwitch) -> None:
        """Write in the format that the switch says at the time."""
        self._switch = switch
        self.observers = {
            "text": textFileLogObserver(stream),
            # Without the separator that Twisted puts in front of each line by default: what reads
            # logs knows JSON lines.
            "json": jsonFileLogObserver(stream, recordSeparator=""),
        }

    def __call__(self, event: LogEvent) -> None:
        """Write an event; to what JSON has of it, its text is added."""
        if self._switch.format == "json":
            event = {**event, "text": formatEvent(event)}
        self.observers[self._switch.format](event)


class ReopenedFile:
    """A file that the log is appended to, opened anew when somebody has moved it away."""

    def __init__(self, path: Path) -> None:
        """Open it; raises OSError."""
        self._path = path
        self._stream = self._opened()

    def write(self, text: str) -> int:
        """Append a text, whole lines of the log."""
        return self._stream.write(text)

    def flush(self) -> None:
        """Let the operating system have it."""
        self._stream.flush()

    def reopen(self) -> None:
        """Go on in a new file of the same name; where there can't be one, in the old one."""
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
        # Appending: what is cut to nothing after it was copied goes on at the beginning.
        return self._path.open("a", encoding="utf-8", errors="backslashreplace")


class LogSwitch:
    """Says in which format the log of ``twistd`` or ``twist`` is written, and where."""

    def __init__(self, format: Format, path: Path | None = None) -> None:
        """Begin with a format; ``path`` is a file of the broker's own."""
        self.format: Format = format
        self._path = path
        self._twistd: MutableMapping[str, Any] | None = None

    def install(self, runner: MutableMapping[str, Any]) -> None:
        """Have ``twistd`` or ``twist``, whose options these are, write its log by this switch.

        ``--logger`` and ``--syslog`` of ``twistd`` are left alone.
        """
        if "fileLogObserverFactory" in runner:
            runner["fileLogObserverFactory"] = self.observer
        elif not runner.get("logger") and not runner.get("syslog"):
            self._twistd = runner

    def serve(self, application: object) -> None:
        """Be the observer that ``twistd`` takes from its application, if it is ``twistd``."""
        if self._twistd is not None and isinstance(application, Componentized):
            stream = sys.stdout if self._path is not None else _twistd_stream(self._twistd)
            observer = self.observer(stream)
            application.setComponent(ILogObserver, observer)  # type: ignore[no-untyped-call]  # Twisted's

    def observer(self, stream: TextIO) -> LogObserver:
        """What writes the log to its file, or else to a stream; SystemExit if it can't."""
        if self._path is None:
            return LogObserver(stream, self)
        try:
            file = ReopenedFile(self._path)
        except OSError as error:
            raise SystemExit(f"stompkit: can't log to {self._path}: {error.strerror}") from None
        _at_sigusr1(file.reopen)
        return LogObserver(cast("TextIO", file), self)


def _twistd_stream(runner: MutableMapping[str, Any]) -> TextIO:
    """The file that ``twistd`` writes its log to, rotated at its signal for that."""
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
    """Headers without the values that are secret."""
    return {name: _MASK if name.lower() in _SECRET else value for name, value in headers.items()}


def _at_sigusr1(do: Callable[[], object]) -> None:
    """Do that at each SIGUSR1, which would end the process otherwise."""

    def handle(number: int, frame: object) -> None:
        from twisted.internet import reactor

        cast("IReactorFromThreads", reactor).callFromThread(do)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR1, handle)


def log_frame(direction: str, peer: str, frame: Frame) -> None:
    """Log a frame: its command, its headers without what is secret, the length of its body."""
    headers = masked(frame.headers)
    _log.info(
        "{peer} {direction} {command} {headers} {octets} octets",
        peer=peer,
        direction=direction,
        command=frame.command,
        # As Python writes it, so that no value can begin a line of its own.
        headers=repr(headers)[:_MOST_SHOWN],
        octets=len(frame.body),
    )
