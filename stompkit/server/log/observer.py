"""Format and destination of the log, and logging of frames."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TextIO, cast

from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import (
    FilteringLogObserver,
    ILogFilterPredicate,
    ILogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    PredicateResult,
    formatEvent,
    textFileLogObserver,
)
from twisted.python.components import Componentized
from twisted.python.logfile import LogFile
from zope.interface import implementer

from stompkit._common.files import reason_of
from stompkit._common.style import whole
from stompkit._common.text import escaped, shown
from stompkit.frames import Frame
from stompkit.server.log import client_events, process_events
from stompkit.server.log.event import DATA, Data
from stompkit.server.log.schema import LIBRARY

__all__ = ["LogObserver", "LogSwitch", "json_text", "log_frame", "masked"]

#: Headers with secret values.
_SECRET: Final = frozenset({"passcode", "password", "authorization"})
_MASK: Final = "***"
#: Maximum number of characters of all headers of a frame in the log, and of one value.
_MOST_SHOWN: Final = 2_000
_MOST_VALUE: Final = 200
#: Levels of Twisted with another name in JSON.
_LEVELS: Final = {"warn": "warning"}

Format = Literal["text", "json"]


@implementer(ILogObserver)
class LogObserver:
    """Writes events to a file, as text or JSON; the format can change."""

    def __init__(self, stream: TextIO, switch: LogSwitch) -> None:
        """Use the current format of the switch."""
        stream = whole(stream)
        self._switch = switch
        self.observers: dict[str, Callable[[LogEvent], object]] = {
            "text": textFileLogObserver(stream),
            "json": lambda event: _write(stream, json_text(event)),
        }

    def __call__(self, event: LogEvent) -> None:
        """Write an event."""
        self.observers[self._switch.format](event)


def _write(stream: TextIO, line: str) -> None:
    stream.write(f"{line}\n")
    stream.flush()


def json_text(event: LogEvent) -> str:
    """Return an event of the broker or of a library as one line of JSON, without objects.

    ``schema.py`` describes the fields.
    """
    time = datetime.fromtimestamp(float(event.get("log_time", 0.0)), UTC)
    level = getattr(event.get("log_level"), "name", LogLevel.info.name)
    data = event.get(DATA)
    failure = event.get("log_failure")
    document: dict[str, object] = {
        "time": time.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "level": _LEVELS.get(level, level),
    }
    if isinstance(data, Data):
        document |= {"event": data.name, "message": data.text, **data.fields}
    else:
        document |= {
            "event": LIBRARY,
            "message": shown(formatEvent(event)),
            "logger": str(event.get("log_namespace", "")),
        }
    if failure is not None:
        document["traceback"] = failure.getTraceback()
    return escaped(json.dumps(document, ensure_ascii=False))


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
            process_events.log_file_failed(path=str(self._path), error=reason_of(error))
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
            raise SystemExit(f"stompkit: cannot log to {self._path}: {reason_of(error)}") from None
        _at_sigusr1(file.reopen)
        return LogObserver(cast("TextIO", file), self)

    def terminal_observer(self, stream: TextIO) -> ILogObserver:
        """Return an observer of what a person at a terminal has to know.

        These are warnings, errors, the broker for whose end this one waits, and refused clients.
        """
        predicate = LogLevelFilterPredicate(defaultLogLevel=LogLevel.warn)
        for name in ("standing-by", "client-refused"):
            predicate.setLogLevelForNamespace(f"stompkit.{name}", LogLevel.info)
        predicates = [cast("ILogFilterPredicate", each) for each in (_without_end, predicate)]
        return cast("ILogObserver", FilteringLogObserver(self.observer(stream), predicates))


def _without_end(event: LogEvent) -> Any:
    """Hide refusals at the end of the broker: the person at the terminal has stopped it."""
    data: Data | None = event.get(DATA)
    is_end = data is not None and data.fields.get("code") == "shutting-down"
    return PredicateResult.no if is_end else PredicateResult.maybe


def _twistd_stream(runner: MutableMapping[str, Any]) -> TextIO:
    """Return the log file of ``twistd``, rotated by its signal."""
    name = runner["logfile"]
    if name == "-" and not runner["nodaemon"]:
        raise SystemExit("a daemon has no standard output to log to: leave --logfile=- out")
    is_free = signal.getsignal(signal.SIGUSR1) in (None, signal.SIG_DFL)
    if name == "-" or (not name and runner["nodaemon"]):
        if is_free:
            # logrotate can signal all brokers of a machine, also one that logs to the journal.
            _at_sigusr1(lambda: None)
        return sys.stdout
    file = LogFile.fromFullPath(name or "twistd.log")  # type: ignore[no-untyped-call]  # Twisted's
    if is_free:
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
    client_events.frame(
        peer=peer,
        direction=direction,
        command=frame.command,
        headers=_headers(frame.headers),
        bytes=len(frame.body),
        destination=frame.headers.get("destination", ""),
    )


def _headers(headers: Mapping[str, str]) -> str:
    """Return headers as a JSON object; those beyond a maximum length are omitted."""
    left = _MOST_SHOWN
    found: dict[str, str] = {}
    for name, value in masked(headers).items():
        short = value if len(value) <= _MOST_VALUE else f"{value[:_MOST_VALUE]}..."
        left -= len(name) + len(short)
        if left < 0:
            break
        found[name] = short
    return json.dumps(found, ensure_ascii=False)
