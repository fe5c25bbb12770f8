"""The consumer: applies changesets from a broker to a sink, in order and exactly once.

The broker delivers each frame at least once. The sink stores the number of the last changeset of
each origin in the same transaction as the changeset's changes. A frame is acknowledged when its
changeset is committed, and a redelivered one is detected by its number. So every changeset takes
effect exactly once, even if a process is killed.

This requires a broker with acknowledgements. With ``ack=False``, for brokers without them, the
broker forgets a frame once it is sent. Frames not yet applied when a consumer ends or loses its
connection are lost, and the next consumer finds a gap.
"""

from __future__ import annotations

import threading
import time as clocks
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from stompkit._common.moved import renamed
from stompkit.client.blocking import Delivery, Link, LinkClosedError, durable_subscription
from stompkit.replication.consumer._applier import Applier
from stompkit.replication.consumer._dead_letters import DeadLetters
from stompkit.replication.consumer._gaps import GapPolicy, GapWatch
from stompkit.replication.consumer._problems import ProblemReporter
from stompkit.replication.consumer._reports import (
    ConsumerError,
    ConsumerStatus,
    PoisonFrameError,
    Problem,
    SequenceGapError,
    WindowTooSmallError,
)
from stompkit.replication.consumer._sequencer import Gap, Sequencer
from stompkit.replication.consumer._windows import Windows
from stompkit.replication.consumer.retry_policy import (
    LOOK_S,
    ConsumerStoppedError,
    RetryPolicy,
    Stopping,
)
from stompkit.replication.model.events import Changeset, EventError
from stompkit.replication.sinks import Sink

__all__ = [
    "Consumer",
    "ConsumerError",
    "ConsumerStatus",
    "Gap",
    "GapPolicy",
    "PoisonFrameError",
    "Problem",
    "SequenceGapError",
    "WindowTooSmallError",
]

#: Maximum size in bytes of the frames that are held.
_MAX_BYTES: Final = 256 * 1024 * 1024
#: Maximum size in bytes of ready changesets before reading pauses; they are larger in memory.
_READ_AHEAD_BYTES: Final = 16 * 1024 * 1024
#: Maximum number of subscriptions.
_WINDOWS: Final = 4
#: Time in seconds without frames before another subscription is opened: the broker may not yet have
#: noticed the end of another consumer. The second one waits twice as long, and so on.
_STARVED_S: Final = 0.5


