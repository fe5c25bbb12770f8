"""Connects a publisher to a sink in one process; a thread applies changesets in batches."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Final, Self

from blinker import Signal

from stompkit._common.moved import renamed
from stompkit.replication.consumer.retry_policy import ConsumerStoppedError, RetryPolicy, Stopping
from stompkit.replication.model.events import Changeset
from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.sinks import ApplyError, Sink

__all__ = ["Feeder", "FeederClosedError"]

_log: Final = logging.getLogger(__name__)

#: Time in seconds to wait for a sink that was asked to stop.
_LAST_S: Final = 1.0
_TOO_LATE: Final = "the feeder was closed before this was applied"
_Taken = tuple[Changeset, Future[None]]


class FeederClosedError(Exception):
    """The feeder is closed, or its sink has failed, which is the cause then."""


class Feeder:
    """Receives the changesets of this process, and applies them to a sink.

    While the sink is busy, changesets queue up, and are then applied together. The publisher's
    checkpoint follows the applied changesets. As a context manager, it is closed at the end.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        batch: int = 100,
        waiting: int = 1000,
        waiting_changes: int = 100_000,
        retries: int | None = None,
        backoff_s: float = 0.5,
        max_backoff_s: float = 30.0,
        on_poison: Callable[[Changeset, ApplyError], object] | None = None,
        on_failure: Callable[[Exception], object] | None = None,
        on_applied: Callable[[Sequence[Changeset]], object] | None = None,
        on_end: Callable[[BaseException], object] | None = None,
        changesets: Signal = CHANGESET,
    ) -> None:
        """Start receiving from all publishers of the process, or only from the signal *changesets*.

        Up to ``batch`` changesets are applied in one transaction. Publishers block while
        ``waiting`` changesets, or ``waiting_changes`` row changes in them, are not yet applied. A
        failure of the sink is retried ``retries`` times (``None``: forever), as
        :class:`~stompkit.replication.consumer.Consumer` does, and ``on_failure`` is called with it.
        A changeset that cannot be applied stops the feeder, or is passed to ``on_poison`` and
        skipped. ``on_applied`` is called with applied changesets. ``on_end`` is called with the
        error that has stopped the feeder, but not after :meth:`close`. Both are called in the
        feeder's thread. Raises ``ValueError`` for bounds below 1.
        """
        if min(batch, waiting, waiting_changes) < 1:
            raise ValueError("batch, waiting and waiting_changes are at least 1")
        self._sink = sink
        self._signal = changesets
        self._batch = batch
        self._most = (waiting, waiting_changes)
        self._on_poison = on_poison
        self._on_failure = on_failure
        self._on_applied = on_applied
        self._on_end = on_end
        self._retry_policy = RetryPolicy(
            retries=retries,
            backoff_s=backoff_s,
            max_backoff_s=max_backoff_s,
            on_failure=self._report,
        )
        self._line: deque[_Taken] = deque()
        self._has_changed = threading.Condition()
        #: Row changes in the queue.
        self._changes = 0
        self._stop = threading.Event()
        self._is_closing = self._is_stopped = False
        self._error: BaseException | None = None
        self._applied = 0
        self._thread = threading.Thread(target=self._run, name="stompkit-feeder", daemon=True)
        self._thread.start()
        self._signal.connect(self.take, weak=False)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close it; after an exception, without waiting for the sink."""
        self.close(timeout_s=10.0 if kind is None else 0.0)

    @property
    def applied(self) -> int:
        """Number of applied changesets."""
        return self._applied

    def take(self, changeset: Changeset) -> Future[None]:
        """Queue a changeset; return a future that is done when it is applied or has failed.

        Blocks while the queue is full. Raises :class:`FeederClosedError`.
        """
        future: Future[None] = Future()
        # The future cannot be cancelled, because a changeset cannot be removed from a transaction.
        future.set_running_or_notify_cancel()
        changes = len(changeset.changes)
        most, most_changes = self._most
        with self._has_changed:

            def has_room() -> bool:
                # A changeset larger than the bounds is accepted when the queue is empty.
                return not self._line or (
                    len(self._line) < most and self._changes + changes <= most_changes
                )

            self._has_changed.wait_for(lambda: self._is_over or self._is_stopped or has_room())
            if self._is_over or not has_room():
                why = f": {self._error}" if self._error is not None else ""
                raise FeederClosedError(f"nothing is applied any more{why}") from self._error
            self._line.append((changeset, future))
            self._changes += changes
            self._has_changed.notify_all()
        return future

    def stop(self) -> None:
        """Make blocked and later blocking publishers raise :class:`FeederClosedError`; thread-safe.

        Queued changesets are still applied, and calls that do not block still succeed.
        """
        with self._has_changed:
            self._is_stopped = True
            self._has_changed.notify_all()

    def close(self, timeout_s: float = 10.0) -> None:
        """Stop receiving, and wait for queued changesets, at most ``timeout_s`` seconds.

        Changesets not applied by then fail with :class:`FeederClosedError`. The sink stays open. A
        sink that is busy and does not return within a second is abandoned.
        """
        self._signal.disconnect(self.take)
        with self._has_changed:
            self._is_closing = True
            self._has_changed.notify_all()
        self._thread.join(timeout_s)
        self._stop.set()
        self._thread.join(_LAST_S)
        if self._thread.is_alive():
            _log.error("the sink has not come back, and is left to itself")
            self._fail(FeederClosedError(_TOO_LATE))

    @property
    def _is_over(self) -> bool:
        return self._is_closing or self._error is not None

    # In the thread.

    def _run(self) -> None:
        try:
            while taken := self._next():
                self._apply([changeset for changeset, _ in taken])
                self._done(taken)
        except ConsumerStoppedError:
            self._fail(FeederClosedError(_TOO_LATE))
        except BaseException as error:
            self._fail(error)
            if self._on_end is not None:
                self._on_end(error)

    def _next(self) -> list[_Taken]:
        """Return the next batch when there is one; empty at the end."""
        with self._has_changed:
            self._has_changed.wait_for(lambda: self._line or self._is_over)
            return list(islice(self._line, self._batch))

    def _done(self, taken: Sequence[_Taken]) -> None:
        with self._has_changed:
            # If the feeder was closed meanwhile, their futures have failed already.
            known = taken if self._error is None else ()
            for changeset, _ in known:
                self._line.popleft()
                self._changes -= len(changeset.changes)
            self._has_changed.notify_all()
        for _, future in known:
            future.set_result(None)

    def _apply(self, changesets: list[Changeset]) -> None:
        stopping = Stopping(self._stop, None)
        try:
            self._retry_policy.call(partial(self._sink.apply, changesets), stopping)
        except ApplyError as problem:
            if len(changesets) > 1:
                # One of them cannot be applied, but those before it can.
                for each in changesets:
                    self._apply([each])
                return
            if self._on_poison is None:
                raise
            self._on_poison(changesets[0], problem)
            self._retry_policy.call(partial(self._sink.skip, changesets[0]), stopping)
        self._applied += len(changesets)
        if self._on_applied is not None:
            self._on_applied(changesets)

    def _fail(self, error: BaseException) -> None:
        with self._has_changed:
            self._error = error
            left = list(self._line)
            self._line.clear()
            self._changes = 0
            self._has_changed.notify_all()
        for _, future in left:
            future.set_exception(error)

    def _report(self, error: Exception) -> None:
        _log.error("the sink has failed, and is tried again: %r", error)
        if self._on_failure is not None:
            self._on_failure(error)


renamed(
    __name__,
    FeederClosed="FeederClosedError",
)
