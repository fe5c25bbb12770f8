"""Reload the settings of a running broker at SIGHUP."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from twisted.internet.interfaces import IReactorFromThreads

from stompkit._common.twisted.stopping import stop_reactor
from stompkit.server.log import process_events
from stompkit.server.log.observer import LogSwitch
from stompkit.server.process.assembly import access
from stompkit.server.process.lifecycle import Lifecycle
from stompkit.server.settings.process import Settings
from stompkit.server.settings.reading import SettingsError, read_settings

__all__ = ["Reloader"]

_STANDARD_INPUT: Final = 0


class Reloader:
    """Reloads the settings of a broker, and applies those that can change."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        path: Path | None,
        overrides: Mapping[str, Any],
        log: LogSwitch,
    ) -> None:
        """Keep the broker, its settings file if any, and the overrides of the command line."""
        self._lifecycle = lifecycle
        self._path = path
        self._overrides = overrides
        self._log = log
        self._settings = lifecycle.settings
        self._before: Any = None
        self._is_installed = False

    def install(self) -> None:
        """Reload at each SIGHUP, which would otherwise end the process at once."""
        if threading.current_thread() is not threading.main_thread():
            # Only the main thread can handle signals; a program that embeds a broker does so
            # itself.
            return
        from twisted.internet import reactor

        if self._path is None and signal.getsignal(signal.SIGHUP) != signal.SIG_DFL:
            # The program that embeds the broker handles it, or ``nohup`` ignores it.
            return
        from_thread = cast("IReactorFromThreads", reactor).callFromThread
        self._before = signal.signal(signal.SIGHUP, lambda *_: from_thread(self.reload))
        self._is_installed = True

    def remove(self) -> None:
        """Restore the previous handler of SIGHUP."""
        if self._is_installed:
            self._is_installed = False
            signal.signal(signal.SIGHUP, self._before)

    def reload(self) -> None:
        """Reload the file; if it has errors, nothing changes and each error is logged.

        Without a file, a broker in a terminal stops, since the terminal was closed; any other
        continues.
        """
        lifecycle = self._lifecycle
        if self._path is None and os.isatty(_STANDARD_INPUT):
            from twisted.internet import reactor

            stop_reactor(reactor)
            return
        if not lifecycle.is_listening:
            # A broker that stands by, or stops, is not ready before or after.
            self._read()
            return
        lifecycle.notifier.reloading()
        is_read = self._read()
        mistakes = "" if is_read else f"; {self._path} is invalid: see the log"
        lifecycle.notifier.ready(lifecycle.state + mistakes)

    def _read(self) -> bool:
        """Reload the settings; return True if they were valid and have been applied."""
        old, path = self._settings, self._path
        lifecycle = self._lifecycle
        if path is None:
            process_events.no_settings_file()
            return True
        try:
            new = read_settings(path, self._overrides)
            is_other = _access(new) != _access(old)
            decided_by = access(new, lifecycle.clock) if is_other else None
        except SettingsError as error:
            for problem in error.problems:
                process_events.setting_invalid(problem=problem)
            process_events.settings_invalid(path=str(path))
            return False
        except (ValueError, OSError) as error:
            process_events.settings_invalid(path=str(path), error=str(error))
            return False
        for what in _lasting(old, new):
            process_events.restart_needed(path=str(path), setting=what)
        self._settings = new
        lifecycle.factory.broker.reload(new.config)
        if decided_by is not None:
            lifecycle.change_access(decided_by)
        lifecycle.change_beanstalk(new.beanstalk)
        lifecycle.log_frames(wanted=new.log.frames)
        if new.log.format is not None:
            self._log.format = new.log.format
        process_events.settings_reloaded(path=str(path))
        return True


def _access(settings: Settings) -> tuple[object, ...]:
    """Return the settings of access control; the dialect affects patterns in rights."""
    return settings.auth, settings.rights, settings.broker.dialect == "activemq"


def _lasting(old: Settings, new: Settings) -> Iterator[str]:
    """Yield the changed settings that take effect only after a restart."""
    looks: dict[str, Callable[[Settings], object]] = {
        "[store]": lambda settings: settings.store,
        "[high_availability]": lambda settings: settings.high_availability,
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
