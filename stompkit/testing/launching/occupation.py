"""The exclusive use of a directory by a broker that runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from stompkit._common.files import FileLock

__all__ = ["Occupation"]

_FILE: Final = "in-use.lock"
#: The occupations of this process by the paths of their directories.
_HERE: Final[WeakValueDictionary[Path, Occupation]] = WeakValueDictionary()


class Occupation:
    """Keeps other brokers out of a directory: two of them would share sockets, data and logs.

    Brokers of all processes can use it one after the other.
    """

    def __init__(self, directory: Path, is_running: Callable[[], bool]) -> None:
        """Prepare for a broker; ``is_running`` returns True while it runs."""
        self._path = directory.resolve()
        self._lock = FileLock(self._path / _FILE)
        self._is_running = is_running

    def begin(self) -> None:
        """Take the directory, unless done already; raises LockedError and OSError."""
        if self._lock.is_held:
            return
        before = _HERE.get(self._path)
        if before is not None and not before._is_running():
            # Its broker has ended without being stopped.
            before.end()
        self._lock.acquire()
        _HERE[self._path] = self

    def end(self) -> None:
        """Leave the directory to others; harmless the second time."""
        self._lock.release()
