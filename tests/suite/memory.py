"""Keep the temporary files of tests in memory, where there is enough of it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["files_in_memory"]

#: File system in memory of Linux.
_FOLDER: Final = Path("/dev/shm")
#: Room that the folder needs, in bytes; containers often have 64 MiB.
_LEAST_ROOM: Final = 2 << 30
#: Memory that has to be available, in bytes: for these files and for the tests.
_LEAST_MEMORY: Final = 6 << 30


@contextmanager
def files_in_memory() -> Iterator[bool]:
    """Set ``TMPDIR`` to a folder in memory, which is removed at the end; tells if it was done.

    The kernel then has less to do for the databases and stores of tests, and syncs take no time. A
    ``TMPDIR`` that somebody has set stays.
    """
    if "TMPDIR" in os.environ or not _has_room():
        yield False
        return
    # A short name: the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="t-", dir=_FOLDER, ignore_cleanup_errors=True) as name:
        # Servers of tests that run as other users have their folders in it.
        Path(name).chmod(0o711)
        os.environ["TMPDIR"] = name
        try:
            yield True
        finally:
            del os.environ["TMPDIR"]


def _has_room() -> bool:
    try:
        room = os.statvfs(_FOLDER)
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return False
    kibibytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return room.f_bavail * room.f_frsize >= _LEAST_ROOM and kibibytes << 10 >= _LEAST_MEMORY
