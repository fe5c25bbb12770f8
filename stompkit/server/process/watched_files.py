"""Files that are read again when they have changed: passwords, certificates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

from twisted.logger import Logger

__all__ = ["Watched"]

_log: Final = Logger()

T = TypeVar("T")


class Watched(Generic[T]):
    """What some files say, as of their last change that made sense.

    A change that makes no sense is logged, once, and what was read before it stays.
    """

    def __init__(self, paths: Sequence[Path], read: Callable[[], T]) -> None:
        """Read for the first time.

        ``read`` raises OSError or ValueError where it can't, and so does this.
        """
        self._paths = paths
        self._read = read
        self._state = self._look()
        self._value = read()

    def get(self) -> T:
        """What the files say now; looks at them each time, and reads them if they differ."""
        state = self._look()
        if state != self._state:
            self._state = state
            names = ", ".join(map(str, self._paths))
            try:
                self._value = self._read()
            except (OSError, ValueError) as error:
                _log.error(
                    "{files} changed, but what it said before stays: {reason}",
                    files=names,
                    reason=str(error),
                )
            else:
                _log.info("{files} changed and was read", files=names)
        return self._value

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_state(path) for path in self._paths]


def _state(path: Path) -> tuple[int, int, int] | None:
    """What differs once a file has changed: its time, size or identity; ``None`` for no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
