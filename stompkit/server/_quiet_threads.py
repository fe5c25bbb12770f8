"""Threads for work that may take its time: the reactor's thread comes first, and all else does."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

__all__ = ["run_quietly"]

T = TypeVar("T")

#: As many as ever run: who uses them bounds that further.
_MOST_THREADS: Final = 4
#: What ``nice`` adds by default.
_NICENESS: Final = 10
_NICEST: Final = 19

_here: Final = threading.local()
_pools: Final[list[ThreadPool]] = []


def run_quietly(work: Callable[[], T]) -> Deferred[T]:
    """Call a function in a thread that gets what time others leave; gives what it returns.

    Anywhere but on Linux they are threads like all others.
    """
    from twisted.internet import reactor

    installed = cast("Any", reactor)
    if not _pools:
        pool = ThreadPool(minthreads=0, maxthreads=_MOST_THREADS, name="quiet")
        pool.start()
        _pools.append(pool)
        installed.addSystemEventTrigger("during", "shutdown", pool.stop)
    done: Deferred[T] = deferToThreadPool(installed, _pools[0], _quietly, work)
    return done


def _quietly(work: Callable[[], T]) -> T:
    if not getattr(_here, "is_quiet", False):
        _here.is_quiet = True
        if sys.platform == "linux":
            # Elsewhere the number of a thread may be that of another process.
            with suppress(OSError):
                thread = threading.get_native_id()
                before = os.getpriority(os.PRIO_PROCESS, thread)
                os.setpriority(os.PRIO_PROCESS, thread, min(before + _NICENESS, _NICEST))
    return work()
