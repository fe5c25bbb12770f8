"""Remove directories after the process that registered them has ended.

    python -I sweeper.py PID

Standard input is a pipe from the process PID, the parent of this program.  It carries the paths of
the directories, each followed by a NUL.  The directories are removed with all their contents when
the pipe ends, when an empty path comes, or when the parent changes.  Standard library only: it runs
under ``python -I``.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys

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


def main(parent: int) -> None:
    """Run the program."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for path in _paths(parent):
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
