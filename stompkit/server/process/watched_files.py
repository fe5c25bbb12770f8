"""Files that are reloaded when they change: passwords, certificates, tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from stompkit._common.files import file_state
from stompkit.server.log import process_events

__all__ = ["Watched"]


T = TypeVar("T")


class Watched(Generic[T]):
    """Content of some files, as of their last valid change.

    An invalid change is logged once, and the previous content stays. A file that could not be read
    is tried again at each check: a repaired right of a directory does not change the file.
    """

    def __init__(self, paths: Sequence[Path], read: Callable[[], T]) -> None:
        """Read the files initially.

        ``read`` raises OSError or ValueError for invalid files, and so does this.
        """
        self._paths = paths
        self._read = read
        self._state = self._look()
        self._value = read()
        self._is_unreadable = False
        #: Number of times that changed files were read.
        self.reloads = 0

    def get(self) -> T:
        """Return the current content; checks the files each time, and reloads changed ones."""
        state = self._look()
        has_changed = state != self._state
        if has_changed or self._is_unreadable:
            self._state = state
            # The certificate and its key may be in one file.
            names = ", ".join(dict.fromkeys(map(str, self._paths)))
            try:
                self._value = self._read()
                self.reloads += 1
            except (OSError, ValueError) as error:
                self._is_unreadable = isinstance(error, OSError)
                if has_changed:
                    process_events.file_invalid(path=names, error=str(error))
            else:
                self._is_unreadable = False
                process_events.file_reloaded(path=names)
        return self._value

    def _look(self) -> list[tuple[int, ...] | None]:
        return [file_state(path) for path in self._paths]
