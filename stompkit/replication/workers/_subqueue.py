"""One worker in the replicator's process: its backlog, its thread, and its retries."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import deque
from concurrent.futures import Future
from multiprocessing.connection import wait
from typing import Final

from stompkit._common.retry import Backoff
from stompkit.replication.workers._backlog import Backlog, Completion, Item
from stompkit.replication.workers._runners import Runner, WorkerDiedError, WorkerUnusableError
from stompkit.replication.workers._types import (
    DeadLetter,
    ReplicatorStoppedError,
    RetryPolicy,
    SubQueueStats,
    Unfinished,
)
from stompkit.replication.workers._worker import Report, describe

__all__ = ["SubQueue"]

_log: Final = logging.getLogger(__name__)

#: First wait in seconds before restarting a worker that could not start.
_RESTART_S: Final = 0.5
#: Divisor of the batch size after a batch has failed as a whole.
_SMALLER: Final = 4


class SubQueue:
    """Passes keys to a worker, one batch at a time, and keeps them until they are done."""

    def __init__(self, name: str, runner: Runner, backlog: Backlog, policy: RetryPolicy) -> None:
        """Configure; nothing runs before :meth:`start`."""
        self._name = name
        self._runner = runner
        self._backlog = backlog
        self._policy = policy
        self._lock = threading.Lock()
        self._has_room = threading.Condition(self._lock)
        self._in_flight: deque[Item] = deque()
        self._left: list[Item] = []
        self._is_asleep = self._is_draining = self._is_closed = False
        self._done = self._failed = self._dead = self._restarts = 0
        self._closing = threading.Event()
        #: Done when the worker accepts keys; failed if it cannot.
        self.ready: Future[None] = Future()
        # A byte wakes the thread. Unlike a condition, it can be awaited together with a process.
        self._wakeup, self._waker = socket.socketpair()
        self._wakeup.setblocking(False)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def stats(self) -> SubQueueStats:
        """Return the statistics of the worker."""
        with self._lock:
            return SubQueueStats(
                name=self._name,
                pid=self._runner.pid,
                waiting=len(self._backlog) - self._backlog.delayed,
                delayed=self._backlog.delayed,
                in_flight=len(self._in_flight),
                done=self._done,
                failed=self._failed,
                dead=self._dead,
                merged=self._backlog.merged,
                restarts=self._restarts,
            )

    def kill(self) -> None:
        """Kill the worker immediately, because this process ends."""
        self._is_closed = True
        self._closing.set()
        self._runner.kill()

    def start(self) -> None:
        """Start the worker; :attr:`ready` has the result."""
        self._thread.start()

    def add(self, item: Item) -> None:
        """Queue an item; blocks while the backlog is full. Raises ReplicatorStoppedError."""
        with self._lock:
            while not self._is_draining:
                if self._backlog.add(item):
                    self._wake()
                    return
                self._has_room.wait()
        raise ReplicatorStoppedError(f"{self._name} takes no more keys")

    def drain(self) -> None:
        """Accept no more items, retry failed items once immediately, and end when none is left."""
        with self._lock:
            self._is_draining = True
            self._backlog.hasten()
            self._has_room.notify_all()
            self._wake()

    def close(self, deadline: float) -> list[Unfinished]:
        """End when the backlog is empty or at the deadline; return the unfinished keys.

        Call it once, after :meth:`drain`.
        """
        if self._thread.ident is not None:
            self._thread.join(max(deadline - time.monotonic(), 0.0))
        with self._lock:
            self._is_closed = True
            self._closing.set()
            self._wake()
        if self._thread.is_alive():
            self._runner.kill()
            # A callback that runs in the thread itself may never return.
            self._thread.join(_RESTART_S)
        with self._lock:
            items = [*self._left, *self._in_flight, *self._backlog.clear()]
            self._in_flight.clear()
            self._left.clear()
            if self._thread.ident is None:
                self._silence()
        stopped = ReplicatorStoppedError(f"{self._name} was stopped before all was done")
        for item in items:
            for completion in item.completions:
                completion.abandon(stopped)
        return [
            Unfinished(topic=item.topic, key=item.key, tries=item.failures, reason=item.reason)
            for item in items
        ]

    # The thread.

    def _run(self) -> None:
        try:
            self._runner.start()
        except Exception as error:
            self._silence()
            self.ready.set_exception(error)
            return
        self.ready.set_result(None)
        try:
            while batch := self._next():
                try:
                    for report in self._runner.run([item.key for item in batch]):
                        self._settle(report)
                except WorkerDiedError as died:
                    self._settle_death(str(died))
                    self._restart(str(died))
        except Exception:
            _log.exception("%s has failed, and takes no more keys", self._name)
            with self._lock:
                self._is_draining = True
                self._has_room.notify_all()
        finally:
            self._runner.stop()
            with self._lock:
                self._silence()

    def _next(self) -> list[Item] | None:
        """Return the next batch; ``None`` at the end."""
        while True:
            with self._lock:
                if self._is_closed:
                    return None
                batch = self._backlog.take(time.monotonic())
                self._has_room.notify_all()
                if batch:
                    self._in_flight.extend(batch)
                    return batch
                if self._is_draining and not len(self._backlog):
                    return None
                due = self._backlog.next_due()
                self._is_asleep = True
            sentinel = self._runner.sentinel
            wakeup = self._wakeup.fileno()
            awaited = [wakeup] if sentinel is None else [wakeup, sentinel]
            timeout_s = None if due is None else max(due - time.monotonic(), 0.0)
            has_died = sentinel in wait(awaited, timeout_s)
            with self._lock:
                self._is_asleep = False
                self._drain_wakeups()
            if has_died:
                self._restart(f"worker {self._name} has died while it had nothing to do")

    def _wake(self) -> None:
        if self._is_asleep:
            self._is_asleep = False
            self._waker.send(b"\0")

    def _silence(self) -> None:
        self._is_asleep = False
        self._wakeup.close()
        self._waker.close()

    def _drain_wakeups(self) -> None:
        try:
            self._wakeup.recv(64)
        except BlockingIOError:
            pass  # the thread was woken for another reason

    def _restart(self, reason: str) -> None:
        backoff = Backoff(_RESTART_S, self._policy.max_retry_s)
        while not self._closing.is_set():
            _log.error("%s; it is started again", reason)
            with self._lock:
                self._restarts += 1
            try:
                self._runner.start()
                return
            except (WorkerUnusableError, OSError) as error:
                reason = str(error)
            self._closing.wait(backoff.fail())

    # Results.

    def _settle(self, report: Report) -> None:
        """Process a report of the worker."""
        if isinstance(report, str):
            size = len(self._in_flight)
            _log.warning("%s: a call with %d keys has failed: %s", self._name, size, report)
            for _ in range(size):
                self._fail(report, together=max(1, size // _SMALLER))
            return
        for reason in report:
            if reason is None:
                self._finish()
            else:
                self._fail(reason, together=None)

    def _settle_death(self, reason: str) -> None:
        """Count a failure for the keys that may have killed the worker; requeue the others."""
        with self._lock:
            blamed = self._runner.under_way(len(self._in_flight))
            innocent = list(self._in_flight)[blamed:]
            for _ in innocent:
                self._in_flight.pop()
            self._backlog.put_back(innocent)
        for _ in range(blamed):
            self._fail(reason, together=1)

    def _finish(self) -> None:
        with self._lock:
            if self._is_closed and not self._in_flight:
                return  # close() has returned it as unfinished meanwhile
            item = self._in_flight.popleft()
            self._done += 1
        _complete(item)

    def _fail(self, reason: str, *, together: int | None) -> None:
        """Schedule a retry of the first key in flight, or give it up.

        ``together`` is for one of several keys that have failed together: the size of its next
        batch.
        """
        with self._lock:
            if self._is_closed and not self._in_flight:
                return
            item = self._in_flight[0]
            item.failures += 1
            item.reason = reason
            self._failed += 1
            is_dead = self._policy.is_exhausted(item.failures)
            if not is_dead:
                if together is not None:
                    item.together = together
                if item.failures == self._policy.max_retries:
                    # A key is not given up because of a failure of another key.
                    item.together = 1
                self._in_flight.popleft()
                self._delay(item, self._policy.delay_s(item.failures))
        if is_dead or together is None:
            _log.log(
                logging.ERROR if is_dead else logging.WARNING,
                "%s: %s %r has failed, time %d%s: %s",
                self._name,
                item.topic,
                item.key,
                item.failures,
                ", and is given up" if is_dead else "",
                reason,
            )
        if is_dead:
            self._give_up(item)

    def _delay(self, item: Item, delay_s: float) -> None:
        if self._is_draining:
            self._left.append(item)
        else:
            self._backlog.delay(item, time.monotonic() + delay_s)

    def _give_up(self, item: Item) -> None:
        """Pass the first key in flight to the dead-letter callback."""
        dead = DeadLetter(topic=item.topic, key=item.key, tries=item.failures, reason=item.reason)
        problem = ""
        if self._policy.dead_letter is not None:
            try:
                self._policy.dead_letter(dead)
            except Exception as error:
                problem = describe(error)
        with self._lock:
            if not self._in_flight:
                return
            self._in_flight.popleft()
            if problem:
                item.together = 1
                self._delay(item, self._policy.max_retry_s)
            else:
                self._dead += 1
        if problem:
            _log.error("%s: the dead letter callback has failed: %s", self._name, problem)
        else:
            _complete(item)


def _complete(item: Item) -> None:
    completions: list[Completion] = item.completions
    for completion in completions:
        completion.settle()
