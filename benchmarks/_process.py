"""A broker in a child process, and the figures of Linux about it in ``/proc``."""

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
    "family",
    "memory",
    "need_proc",
    "open_files",
    "process_id",
    "processes",
    "shared_memory",
    "start",
]

MIB: Final = 1 << 20
_INTERVAL_S: Final = 0.02
#: Bytes of a block in ``st_blocks``, for every file system (POSIX, <sys/stat.h>).
_BLOCK_BYTES: Final = 512
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """Figures of a process from ``/proc``."""

    name: str
    parent: int
    own_s: float
    """Seconds of processor time that it has used."""
    ended_s: float
    """The same of its children that have ended."""


def need_proc() -> None:
    """End the program if ``/proc`` is missing."""
    if not Path("/proc/self/stat").exists():
        raise unusable("processes are looked at in /proc, as Linux has it: there is none here")


def processes(pids: Iterable[int] | None = None) -> dict[int, Process]:
    """Return the existing processes among ``pids``; without them all of this machine."""
    found = {}
    if pids is None:
        pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has ended
        # proc(5): the name is in brackets, and may contain brackets.
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        user, system, ended_user, ended_system = (int(each) * _TICK_S for each in fields[11:15])
        found[pid] = Process(name, int(fields[1]), user + system, ended_user + ended_system)
    return found


def family(pid: int) -> list[int]:
    """Return a process and all of its descendants."""
    found, all_processes = [pid], processes()
    for parent in found:
        found += [child for child, each in all_processes.items() if each.parent == parent]
    return found


def busy_s() -> float:
    """Return the processor time that all processes of this machine have used, in seconds."""
    user, nice, system, *_ = Path("/proc/stat").read_text(encoding="ascii").split()[1:]
    return (int(user) + int(nice) + int(system)) * _TICK_S


def start(directory: Path, *arguments: str) -> RunningBroker:
    """Launch this package's broker with ``arguments``; log and data stay in ``directory``."""
    need_proc()
    return launch(LaunchConfig(arguments=arguments, directory=directory, stop_timeout_s=60.0))


def process_id(broker: RunningBroker) -> int:
    """Return the process id of the broker from the announce file, as its parent is the guard."""
    assert broker.directory is not None
    announced = json.loads((broker.directory / "announce.json").read_text(encoding="utf-8"))
    pid: int = announced["pid"]
    return pid


def memory(pid: int) -> tuple[int, int]:
    """Return the anonymous and the resident memory of a process, in bytes.

    The anonymous part has been allocated by the process. The rest are pages of files, which the
    system can drop at any time: programs, libraries, and the store's data where it is mapped.
    Swapped anonymous memory is counted, too.
    """
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    named = dict(line.split(":", 1) for line in lines)
    swapped, anonymous, resident = (
        int(named[name].split()[0]) * 1024 for name in ("VmSwap", "RssAnon", "VmRSS")
    )
    return anonymous + swapped, resident + swapped


def shared_memory(pid: int) -> int:
    """Return the proportional set size of a process, in bytes; 0 if it has ended.

    Pages that several processes share count as their part of it.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


class Watch:
    """Samples a process's anonymous memory for its peak.

    The kernel keeps such a peak for all resident memory only, pages of files included.
    """

    def __init__(self, pid: int) -> None:
        """Take the first sample."""
        self._pid = pid
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.peak_bytes = memory(pid)[0]

    def __enter__(self) -> Self:
        """Start sampling."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Take the last sample, if the process still exists."""
        self._end.set()
        self._thread.join()
        if error is None:
            self._look()

    def _run(self) -> None:
        while not self._end.wait(_INTERVAL_S):
            try:
                self._look()
            except (OSError, KeyError):
                return  # the process has ended; its clients report that

    def _look(self) -> None:
        self.peak_bytes = max(self.peak_bytes, memory(self._pid)[0])


def disk_bytes(directory: Path) -> int:
    """Return the bytes that the files of a directory allocate on the disk, without holes."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return sum(path.stat().st_blocks for path in files) * _BLOCK_BYTES


def open_files(wanted: int) -> int:
    """Raise the limit of open files of this process and its children to ``wanted``.

    Return the new limit, which is lower if the hard limit cannot be raised.
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
    """Raise the limit of open files of this process and its children, or end the program."""
    hard = open_files(needed)
    if hard < needed:
        raise unusable(
            f"{needed} open files are needed, and the hard limit is {hard}.\n"
            f"Raise it: run `ulimit -n {needed}` as root before this program, or set\n"
            f"LimitNOFILE={needed} in a systemd unit, nofile in /etc/security/limits.conf, or\n"
            f"--ulimit nofile={needed} for a container; or open fewer connections."
        )
