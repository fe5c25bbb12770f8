"""A long backlog, and many connections: their number, and their cost.

Each is measured once, with a broker that has done nothing else. Both are bounded in time: a slow
broker gets fewer messages or connections.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from benchmarks._process import disk_bytes, open_files
from benchmarks.load._cells import Cell
from benchmarks.load._generator import held, run
from benchmarks.load._meter import Meter
from benchmarks.load._peers import SPARE_FILES, Peer
from benchmarks.load._running import Running

__all__ = ["EXTREMES", "Extreme"]

#: Takes a peer, its running instance, the cell, and the seconds of a usual run.
Extreme = Callable[[Peer, Running, Cell, float], dict[str, Any]]

#: Approximate maximum duration, as a multiple of a usual run.
_BACKLOG: Final = 90.0
_IDLE: Final = 20.0
#: Messages of the runs that measure a broker's speed: the second one with a warm broker.
_FIRST: Final = (2_000, 5_000)
#: A run is ended when a long queue is slower than a short one by this factor.
_SLOWER: Final = 2.0
#: Additional time for anything else, in seconds.
_SPARE_S: Final = 30.0


def _backlog(peer: Peer, running: Running, cell: Cell, seconds: float) -> dict[str, Any]:
    """Fill a queue, kill the broker, start it again, and empty the queue."""
    budget_s = seconds * _BACKLOG
    most_s = budget_s * _SLOWER + _SPARE_S
    each_s = 0.0
    for number, messages in enumerate(_FIRST):
        given = (*peer.arguments(running, cell, f"first-{number}"), "--messages", str(messages))
        filled, drained = run(*given), run(*given, *_DRAIN)
        each_s = (filled["seconds"] + drained["seconds"]) / messages
    messages = min(cell.count, max(_FIRST[-1], int(budget_s / each_s)))
    given = (*peer.arguments(running, cell, "backlog"), "--messages", str(messages))
    before = running.memory_bytes()
    meter = Meter(running)
    report = run(*given, most_s=most_s)
    meter.read(report)
    report["memory_before_bytes"], report["memory_bytes"] = before, running.memory_bytes()
    report["disk_bytes"] = disk_bytes(running.directory)
    began = time.monotonic()
    running.restart()
    ready_s = time.monotonic() - began
    drained = run(*given, *_DRAIN, most_s=most_s)
    report["restart_s"] = ready_s + drained["first_s"]
    report["drain_per_second"] = drained["per_second"]
    report["drained_memory_bytes"] = running.memory_bytes()
    return report


def _idle(peer: Peer, running: Running, cell: Cell, seconds: float) -> dict[str, Any]:
    """Open connections and look at the broker's memory."""
    count = min(cell.count, open_files(cell.count + SPARE_FILES) - SPARE_FILES)
    # The first connection makes a broker load code that it has not needed before.
    with held(*peer.arguments(running, cell, ""), "--messages", str(cell.parallel)):
        pass
    before = running.memory_bytes()
    meter = Meter(running)
    given = (*peer.arguments(running, cell, ""), "--messages", str(count))
    most_s = seconds * _IDLE
    with held(*given, "--most", str(most_s), most_s=most_s + _SPARE_S) as report:
        meter.read(report)
        report["memory_before_bytes"], report["memory_bytes"] = before, running.memory_bytes()
    return report


_DRAIN: Final = ("--phase", "drain", "--consumers", "1")
#: The functions, by the kind of the cell.
EXTREMES: Final[dict[str, Extreme]] = {"backlog": _backlog, "idle": _idle}
