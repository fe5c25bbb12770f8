"""Remove directories after the process that registered them has ended.

    python -I sweeper.py PID

Standard input is a pipe from the process PID, the parent of this program.  It carries the paths of
the directories, each followed by a NUL.  The directories are removed with all their contents when
the pipe ends, when an empty path comes, or when the parent changes: each one once the guards of the
brokers in it have ended, which hold a lock on it.  Standard library only: it runs under ``python
-I``.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
from contextlib import suppress

_STDIN = 0
_CHUNK_BYTES = 65_536
#: Interval in seconds between two checks of the parent process: a process that the parent forked
#: may keep the pipe open.
_PARENT_CHECK_S = 0.5


def _paths(parent: int) -> list[bytes]:
    """Return the paths, once the parent has gone."""
    octets = b""
    while True:
        is_gone = os.getppid() != parent
        chunk = None
        if select.select([_STDIN], [], [], 0 if is_gone else _PARENT_CHECK_S)[0]:
            chunk = os.read(_STDIN, _CHUNK_BYTES)
            octets += chunk
        # A path without its NUL is not complete, and may be that of another directory.
        *paths, _ = octets.split(b"\0")
        # If another process still has the pipe, its remaining data is read first.
        if chunk == b"" or b"" in paths or (is_gone and not chunk):
            return list(filter(None, paths))


def _wait_for_guards(folder: bytes) -> None:
    """Wait until no guard of a broker holds the lock on a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def main(parent: int) -> None:
    """Run the program."""
    # Such a signal may be for all processes of a job. This one ends after its parent.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    paths = _paths(parent)
    # Imported only now: it takes as long as the start of Python, which the tests wait for.
    import shutil

    for path in paths:
        # The folder may be gone, and a network's file system may have no locks.
        with suppress(OSError):
            _wait_for_guards(path)
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
