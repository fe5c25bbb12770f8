"""From a publisher to a sink in one process: changesets are applied in batches, in a thread."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final, Self

from stompkit.replication.consumer._patience import Patience, Stopped, Stopping
from stompkit.replication.events import Changeset
from stompkit.replication.signals import CHANGESET
from stompkit.replication.sinks import ApplyProblem, Sink

__all__ = ["Feeder", "FeederClosed"]

_log: Final = logging.getLogger(__name__)


class FeederClosed(Exception):
    """The feeder takes no more: it was closed, or its sink has failed, which is the cause then."""


class Feeder:
    """Hears of the changesets of this process, and has a sink apply them.

    While the sink is busy changesets wait, and are applied together when it is their turn. The
    publisher's checkpoint follows what is applied. As a context manager it is closed at the end.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        batch: int = 100,
        waiting: int = 1000,
        retries: int | None = None,
        backoff_s: float = 0.5,
        max_backoff_s: float = 30.0,
        on_poison: Callable[[Changeset, ApplyProblem], object] | None = None,
        on_failure: Callable[[Exception], object] | None = None,
    ) -> None:
        """Begin to hear.

        Up to ``batch`` changesets are applied in one transaction; publishers wait while
        ``waiting`` of them have not been applied. A failure of the sink is tried again ``retries``
        times (``None``: for ever), as :class:`~stompkit.replication.consumer.Consumer` does, and
        ``on_failure`` is called with it. A changeset that can't be applied ends the feeder, or is
        given to ``on_poison`` and left out.
        """
        self._sink = sink
        self._batch = batch
        self._most = waiting
        self._on_poison = on_poison
        self._on_failure = on_failure
        self._patience = Patience(
            retries=retries,
            backoff_s=backoff_s,
            max_backoff_s=max_backoff_s,
            on_failure=self._tell,
        )
        self._line: deque[tuple[Changeset, Future[None]]] = deque()
        self._has_changed = threading.Condition()
        self._stop = threading.Event()
        self._is_closing = False
        self._error: BaseException | None = None
        self._applied = 0
        self._thread = threading.Thread(target=self._run, name="stompkit-feeder", daemon=True)
        self._thread.start()
        CHANGESET.connect(self.take, weak=False)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close it; after an exception without waiting for the sink."""
        self.close(timeout_s=10.0 if kind is None else 0.0)

    @property
    def applied(self) -> int:
        """Changesets that were applied."""
        return self._applied

    def take(self, changeset: Changeset) -> Future[None]:
        """Have a changeset applied; gives what is done when it is, or has failed.

        Waits while too many wait. Raises :class:`FeederClosed`.
        """
        future: Future[None] = Future()
        with self._has_changed:
            self._has_changed.wait_for(
                lambda: len(self._line) < self._most or self._is_closing or self._error
            )
            if self._is_closing or self._error is not None:
                why = f": {self._error}" if self._error is not None else ""
                raise FeederClosed(f"nothing is applied any more{why}") from self._error
            self._line.append((changeset, future))
            self._has_changed.notify_all()
        return future

    def close(self, timeout_s: float = 10.0) -> None:
        """Hear no more, and wait for what was taken, at most ``timeout_s`` seconds.

        What has not been applied then fails with :class:`FeederClosed`. The sink is left open.
        """
        CHANGESET.disconnect(self.take)
        with self._has_changed:
            self._is_closing = True
            self._has_changed.notify_all()
        self._thread.join(timeout_s)
        self._stop.set()
        self._thread.join()

    # In the thread.

    def _run(self) -> None:
        try:
            while True:
                with self._has_changed:
                    self._has_changed.wait_for(lambda: self._line or self._is_closing)
                    taken = [self._line[n] for n in range(min(self._batch, len(self._line)))]
                if not taken:
                    return
                self._apply([changeset for changeset, _ in taken])
                with self._has_changed:
                    for _ in taken:
                        self._line.popleft()
                    self._has_changed.notify_all()
                for _, future in taken:
                    future.set_result(None)
        except Stopped:
            self._fail(FeederClosed("the feeder was closed before this was applied"))
        except BaseException as error:
            self._fail(error)

    def _apply(self, changesets: list[Changeset]) -> None:
        stopping = Stopping(self._stop, None)
        try:
            self._patience.call(partial(self._sink.apply, changesets), stopping)
        except ApplyProblem as problem:
            if len(changesets) > 1:
                # One of them can't be applied; those before it can.
                for each in changesets:
                    self._apply([each])
                return
            if self._on_poison is None:
                raise
            self._on_poison(changesets[0], problem)
            self._patience.call(partial(self._sink.skip, changesets[0]), stopping)
        self._applied += len(changesets)

    def _fail(self, error: BaseException) -> None:
        with self._has_changed:
            self._error = error
            left = list(self._line)
            self._line.clear()
            self._has_changed.notify_all()
        for _, future in left:
            future.set_exception(error)

    def _tell(self, error: Exception) -> None:
        _log.error("the sink has failed, and is tried again: %r", error)
        if self._on_failure is not None:
            self._on_failure(error)
