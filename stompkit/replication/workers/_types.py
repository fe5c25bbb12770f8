"""Public types of replicators: retry settings, statistics, and unfinished keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stompkit._common.retry import delay_s
from stompkit.replication.workers.messages import Key

__all__ = [
    "DeadLetter",
    "ReplicatorStats",
    "ReplicatorStoppedError",
    "RetryPolicy",
    "SubQueueStats",
    "Unfinished",
]


class ReplicatorStoppedError(Exception):
    """The replicator was stopped before the work was done."""


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A key that was given up."""

    topic: str
    key: Key
    #: Number of attempts.
    tries: int
    #: Reason of the last failure.
    reason: str


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """A key that was not done when the replicator was stopped."""

    topic: str
    key: Key
    tries: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Retry settings for failed keys."""

    #: Maximum number of retries; ``None``: forever.
    max_retries: int | None
    #: Wait in seconds before the first retry; it doubles with each further one.
    retry_s: float
    #: ...up to so long.
    max_retry_s: float
    #: Function called in this process with keys that are given up; its exceptions are further
    #: failures.
    dead_letter: Callable[[DeadLetter], object] | None

    def delay_s(self, failures: int) -> float:
        """Return the wait in seconds after that many failures."""
        return delay_s(failures, self.retry_s, self.max_retry_s)

    def is_exhausted(self, failures: int) -> bool:
        """Return True if no retry is left."""
        return self.max_retries is not None and failures > self.max_retries


@dataclass(frozen=True, kw_only=True)
class SubQueueStats:
    """Statistics of one worker."""

    name: str
    #: Process id; ``None`` if there is no process.
    pid: int | None
    waiting: int
    #: Number of keys that wait for a retry.
    delayed: int
    in_flight: int
    done: int
    #: Number of failed attempts.
    failed: int
    #: Number of keys that were given up.
    dead: int
    #: Number of keys that were merged into others.
    merged: int
    #: Number of restarts of the process.
    restarts: int


@dataclass(frozen=True, kw_only=True)
class ReplicatorStats:
    """Statistics of a replicator."""

    #: Number of accepted keys, counted once for each callback.
    received: int
    #: Number of keys of topics without a callback.
    unknown: int
    #: Number of invalid messages.
    corrupt: int
    #: Number of reconnects to silent publishers.
    reconnects: int
    workers: tuple[SubQueueStats, ...]

    @property
    def waiting(self) -> int:
        """Number of keys that wait for a worker, without those that wait for a retry."""
        return sum(each.waiting for each in self.workers)

    @property
    def delayed(self) -> int:
        """Number of keys that wait for a retry."""
        return sum(each.delayed for each in self.workers)

    @property
    def in_flight(self) -> int:
        """Number of keys that workers are processing."""
        return sum(each.in_flight for each in self.workers)

    @property
    def done(self) -> int:
        """Number of keys for which a callback has returned true."""
        return sum(each.done for each in self.workers)

    @property
    def failed(self) -> int:
        """Number of failed attempts."""
        return sum(each.failed for each in self.workers)

    @property
    def dead(self) -> int:
        """Number of keys that were given up."""
        return sum(each.dead for each in self.workers)

    @property
    def merged(self) -> int:
        """Number of keys that were merged into others."""
        return sum(each.merged for each in self.workers)

    @property
    def restarts(self) -> int:
        """Number of restarts of workers."""
        return sum(each.restarts for each in self.workers)
