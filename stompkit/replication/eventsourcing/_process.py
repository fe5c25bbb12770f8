"""Which process it was, and whether it still runs."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path

import msgspec

__all__ = ["Process", "is_running", "this_process"]


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process, told apart from a later one that has got the same number."""

    #: The machine since it was booted, and the container.
    place: str
    pid: int
    #: When it was started, in the terms of the system; empty where that is not known.
    started: str


def this_process() -> Process:
    """The process that asks; another one after a fork."""
    return _process(os.getpid())


def is_running(process: Process) -> bool:
    """Whether a process is known to run. Of those elsewhere nothing is known."""
    if process.place != _place():
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _started(process.pid) == process.started


@cache
def _process(pid: int) -> Process:
    return Process(place=_place(), pid=pid, started=_started(pid))


@cache
def _place() -> str:
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:  # not Linux
        pass
    return " ".join(parts)


def _started(pid: int) -> str:
    """Field 22 of proc_pid_stat(5), in clock ticks since boot; a zombie does not run any more."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    # The second field, the name, may hold blanks and parentheses itself.
    state, *fields = stat.rpartition(")")[2].split()
    return "ended" if state in "ZX" else fields[18]
