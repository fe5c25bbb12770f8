"""A broker in a process of its own, and what Linux says of the process in ``/proc``."""

from __future__ import annotations

import json
import os
import resource
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from benchmarks._report import unusable
from stompkit.testing import LaunchConfig, RunningBroker, launch

__all__ = [
    "MIB",
    "Process",
    "Watch",
    "allow_open_files",
    "busy_s",
    "disk_bytes",
    "memory",
    "need_proc",
    "open_files",
    "process_id",
    "processes",
    "start",
]

MIB: Final = 1 << 20
_INTERVAL_S: Final = 0.02
#: Octets of a block in ``st_blocks``, whatever the file system's are (POSIX, <sys/stat.h>).
_BLOCK_BYTES: Final = 512
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """What ``/proc`` tells of a process."""

    name: str
    parent: int
    own_s: float
    """Seconds of processor time that it has used."""
    ended_s: float
    """The same of its children that have ended."""


def need_proc() -> None:
    """End the program where there is no ``/proc``."""
    if not Path("/proc/self/stat").exists():
        raise unusable("processes are looked at in /proc, as Linux has it: there is none here")


def processes(pids: Iterable[int] | None = None) -> dict[int, Process]:
    """Those of ``pids`` that are there; without them all of this machine."""
    found = {}
    if pids is None:
        pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has ended
        # proc(5): the name is in brackets, and may have some itself.
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        user, system, ended_user, ended_system = (int(each) * _TICK_S for each in fields[11:15])
        found[pid] = Process(name, int(fields[1]), user + system, ended_user + ended_system)
    return found


def busy_s() -> float:
    """Processor time that everything on this machine has used, in seconds."""
    user, nice, system, *_ = Path("/proc/stat").read_text(encoding="ascii").split()[1:]
    return (int(user) + int(nice) + int(system)) * _TICK_S


def start(directory: Path, *arguments: str) -> RunningBroker:
    """Launch this package's broker with ``arguments``; log and data stay in ``directory``."""
    need_proc()
    return launch(LaunchConfig(arguments=arguments, directory=directory, stop_timeout_s=60.0))


def process_id(broker: RunningBroker) -> int:
    """The broker's process: the announce file tells it, since a guard stands between."""
    assert broker.directory is not None
    announced = json.loads((broker.directory / "announce.json").read_text(encoding="utf-8"))
    pid: int = announced["pid"]
    return pid


def memory(pid: int) -> tuple[int, int]:
    """A process's anonymous and all its resident memory, in octets.

    The anonymous part is what the process has allocated; the rest are pages of files, which the
    system can drop at any time: programs, libraries, and the store's data where it is mapped.
    Anonymous memory that was swapped out is counted, too.
    """
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    named = dict(line.split(":", 1) for line in lines)
    swapped, anonymous, resident = (
        int(named[name].split()[0]) * 1024 for name in ("VmSwap", "RssAnon", "VmRSS")
    )
    return anonymous + swapped, resident + swapped


class Watch:
    """Looks at a process's anonymous memory again and again, for the most that it has.

    The kernel keeps such a maximum for all resident memory only, pages of files included.
    """

    def __init__(self, pid: int) -> None:
        """Look for the first time."""
        self._pid = pid
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.peak_bytes = memory(pid)[0]

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Look for the last time, if the process is still there."""
        self._end.set()
        self._thread.join()
        if error is None:
            self._look()

    def _run(self) -> None:
        while not self._end.wait(_INTERVAL_S):
            try:
                self._look()
            except (OSError, KeyError):
                return  # the process has ended; who talks to it knows why

    def _look(self) -> None:
        self.peak_bytes = max(self.peak_bytes, memory(self._pid)[0])


def disk_bytes(directory: Path) -> int:
    """What the files of a directory take on the disk, holes not counted."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return sum(path.stat().st_blocks for path in files) * _BLOCK_BYTES


def open_files(wanted: int) -> int:
    """Let this process, and those that it starts, have ``wanted`` files open at a time each.

    Gives how many they may have, which is less where the hard limit can't be raised.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    if hard == resource.RLIM_INFINITY or hard >= wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
    except (OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return wanted


def allow_open_files(needed: int) -> None:
    """Let this process, and those that it starts, have so many files open, or end the program."""
    hard = open_files(needed)
    if hard < needed:
        raise unusable(
            f"{needed} open files are needed, and the hard limit is {hard}.\n"
            f"Raise it: run `ulimit -n {needed}` as root before this program, or set\n"
            f"LimitNOFILE={needed} in a systemd unit, nofile in /etc/security/limits.conf, or\n"
            f"--ulimit nofile={needed} for a container; or open fewer connections."
        )
