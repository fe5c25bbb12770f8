"""The processor time of a broker, and of everything else on the machine, during a run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks._process import busy_s, processes
from benchmarks.load._running import Running

__all__ = ["Meter", "append_us"]

#: Bytes and number of the appends that measure a disk.
_APPEND: Final = bytes(200)
_APPENDS: Final = 200


class Meter:
    """Measures from its creation."""

    def __init__(self, running: Running) -> None:
        """Start."""
        self._pids = running.pids()
        self._broker_s, self._all_s, self._began = self._cpu_s(), busy_s(), time.monotonic()

    def _cpu_s(self) -> float:
        """Return the processor time of the broker's running processes, in seconds."""
        return sum(process.own_s for process in processes(self._pids).values())

    def read(self, report: dict[str, Any]) -> None:
        """Add the broker's processor time, and the cores used by other programs, to the report."""
        took_s = time.monotonic() - self._began
        report["broker_cpu_s"] = self._cpu_s() - self._broker_s
        others_s = busy_s() - self._all_s - report["broker_cpu_s"] - report["generator_cpu_s"]
        report["others_cores"] = max(0.0, others_s / took_s)


def append_us(directory: Path) -> float:
    """Return the median time of an append that is synced to the disk, in microseconds.

    It is the lower bound for a broker that confirms one persistent message at a time.
    """
    path = directory / "append"
    took: list[float] = []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for _ in range(_APPENDS):
            began = time.perf_counter()
            os.write(descriptor, _APPEND)
            os.fdatasync(descriptor)
            took.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
        path.unlink()
    return median(took) * 1e6
