"""Computes scrypt (RFC 7914) for a broker, in a process of its own, which comes after the broker's.

Run as a file, with nothing but Python's own library, and ``idle`` or ``nice``: how it comes after
the broker. It reads requests from standard input, each
the numbers of :data:`REQUEST` and behind them the passcode and the salt, and writes the key of each
to standard output. It ends when its input does.
"""

from __future__ import annotations

import hashlib
import os
import signal
import struct
import sys
from typing import BinaryIO, Final

__all__ = ["NICENESS", "REQUEST", "derived", "serve"]

#: log2 of N, r, p, octets of the key, of the passcode and of the salt.
REQUEST: Final = struct.Struct("!6I")
#: What ``nice`` adds by default.
NICENESS: Final = 10


def derived(passcode: bytes, salt: bytes, log2_n: int, r: int, p: int, key_bytes: int) -> bytes:
    """The key of a passcode; takes the time and memory of its cost."""
    n = 1 << log2_n
    # OpenSSL counts small buffers beside the large one.
    allowed = 2 * 128 * r * n + 1024 * 1024
    return hashlib.scrypt(passcode, salt=salt, n=n, r=r, p=p, maxmem=allowed, dklen=key_bytes)


def serve(requests: BinaryIO, keys: BinaryIO) -> None:
    """Answer requests until there are no more."""
    while len(head := requests.read(REQUEST.size)) == REQUEST.size:
        log2_n, r, p, key_bytes, passcode_bytes, salt_bytes = REQUEST.unpack(head)
        passcode, salt = requests.read(passcode_bytes), requests.read(salt_bytes)
        keys.write(derived(passcode, salt, log2_n, r, p, key_bytes))
        keys.flush()


if __name__ == "__main__":
    # That of a terminal is for all of its programs; this one goes when the broker does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        if sys.argv[1] == "idle" and sys.platform == "linux":
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        else:
            os.nice(NICENESS)
    except OSError:
        # A sandbox may forbid it. It computes all the same.
        pass
    serve(sys.stdin.buffer, sys.stdout.buffer)