class Consumer:
    """Reads changesets from a destination and applies them to a sink."""

    def __init__(
        self,
        link: Link,
        destination: str,
        sink: Sink,
        *,
        ack: bool = True,
        durable: str | None = None,
        headers: Mapping[str, str] | None = None,
        batch: int = 100,
        batch_wait_s: float = 0.0,
        prefetch: int = 1000,
        hold_back: int | None = None,
        max_bytes: int = _MAX_BYTES,
        dead_letter: str | None = None,
        retries: int | None = 5,
        backoff_s: float = 0.5,
        max_backoff_s: float = 30.0,
        gap: GapPolicy = "wait",
        gap_timeout_s: float = 30.0,
        beginning_wait_s: float = 2.0,
        on_applied: Callable[[Sequence[Changeset]], object] | None = None,
        on_problem: Callable[[Problem], object] | None = None,
        clock: Callable[[], float] = clocks.monotonic,
    ) -> None:
        """Prepare a consumer; :meth:`run` runs it.

        ``ack`` is Vesper's ``send_stomp_ack``. ``durable`` names a durable subscription to a topic,
        see :func:`~stompkit.client.blocking.durable_subscription`; ``headers`` are further headers
        of SUBSCRIBE.

        Up to ``batch`` changesets are applied in one transaction. A smaller batch waits
        ``batch_wait_s`` seconds for more.

        The broker sends up to ``prefetch`` unacknowledged frames. They wait in memory until their
        changesets are complete and next in order. If all of them wait for a missing frame, another
        subscription is opened. The limits of all subscriptions are ``hold_back`` frames (by default
        four times ``prefetch``) and ``max_bytes`` bytes. A changeset with more frames or bytes
        cannot be applied (:class:`WindowTooSmallError`).

        Changesets that cannot be applied go to the destination ``dead_letter``, with their headers
        and the reason. With a :class:`~stompkit.replication.sinks.RowSink`, only the refused
        changes go there, and the rest of the changeset is applied. Without ``dead_letter``, the
        consumer stops with the error. Any other failure of the sink is retried ``retries`` times
        (``None``: forever), after ``backoff_s`` seconds, doubling up to ``max_backoff_s``; then the
        consumer stops with the error.

        A gap is reported every ``gap_timeout_s`` seconds. ``gap`` is the policy then: wait, end the
        consumer (``"stop"``), or skip the gap (``"skip"``). If no more frames can be held, the gap
        ends the consumer or is skipped at once. For an origin unknown to the sink, the first
        changeset is number 1, or the lowest received within ``beginning_wait_s`` seconds.

        ``on_applied`` is called with the changesets of each committed transaction, ``on_problem``
        with each :class:`Problem`; their exceptions are logged. Raises ``ValueError`` for bounds
        below 1 and an unknown policy.
        """
        most = _WINDOWS * prefetch if hold_back is None else hold_back
        if min(batch, prefetch, most, max_bytes) < 1:
            raise ValueError("batch, prefetch, hold_back and max_bytes are at least 1")
        self._link = link
        self._destination = destination
        self._ack = ack
        self._headers = {**(durable_subscription(durable) if durable else {}), **(headers or {})}
        self._batch = batch
        self._batch_wait_s = batch_wait_s
        self._prefetch = prefetch
        self._most = most
        self._max_bytes = max_bytes
        self._reporter = ProblemReporter(self, destination, on_problem)
        self._on_applied = on_applied
        self._dead_letters = DeadLetters(link, dead_letter, destination, self._reporter.report)
        retry_policy = RetryPolicy(
            retries=retries,
            backoff_s=backoff_s,
            max_backoff_s=max_backoff_s,
            on_failure=self._reporter.report_failure,
        )
        self._applier = Applier(
            sink, self._dead_letters, retry_policy, batch=batch, on_applied=self._applied_some
        )
        self._gaps = GapWatch(gap, gap_timeout_s, self._reporter.report)
        self._beginning_wait_s = beginning_wait_s
        self._clock = clock
        self._stop = threading.Event()
        self._stopping = Stopping(self._stop, None)
        self._sequencer = Sequencer[Delivery]()
        self._idle_since: float | None = None
        self._earlier_repeats = 0

    def __repr__(self) -> str:
        """Show the destination and the number of applied changesets."""
        return f"<Consumer of {self._destination!a}: {self._applier.applied} applied>"

    def run(self, stop: threading.Event | None = None) -> None:
        """Consume until :meth:`stop` is called or ``stop`` is set; in the caller's thread.

        Unapplied changesets stay with the broker. Raises :class:`ConsumerError`,
        :class:`~stompkit.replication.sinks.ApplyError`, the last error of the sink, and
        :class:`~stompkit.client.blocking.LinkClosedError`.
        """
        self._stopping = Stopping(self._stop, stop)
        self._earlier_repeats += self._sequencer.repeats
        self._sequencer = Sequencer(beginning_wait_s=self._beginning_wait_s)
        self._applier.start(self._sequencer, self._stopping)
        windows = Windows(
            self._link,
            self._destination,
            ack=self._ack,
            prefetch=self._prefetch,
            headers=self._headers,
            most=self._most,
            stopping=self._stopping,
        )
        try:
            windows.grow()
            while not self._stopping.is_set:
                self._receive(windows)
                self._start_overdue(windows)
                self._applier.apply_next()
                windows.ack(self._sequencer.take_spent())
                self._check_gaps(windows)
            if not self._ack:
                self._finish(windows)
        except ConsumerStoppedError:
            pass
        finally:
            windows.ack(self._sequencer.take_spent())
            windows.close()
            self._stop.clear()

    def stop(self) -> None:
        """Make :meth:`run` return soon; thread-safe."""
        self._stop.set()

    def status(self) -> ConsumerStatus:
        """Return the current status; thread-safe."""
        sequencer = self._sequencer
        return ConsumerStatus(
            applied=self._applier.applied,
            changes=self._applier.changes,
            repeats=self._earlier_repeats + sequencer.repeats,
            dead_letters=self._dead_letters.count,
            held_back=sequencer.frames,
            lag_s=self._applier.lag_s,
            last=dict(self._applier.last),
        )

    # Receiving.

    @property
    def _is_full(self) -> bool:
        """True if no more frames may be held."""
        return self._sequencer.frames >= self._most or self._sequencer.size >= self._max_bytes

    def _has_all(self, windows: Windows) -> bool:
        """Return True if the broker sends nothing more until a frame is acknowledged."""
        return windows.frames is not None and self._sequencer.frames >= windows.frames

    def _is_starved(self, windows: Windows) -> bool:
        """Return True if no frame can arrive, none has for a while, and no changeset is ready."""
        if self._sequencer.ready or self._idle_since is None or not self._has_all(windows):
            return False
        return self._clock() - self._idle_since >= _STARVED_S * windows.count

    def _is_stuck(self, windows: Windows) -> bool:
        """Return True if no more frames can arrive."""
        if self._is_full:
            return not self._sequencer.ready
        return self._is_starved(windows) and not windows.can_grow

    def _receive(self, windows: Windows) -> None:
        """Receive frames; block only if no changeset is ready."""
        sequencer = self._sequencer
        taken = 0
        began: float | None = None
        while sequencer.ready < self._batch and taken < self._prefetch and not self._is_full:
            wait_s = 0.0 if taken else LOOK_S
            if sequencer.ready:
                if sequencer.size >= _READ_AHEAD_BYTES or self._has_all(windows):
                    break
                began = self._clock() if began is None else began
                wait_s = max(0.0, min(LOOK_S, began + self._batch_wait_s - self._clock()))
            delivery = windows.get(wait_s)
            if delivery is not None:
                taken += 1
                self._take(delivery, windows)
            elif not wait_s or not sequencer.ready or self._stopping.is_set:
                break
        if taken or sequencer.ready:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = self._clock()

    def _finish(self, windows: Windows) -> None:
        """Apply frames that the broker has already forgotten."""
        windows.close()
        with suppress(LinkClosedError):
            while (delivery := windows.get(LOOK_S)) is not None:
                self._take(delivery, windows)
        self._start_overdue(windows)
        while self._sequencer.ready:
            self._applier.apply_next()

    def _take(self, delivery: Delivery, windows: Windows) -> None:
        try:
            self._sequencer.add(delivery, self._clock())
        except EventError as problem:
            self._dead_letters.send([delivery], "frame", str(problem), problem, self._stopping)
            windows.ack([delivery])
        for origin in self._sequencer.take_new():
            self._sequencer.start(origin, self._applier.look_up(origin), self._clock())

    def _start_overdue(self, windows: Windows) -> None:
        """Start origins whose waiting time is over, and report late changesets."""
        self._sequencer.start_overdue(self._clock(), at_once=self._is_stuck(windows))
        for origin, sequence in self._sequencer.take_late():
            self._reporter.report(
                "late",
                f"changeset {sequence} of {origin} was not applied: it came when others behind it "
                "had been applied, or not as a whole",
                origin,
                sequence,
            )

    def _check_gaps(self, windows: Windows) -> None:
        if self._is_starved(windows) and not self._is_full and windows.can_grow:
            windows.grow()
            self._idle_since = None
        self._gaps.check(self._sequencer, self._clock(), is_stuck=self._is_stuck(windows))

    def _applied_some(self, changesets: Sequence[Changeset]) -> None:
        if self._on_applied is not None:
            self._reporter.call(self._on_applied, changesets)


renamed(
    __name__,
    ConsumerProblem="ConsumerError",
    PoisonFrame="PoisonFrameError",
    SequenceGap="SequenceGapError",
    WindowTooSmall="WindowTooSmallError",
)
