"""Other settings for a broker that runs: SIGHUP has the file read again."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger

from stompkit.server.process.assembly import access
from stompkit.server.process.lifecycle import Lifecycle
from stompkit.server.process.logs import LogSwitch
from stompkit.server.settings.process import Settings
from stompkit.server.settings.reading import SettingsError, read_settings

__all__ = ["Reloader"]

_log: Final = Logger()


class Reloader:
    """Reads the settings of a broker again, and has what can change changed."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        path: Path,
        overrides: Mapping[str, Any],
        log: LogSwitch,
    ) -> None:
        """Take the broker, its file, and what the command line has set over the file."""
        self._lifecycle = lifecycle
        self._path = path
        self._overrides = overrides
        self._log = log
        self._settings = lifecycle.settings
        self._before: Any = None
        self._is_installed = False

    def install(self) -> None:
        """Reload at each SIGHUP, which would end the process otherwise."""
        if threading.current_thread() is not threading.main_thread():
            # Only the main thread can; a program that runs a broker elsewhere has its own way.
            return
        from twisted.internet import reactor

        from_thread = cast("IReactorFromThreads", reactor).callFromThread
        self._before = signal.signal(signal.SIGHUP, lambda *_: from_thread(self.reload))
        self._is_installed = True

    def remove(self) -> None:
        """Leave SIGHUP to whom it was before."""
        if self._is_installed:
            self._is_installed = False
            signal.signal(signal.SIGHUP, self._before)

    def reload(self) -> None:
        """Read the file; one with mistakes changes nothing, and each of them is logged."""
        lifecycle = self._lifecycle
        if not lifecycle.is_listening:
            # What stands by, or ends, is not ready before or after.
            self._read()
            return
        lifecycle.notifier.reloading()
        is_read = self._read()
        mistakes = "" if is_read else f"; {self._path} has mistakes: see the log"
        lifecycle.notifier.ready(lifecycle.state + mistakes)

    def _read(self) -> bool:
        """Whether there were no mistakes, and what can change has."""
        old = self._settings
        lifecycle = self._lifecycle
        try:
            new = read_settings(self._path, self._overrides)
            is_other = _access(new) != _access(old)
            decided_by = access(new, lifecycle.clock) if is_other else None
        except SettingsError as error:
            for problem in error.problems:
                _log.error("{problem}", problem=problem)
            _log.error("{path} has mistakes: the settings stay as they were", path=self._path)
            return False
        except (ValueError, OSError) as error:
            _log.error(
                "{path}: {error}: the settings stay as they were", path=self._path, error=error
            )
            return False
        for what in _lasting(old, new):
            _log.warn(
                "{path}: {what} is another now, which takes effect when the broker is started"
                " again",
                path=self._path,
                what=what,
            )
        self._settings = new
        lifecycle.factory.broker.reload(new.config)
        if decided_by is not None:
            lifecycle.change_access(decided_by)
        lifecycle.change_beanstalk(new.beanstalk)
        lifecycle.log_frames(wanted=new.log.frames)
        if new.log.format is not None:
            self._log.format = new.log.format
        _log.info("{path} was read again", path=self._path)
        return True


def _access(settings: Settings) -> tuple[object, ...]:
    """What decides on logins and rights; the dialect says what ``>`` means in a right."""
    return settings.auth, settings.rights, settings.broker.dialect == "activemq"


def _lasting(old: Settings, new: Settings) -> Iterator[str]:
    """What has changed in the file and can't in the process."""
    looks: dict[str, Callable[[Settings], object]] = {
        "[store]": lambda settings: settings.store,
        "[[listen]]": lambda settings: settings.listening,
        "[[websocket]]": lambda settings: settings.websockets,
        "[beanstalk] endpoints": lambda settings: settings.beanstalk.endpoints,
        "[broker] hosts": lambda settings: settings.broker.hosts,
        "[broker] storage": lambda settings: settings.broker.storage,
        "[[destination]] storage": lambda settings: {
            each.name: each.storage for each in settings.destinations if each.storage is not None
        },
        "[admin]": lambda settings: settings.admin,
        "[log] file": lambda settings: settings.log.file,
        "[log] format": lambda settings: settings.log.format is None and settings.log.file is None,
    }
    for what, look in looks.items():
        if look(old) != look(new):
            yield what
