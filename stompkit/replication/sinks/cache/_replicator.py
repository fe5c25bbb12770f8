"""A cache in Redis that a publisher of the same process keeps up to date."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from blinker import Signal
from redis import Redis, RedisError

from stompkit.replication.model.events import Changeset
from stompkit.replication.model.signals import CHANGESET, signal
from stompkit.replication.sinks.cache._keys import NAMESPACE, cache_key, delete_table, escaped

__all__ = ["RedisCacheReplicator"]

_log: Final = logging.getLogger(__name__)
#: Number of rows in one write.
_STEP: Final = 256
#: First and maximum wait in seconds after a failure of Redis.
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 30.0

_Serializer = TypeVar("_Serializer", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class _Job:
    """A changed row; without a serializer a deleted one, or the whole table."""

    #: Key in Redis; for a table, the prefix of its rows' keys.
    key: str
    row: Any = None
    serializer: Callable[..., Any] | None = None
    takes_several: bool = False
    is_table: bool = False


class RedisCacheReplicator:
    """Stores a function's results for keys, after each change by a publisher in this process.

    ::

        cache = RedisCacheReplicator("redis://localhost")

        @cache.cache("users")
        def user(key):
            return json.dumps(load_user(key))

    A ``users_write`` or ``users_update`` stores ``user(key)`` at :func:`cache_key`. A
    ``users_delete`` deletes it, and truncating the table deletes all. ``key`` is that of the
    signal: a value, or a tuple of several. The function may return text, bytes, or ``None`` to
    store nothing. If it fails, that is logged and the stored value is deleted: a cache may lack a
    row, but not have an old one.

    Functions are called in a separate thread. A row that changes again while it waits is stored
    once. While Redis is unavailable, rows wait, and are retried with a growing back-off; when
    ``queue_limit`` rows wait, the publisher blocks. They are kept in memory only; to survive a
    restart of the process, use :class:`RedisSink`.
    """

    def __init__(
        self,
        redis_url: str,
        *,
        namespace: str = NAMESPACE,
        ttl_s: float | None = None,
        timeout_s: float = 10.0,
        queue_limit: int = 10_000,
    ) -> None:
        """Configure; nothing is connected yet. Rows expire after ``ttl_s`` seconds.

        Raises ``ValueError`` for invalid arguments.
        """
        if ttl_s is not None and ttl_s < 0.001:
            raise ValueError(f"ttl_s is a time in seconds, not {ttl_s}")
        if queue_limit < 1:
            raise ValueError(f"queue_limit is a number of rows, not {queue_limit}")
        self._redis = Redis.from_url(
            redis_url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s
        )
        self._namespace = namespace
        self._ttl_ms = None if ttl_s is None else round(ttl_s * 1000)
        self._limit = queue_limit
        self._receivers: list[tuple[Signal, Callable[[Any], None]]] = []
        self._jobs: dict[str, _Job] = {}
        self._running = 0
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> RedisCacheReplicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cache(self, *tables: str, multi: bool = False) -> Callable[[_Serializer], _Serializer]:
        """Return a decorator for a function that returns the stored value of a key of ``tables``.

        With ``multi`` the function receives a list of keys, and returns a list of the same length.
        Raises ``ValueError`` without a table, and when this is closed.
        """
        if not tables or not all(isinstance(table, str) and table for table in tables):
            raise ValueError(f"these are no names of tables: {tables!r}")

        def decorate(serializer: _Serializer) -> _Serializer:
            with self._changed:
                if self._is_closed:
                    raise ValueError("the replicator is closed")
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run, name="stompkit-cache", daemon=True
                    )
                    self._thread.start()
            for table in tables:
                for action in ("write", "update", "delete"):
                    made = None if action == "delete" else serializer
                    receiver = partial(self._put, table, made, takes_several=multi)
                    self._connect(signal(f"{table}_{action}"), receiver)
                # Truncating has no row signal.
                self._connect(CHANGESET, partial(self._look_for_truncation, table))
            return serializer

        return decorate

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until no row waits; return True if that happens within ``timeout_s`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs and not self._running, timeout_s)

    def close(self, timeout_s: float = 10.0) -> bool:
        """Stop receiving, and store waiting rows; return False if ``timeout_s`` is exceeded."""
        for source, receiver in self._receivers:
            source.disconnect(receiver)
        self._receivers.clear()
        is_done = self.flush(timeout_s)
        with self._changed:
            self._is_closed = True
            if self._jobs:
                _log.error("%d rows were not stored in the cache", len(self._jobs))
            self._changed.notify_all()
        if self._thread is not None and is_done:
            self._thread.join()
        self._redis.close()
        return is_done

    # Inside.

    def _connect(self, source: Signal, receiver: Callable[[Any], None]) -> None:
        source.connect(receiver, weak=False)
        self._receivers.append((source, receiver))

    def _put(
        self, table: str, serializer: Callable[..., Any] | None, row: Any, *, takes_several: bool
    ) -> None:
        """Handle a signal: queue a row."""
        if row is None:
            # A table without a key.
            return
        values = row if isinstance(row, tuple) else (row,)
        key = cache_key(table, *values, namespace=self._namespace)
        with self._changed:
            self._add(_Job(key, row, serializer, takes_several))

    def _look_for_truncation(self, table: str, changeset: Changeset) -> None:
        if not any(
            change.action == "truncate" and table in (change.table, change.name)
            for change in changeset.changes
        ):
            return
        holder = f"{self._namespace}:{escaped(table)}"
        with self._changed:
            for key in [each for each in self._jobs if each.startswith(f"{holder}:")]:
                del self._jobs[key]
            self._add(_Job(holder, is_table=True))

    def _add(self, job: _Job) -> None:
        self._changed.wait_for(
            lambda: job.key in self._jobs or len(self._jobs) < self._limit or self._is_closed
        )
        if not self._is_closed:
            self._jobs[job.key] = job
            self._changed.notify_all()

    def _run(self) -> None:
        wait_s = _FIRST_WAIT_S
        while (jobs := self._take()) is not None:
            try:
                self._store(jobs)
            except RedisError as problem:
                _log.warning("the cache is not to be had, %d rows wait: %s", len(jobs), problem)
                self._finish(jobs)
                self._pause(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            else:
                self._finish([])
                wait_s = _FIRST_WAIT_S

    def _take(self) -> list[_Job] | None:
        """Return the next rows; ``None`` at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._is_closed)
            if self._is_closed:
                return None
            jobs = [self._jobs.pop(key) for key in list(self._jobs)[:_STEP]]
            self._running = len(jobs)
            return jobs

    def _finish(self, failed: Sequence[_Job]) -> None:
        with self._changed:
            # A row that has changed meanwhile keeps its newer job.
            self._jobs = {**{job.key: job for job in failed}, **self._jobs}
            self._running = 0
            self._changed.notify_all()

    def _pause(self, wait_s: float) -> None:
        end = time.monotonic() + wait_s
        with self._changed:
            while not self._is_closed and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)

    def _store(self, jobs: Sequence[_Job]) -> None:
        for job in jobs:
            if job.is_table:
                delete_table(self._redis, job.key)
        with self._redis.pipeline() as pipe:
            for job, value in zip(jobs, self._serialize(jobs), strict=True):
                if value is None:
                    pipe.delete(job.key)
                else:
                    pipe.set(job.key, value, px=self._ttl_ms)
            pipe.execute()

    def _serialize(self, jobs: Sequence[_Job]) -> list[str | bytes | None]:
        """Return the value to store for each job."""
        made: dict[str, Any] = {}
        groups: dict[tuple[Any, bool], list[_Job]] = {}
        for job in jobs:
            if job.serializer is not None:
                groups.setdefault((job.serializer, job.takes_several), []).append(job)
        for (serializer, takes_several), group in groups.items():
            steps = [group] if takes_several else [[job] for job in group]
            for step in steps:
                rows = [job.row for job in step]
                try:
                    values = list(serializer(rows)) if takes_several else [serializer(rows[0])]
                    pairs = list(zip(step, values, strict=True))
                    if not all(value is None or isinstance(value, str | bytes) for value in values):
                        raise TypeError("only text, bytes and None can be stored")
                except Exception:
                    _log.exception("nothing is stored for %r, which could not be made", rows)
                else:
                    made.update((job.key, value) for job, value in pairs)
        return [made.get(job.key) for job in jobs]
