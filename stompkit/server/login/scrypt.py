"""scrypt (RFC 7914) beside the broker: in processes of their own, so that nobody waits for it.

A thread of the broker's own process would do for the processor, but not for Python's lock: it takes
the lock when a key is there, and one that is to come after all others may be made to wait while it
has it, and the reactor's thread with it.

The processes get what time nobody else wants, so that the broker never waits for the end of a slice
of theirs. Where nobody leaves any time they are replaced for a while, by such as are only nice.
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
from twisted.logger import Logger
from twisted.python.threadpool import ThreadPool

from stompkit.server.login import scrypt_worker

__all__ = ["Scrypt", "compute_beside", "end_all", "processes_beside"]

_log: Final = Logger()

#: As many as ever run: who uses them bounds that further.
_MOST_PROCESSES: Final = 4
#: Seconds until a process that comes after all others is taken for one that never gets a turn, and
#: for how long there are such then as are nice.
_PATIENCE_S: Final = 2.0
_NICE_S: Final = 60.0
#: Seconds until one that is only nice is taken for one that stands still.
_LONG_S: Final = 60.0


class Scrypt(NamedTuple):
    """A key to be computed; calling it does so here."""

    passcode: bytes
    salt: bytes
    log2_n: int
    r: int
    p: int
    key_bytes: int

    def __call__(self) -> bytes:
        """The key. Takes the time and memory of the cost."""
        return scrypt_worker.derived(*self)


def processes_beside() -> int:
    """How many can compute at a time, and leave a processor to the broker."""
    has_affinity = hasattr(os, "sched_getaffinity")
    processors = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, min(_MOST_PROCESSES, processors - 1))


def compute_beside(work: Scrypt) -> Deferred[bytes]:
    """Compute a key in another process, of a lower priority; where there can be none, in a thread.

    Fails with OSError where the process dies of it, is killed, or stands still. The next key has
    another one.
    """
    from twisted.internet import reactor

    if not _pools:
        pool = ThreadPool(minthreads=0, maxthreads=_MOST_PROCESSES, name="scrypt")
        pool.start()
        _pools.append(pool)
        cast("Any", reactor).addSystemEventTrigger("during", "shutdown", end_all)
    done: Deferred[bytes] = deferToThreadPool(cast("Any", reactor), _pools[0], _ask, work)
    return done


class _TooSlow(Exception):
    """No key has come: the process is of no use any more."""


class _Worker:
    """A process that computes, for one thread."""

    def __init__(self, *, is_idle: bool) -> None:
        """Start it, to come after everything that runs, or only to be nice; raises OSError."""
        if not sys.executable:
            raise FileNotFoundError("Python does not know where its interpreter is")
        path = Path(scrypt_worker.__file__)
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}")
        pipe = subprocess.PIPE
        # Isolated, and without what is installed: it starts sooner, and takes less memory.
        command = [sys.executable, "-I", "-S", str(path), "idle" if is_idle else "nice"]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe)
        self.is_idle = is_idle

    def ask(self, work: Scrypt) -> bytes:
        """Have a key computed; raises OSError, and :class:`_TooSlow`."""
        numbers = (*work[2:], len(work.passcode), len(work.salt))
        requests, keys = self._process.stdin, self._process.stdout
        assert requests is not None and keys is not None  # they are pipes
        requests.write(scrypt_worker.REQUEST.pack(*numbers) + work.passcode + work.salt)
        requests.flush()
        if not _is_readable(keys, _PATIENCE_S if self.is_idle else _LONG_S):
            if self.is_idle:
                raise _TooSlow
            raise TimeoutError(f"no scrypt was computed within {_LONG_S:g} seconds")
        key = keys.read(work.key_bytes)
        if len(key) != work.key_bytes:
            raise BrokenPipeError("the process that computes scrypt has ended")
        return key

    @property
    def has_ended(self) -> bool:
        """Whether it is not there any more."""
        return self._process.poll() is not None

    def end(self) -> None:
        """End it; nobody waits for it any more."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None  # they are pipes
            with suppress(OSError):
                stream.close()
        self._process.wait()


def _is_readable(stream: IO[bytes], within_s: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return bool(selector.select(within_s))


class _Here(threading.local):
    """What a thread has."""

    worker: _Worker | None = None
    nice_until: float = 0.0


_pools: Final[list[ThreadPool]] = []
_workers: Final[list[_Worker]] = []
_here: Final = _Here()


def _ask(work: Scrypt) -> bytes:
    """Ask the process of this thread, with another one where that has ended meanwhile."""
    try:
        worker = _worker()
    except OSError as error:
        _log.warn("no process can be started to compute scrypt: {error}", error=error)
        return work()
    try:
        return worker.ask(work)
    except _TooSlow:
        _forget(worker)
        _here.nice_until = time.monotonic() + _NICE_S
        return _ask(work)
    except OSError:
        _forget(worker)
        raise


def _worker() -> _Worker:
    """The process of this thread; raises OSError where there can be none."""
    is_idle = time.monotonic() >= _here.nice_until
    worker = _here.worker
    if worker is not None and (worker.has_ended or worker.is_idle is not is_idle):
        _forget(worker)
        worker = None
    if worker is None:
        worker = _here.worker = _Worker(is_idle=is_idle)
        _workers.append(worker)
    return worker


def _forget(worker: _Worker) -> None:
    _workers.remove(worker)
    worker.end()
    _here.worker = None


def end_all() -> None:
    """Wait for what is being computed, and end all processes; more can be asked for after it."""
    while _pools:
        _pools.pop().stop()
    while _workers:
        _workers.pop().end()
