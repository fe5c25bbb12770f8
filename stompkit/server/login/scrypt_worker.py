"""Compute scrypt (RFC 7914) for a broker, in a separate low-priority process.

Run it as a file, with only the standard library, and a :class:`Priority` as argument. It reads
requests from standard input, each with the numbers of :data:`REQUEST`, the passcode and the salt.
It writes each key to standard output. It ends at the end of its input.
"""

from __future__ import annotations

import hashlib
import os
import signal
import struct
import sys
from enum import Enum
from typing import BinaryIO, Final

__all__ = ["NICENESS", "REQUEST", "Priority", "derived", "serve"]

#: log2 of N, r, p, and the lengths in bytes of the key, of the passcode and of the salt.
REQUEST: Final = struct.Struct("!6I")
#: Default increment of ``nice``.
NICENESS: Final = 10


class Priority(Enum):
    """Priority of the process, relative to all others."""

    IDLE = "idle"
    """It runs when no other process does, where the system has such a priority."""
    NICE = "nice"
    """Those of normal priority get about ten times as much of a processor."""
    NORMAL = "normal"
    """It gets as much as others."""


def derived(passcode: bytes, salt: bytes, log2_n: int, r: int, p: int, key_bytes: int) -> bytes:
    """Return the key of a passcode; takes the time and memory of its cost."""
    n = 1 << log2_n
    # OpenSSL counts small buffers in addition to the large one.
    allowed = 2 * 128 * r * n + 1024 * 1024
    return hashlib.scrypt(passcode, salt=salt, n=n, r=r, p=p, maxmem=allowed, dklen=key_bytes)


def serve(requests: BinaryIO, keys: BinaryIO) -> None:
    """Answer requests until the end of input."""
    while len(head := requests.read(REQUEST.size)) == REQUEST.size:
        log2_n, r, p, key_bytes, passcode_bytes, salt_bytes = REQUEST.unpack(head)
        passcode, salt = requests.read(passcode_bytes), requests.read(salt_bytes)
        keys.write(derived(passcode, salt, log2_n, r, p, key_bytes))
        keys.flush()


if __name__ == "__main__":
    # A terminal's interrupt reaches all of its programs; this one ends with the broker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        priority = Priority(sys.argv[1])
        if priority is Priority.IDLE and sys.platform == "linux":
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        elif priority is not Priority.NORMAL:
            os.nice(NICENESS)
    except OSError:
        # A sandbox may forbid it. The process then computes with normal priority.
        pass
    serve(sys.stdin.buffer, sys.stdout.buffer)
