"""Identity of a process, and a check that it still runs."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path

import msgspec

__all__ = ["Process", "is_running", "this_process"]


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process, distinct from a later process with the same pid."""

    #: Host name, boot id of the machine, and pid namespace of the container.
    place: str
    pid: int
    #: Start time in the system's own units; empty if unknown.
    started: str


def this_process() -> Process:
    """Return the current process; a different one after a fork."""
    return _process(os.getpid())


def is_running(process: Process) -> bool:
    """Return True if the process is known to run; False for processes on other machines."""
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
    """Return field 22 of proc_pid_stat(5), in clock ticks since boot; "ended" for a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    # The second field, the name, may itself contain blanks and parentheses.
    state, *fields = stat.rpartition(")")[2].split()
    return "ended" if state in "ZX" else fields[18]
