"""Compute scrypt (RFC 7914) in separate processes, without blocking the broker.

A thread of the broker's process would use another processor, but needs Python's interpreter lock
when a key is complete. A low-priority thread may be suspended while it holds the lock, and block
the reactor's thread.

The processes run with idle priority, so that the broker never waits for the end of their time
slices. If no processor is ever idle, they are replaced for a while by processes that are only nice,
and if these get no time either, by processes of normal priority: a login has to be decided within
its timeout.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from stompkit.server.log import login_events
from stompkit.server.login import scrypt_worker
from stompkit.server.login.scrypt_worker import Priority

__all__ = ["Scrypt", "compute_beside", "end_all", "processes_beside"]


#: Maximum number of processes; callers limit it further.
_MOST_PROCESSES: Final = 4
#: Time in seconds within which a process has to answer. After it, one of idle or nice priority
#: counts as starved, and one of normal priority as stuck.
_ANSWER_S: Final = {Priority.IDLE: 1.0, Priority.NICE: 1.0, Priority.NORMAL: 60.0}
#: What replaces a starved process, and for how many seconds.
_NEXT: Final = {Priority.IDLE: Priority.NICE, Priority.NICE: Priority.NORMAL}
_RAISED_S: Final = 60.0


class Scrypt(NamedTuple):
    """A key to compute; calling it computes the key in this process."""

    passcode: bytes
    salt: bytes
    log2_n: int
    r: int
    p: int
    key_bytes: int

    def __call__(self) -> bytes:
        """Return the key. Takes the time and memory of the cost."""
        return scrypt_worker.derived(*self)


def processes_beside() -> int:
    """Return the number of concurrent processes that leave one processor to the broker."""
    has_affinity = hasattr(os, "sched_getaffinity")
    processors = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, min(_MOST_PROCESSES, processors - 1))


def compute_beside(work: Scrypt) -> Deferred[bytes]:
    """Compute a key in another process of lower priority, or in a thread if that is impossible.

    Fails with OSError if the process crashes, is killed or is stuck. The next key uses a new
    process.
    """
    from twisted.internet import reactor

    if not _pools:
        pool = ThreadPool(minthreads=0, maxthreads=_MOST_PROCESSES, name="scrypt")
        pool.start()
        _pools.append(pool)
        cast("Any", reactor).addSystemEventTrigger("during", "shutdown", end_all)
    done: Deferred[bytes] = deferToThreadPool(cast("Any", reactor), _pools[0], _ask, work)
    return done


class _TooSlowError(Exception):
    """No key was returned in time: the process is abandoned."""


class _Worker:
    """A computing process, used by one thread."""

    def __init__(self, priority: Priority) -> None:
        """Start the process; raises OSError."""
        if not sys.executable:
            raise FileNotFoundError("Python does not know where its interpreter is")
        path = Path(scrypt_worker.__file__)
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}")
        pipe = subprocess.PIPE
        # Isolated, and without site packages: it starts faster, and uses less memory.
        command = [sys.executable, "-I", "-S", str(path), priority.value]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe)
        self.priority = priority

    def ask(self, work: Scrypt) -> bytes:
        """Compute a key in the process; raises OSError and :class:`_TooSlowError`."""
        numbers = (*work[2:], len(work.passcode), len(work.salt))
        requests, keys = self._process.stdin, self._process.stdout
        assert requests is not None and keys is not None  # they are pipes
        requests.write(scrypt_worker.REQUEST.pack(*numbers) + work.passcode + work.salt)
        requests.flush()
        within_s = _ANSWER_S[self.priority]
        if not _is_readable(keys, within_s):
            if self.priority in _NEXT:
                raise _TooSlowError
            raise TimeoutError(f"no scrypt was computed within {within_s:g} seconds")
        key = keys.read(work.key_bytes)
        if len(key) != work.key_bytes:
            raise BrokenPipeError("the process that computes scrypt has ended")
        return key

    @property
    def has_ended(self) -> bool:
        """True if the process has ended."""
        return self._process.poll() is not None

    def kill(self) -> subprocess.Popen[bytes]:
        """Kill the process and return it, without waiting for its end.

        On a busy machine the end of a process of low priority takes seconds, too.
        """
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None  # they are pipes
            with suppress(OSError):
                stream.close()
        return self._process


def _is_readable(stream: IO[bytes], within_s: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return bool(selector.select(within_s))


class _Here(threading.local):
    """State of a thread."""

    worker: _Worker | None = None
    priority: Priority = Priority.IDLE
    raised_until: float = 0.0


_pools: Final[list[ThreadPool]] = []
_workers: Final[list[_Worker]] = []
#: Killed processes that may not have ended.
_killed: Final[list[subprocess.Popen[bytes]]] = []
_here: Final = _Here()


def _ask(work: Scrypt) -> bytes:
    """Ask the process of this thread, or a new one if it has ended meanwhile."""
    try:
        worker = _worker()
    except OSError as error:
        login_events.scrypt_without_process(error=str(error))
        return work()
    try:
        return worker.ask(work)
    except _TooSlowError:
        _forget(worker)
        _here.priority = _NEXT[worker.priority]
        _here.raised_until = time.monotonic() + _RAISED_S
        return _ask(work)
    except OSError:
        _forget(worker)
        raise


def _worker() -> _Worker:
    """Return the process of this thread; raises OSError if none can be started."""
    if time.monotonic() >= _here.raised_until:
        _here.priority = Priority.IDLE
    worker = _here.worker
    if worker is not None and (worker.has_ended or worker.priority is not _here.priority):
        _forget(worker)
        worker = None
    if worker is None:
        _reap()
        worker = _here.worker = _Worker(_here.priority)
        _workers.append(worker)
    return worker


def _forget(worker: _Worker) -> None:
    _workers.remove(worker)
    _killed.append(worker.kill())
    _here.worker = None


def _reap() -> None:
    """Forget killed processes that have ended."""
    for process in list(_killed):
        if process.poll() is not None:
            with suppress(ValueError):  # another thread has removed it
                _killed.remove(process)


def end_all() -> None:
    """Wait for current computations, and end all processes; later calls start new ones."""
    while _pools:
        _pools.pop().stop()
    while _workers:
        _killed.append(_workers.pop().kill())
    while _killed:
        _killed.pop().wait()
