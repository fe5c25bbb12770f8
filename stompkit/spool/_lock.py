"""The right to write to a spool: the operating system's lock, which ends with its process."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from stompkit.spool._problems import SpoolInUse

__all__ = ["FolderLock"]

_NAME: Final = "lock"


class FolderLock:
    """Held from the beginning until it is closed."""

    def __init__(self, folder: Path) -> None:
        """Take the lock of a folder; raises :class:`SpoolInUse`, which names who has it."""
        path = folder / _NAME
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
        except BlockingIOError:
            os.close(descriptor)
            raise SpoolInUse(f"{folder} is written to by {_holder(path)}") from None
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor: int | None = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the lock up; harmless when it has been."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # Closing is not enough where the process was forked and the other one lives on.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _holder(path: Path) -> str:
    words = path.read_text(encoding="utf-8", errors="replace").split()
    if len(words) != 2 or not words[0].isdigit():
        return "another process"
    return f"process {words[0]} on {words[1]}"
