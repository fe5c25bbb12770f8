"""The consumer: changesets from a broker, in order and each once, into a sink.

The broker delivers each frame at least once, and the sink keeps the number of the last changeset
of each origin in the same transaction as what the changeset has done. So every changeset has its
effect exactly once, whatever is killed in the middle: a frame is acknowledged when its changeset is
committed, and one that comes again is told by its number.

That takes a broker with acknowledgements. With ``ack=False``, for those without any, the broker
forgets a frame when it has written it: what a consumer had not applied when it ended, or when its
connection was lost, is lost, and the next one finds a gap.
"""

from __future__ import annotations

import logging
import threading
import time as clocks
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from typing import Final, TypeVar

from stompkit.link import Delivery, Link, LinkClosed, durable_subscription
from stompkit.replication.consumer._gaps import GapPolicy, GapWatch
from stompkit.replication.consumer._letters import DeadLetters, Kind
from stompkit.replication.consumer._reports import (
    ConsumerProblem,
    ConsumerStatus,
    PoisonFrame,
    Problem,
    ProblemKind,
    SequenceGap,
    WindowTooSmall,
)
from stompkit.replication.consumer._retry_policy import LOOK_S, RetryPolicy, Stopped, Stopping
from stompkit.replication.consumer._sequencer import Gap, Ready, Sequencer
from stompkit.replication.consumer._windows import Windows
from stompkit.replication.events import Changeset, EventProblem
from stompkit.replication.sinks import ApplyProblem, Refused, RowSink, Sink

__all__ = [
    "Consumer",
    "ConsumerProblem",
    "ConsumerStatus",
    "Gap",
    "GapPolicy",
    "PoisonFrame",
    "Problem",
    "SequenceGap",
    "WindowTooSmall",
]

_log: Final = logging.getLogger(__name__)
_Given = TypeVar("_Given")

#: Octets of the frames that are held.
_MAX_BYTES: Final = 256 * 1024 * 1024
#: Of those that can be applied no more are read; in memory each octet becomes several.
_READ_AHEAD_BYTES: Final = 16 * 1024 * 1024
#: How many subscriptions there may be.
_WINDOWS: Final = 4
#: For how long nothing has to come before there is another one, in seconds: that of a broker which
#: has not yet noticed the end of another consumer. The second one waits twice as long, and so on.
_PATIENCE_S: Final = 0.5


class Consumer:
    """Reads changesets from a destination and has a sink apply them."""

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
        """Make a consumer; :meth:`run` runs it.

        ``ack`` is what Vesper called ``send_stomp_ack``. ``durable`` names a durable subscription
        to a topic, see :func:`~stompkit.link.durable_subscription`; ``headers`` are further ones of
        SUBSCRIBE.

        Up to ``batch`` changesets are applied in one transaction; where fewer have come
        ``batch_wait_s`` seconds are waited for more.

        The broker sends ``prefetch`` frames ahead of their acknowledgements. They wait in memory
        until their changesets are whole and it is their turn. Where all of them wait for one that
        is missing, there is another subscription, and so on up to ``hold_back`` frames (four times
        ``prefetch``, by default) and ``max_bytes`` octets. A changeset of more frames, or octets,
        than that can't be applied (:class:`WindowTooSmall`).

        What can't be applied goes to the destination ``dead_letter``, with its headers and why; of
        a :class:`~stompkit.replication.sinks.RowSink` these are single changes, and the rest of
        their changeset is applied. Without a destination the consumer stops with the error. Any
        other failure of the sink is tried again ``retries`` times (``None``: for ever), after
        ``backoff_s`` seconds and then twice as long each time, up to ``max_backoff_s``; then the
        consumer stops with it.

        A ``gap`` that has lasted for ``gap_timeout_s`` seconds is told, again after every further
        such time, and then waited for, or ends the consumer (``"stop"``), or is passed over
        (``"skip"``). One for which no more can be held ends the consumer at once, or is passed
        over. Of an origin that the sink has never heard of, the first changeset is number 1, or the
        lowest that has come within ``beginning_wait_s`` seconds.

        ``on_applied`` is called with the changesets of each transaction when it is committed,
        ``on_problem`` with each :class:`Problem`; what they raise is logged. Raises ``ValueError``
        for bounds below 1 and an unknown policy.
        """
        most = _WINDOWS * prefetch if hold_back is None else hold_back
        if min(batch, prefetch, most, max_bytes) < 1:
            raise ValueError("batch, prefetch, hold_back and max_bytes are at least 1")
        self._link = link
        self._destination = destination
        self._sink = sink
        self._ack = ack
        self._headers = {**(durable_subscription(durable) if durable else {}), **(headers or {})}
        self._batch = batch
        self._batch_wait_s = batch_wait_s
        self._prefetch = prefetch
        self._most = most
        self._max_bytes = max_bytes
        self._letters = DeadLetters(link, dead_letter, destination, self._tell)
        self._patience = RetryPolicy(
            retries=retries,
            backoff_s=backoff_s,
            max_backoff_s=max_backoff_s,
            on_failure=self._tell_of_failure,
        )
        self._watch = GapWatch(gap, gap_timeout_s, self._tell)
        self._beginning_wait_s = beginning_wait_s
        self._on_applied = on_applied
        self._on_problem = on_problem
        self._clock = clock
        self._stop = threading.Event()
        self._stopping = Stopping(self._stop, None)
        self._line = Sequencer[Delivery]()
        self._idle_since: float | None = None
        self._applied = self._changes = self._earlier_repeats = 0
        self._lag_s: float | None = None
        self._last: dict[str, int] = {}

    def __repr__(self) -> str:
        """What it reads, and how much it has applied."""
        return f"<Consumer of {self._destination!a}: {self._applied} applied>"

    def run(self, stop: threading.Event | None = None) -> None:
        """Consume until :meth:`stop` is called or ``stop`` is set; in the caller's thread.

        What has not been applied then is left to the broker. Raises :class:`ConsumerProblem`,
        :class:`~stompkit.replication.sinks.ApplyProblem`, what the sink has raised last, and
        :class:`~stompkit.link.LinkClosed`.
        """
        self._stopping = Stopping(self._stop, stop)
        self._earlier_repeats += self._line.repeats
        self._line = Sequencer(beginning_wait_s=self._beginning_wait_s)
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
                self._look_for_beginnings(windows)
                self._apply_next()
                windows.ack(self._line.take_spent())
                self._look_for_gaps(windows)
            if not self._ack:
                self._finish(windows)
        except Stopped:
            pass
        finally:
            windows.ack(self._line.take_spent())
            windows.close()
            self._stop.clear()

    def stop(self) -> None:
        """Have :meth:`run` return soon; from any thread."""
        self._stop.set()

    def status(self) -> ConsumerStatus:
        """How far it is; from any thread."""
        line = self._line
        return ConsumerStatus(
            applied=self._applied,
            changes=self._changes,
            repeats=self._earlier_repeats + line.repeats,
            dead_letters=self._letters.count,
            held_back=line.frames,
            lag_s=self._lag_s,
            last=dict(self._last),
        )

    # What comes.

    @property
    def _is_full(self) -> bool:
        """Whether no more may be held."""
        return self._line.frames >= self._most or self._line.size >= self._max_bytes

    def _has_all(self, windows: Windows) -> bool:
        """Whether the broker sends no more before something is acknowledged."""
        return windows.frames is not None and self._line.frames >= windows.frames

    def _is_starved(self, windows: Windows) -> bool:
        """Whether the broker sends no more, and has not for a while, and there is nothing to do."""
        if self._line.ready or self._idle_since is None or not self._has_all(windows):
            return False
        return self._clock() - self._idle_since >= _PATIENCE_S * windows.count

    def _is_stuck(self, windows: Windows) -> bool:
        """Whether nothing more can come."""
        if self._is_full:
            return not self._line.ready
        return self._is_starved(windows) and not windows.can_grow

    def _receive(self, windows: Windows) -> None:
        """Take what has come; wait for something only where there is nothing to do."""
        line = self._line
        taken = 0
        began: float | None = None
        while line.ready < self._batch and taken < self._prefetch and not self._is_full:
            wait_s = 0.0 if taken else LOOK_S
            if line.ready:
                if line.size >= _READ_AHEAD_BYTES or self._has_all(windows):
                    break
                began = self._clock() if began is None else began
                wait_s = max(0.0, min(LOOK_S, began + self._batch_wait_s - self._clock()))
            delivery = windows.get(wait_s)
            if delivery is not None:
                taken += 1
                self._take(delivery, windows)
            elif not wait_s or not line.ready or self._stopping.is_set:
                break
        if taken or line.ready:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = self._clock()

    def _finish(self, windows: Windows) -> None:
        """Apply what the broker has forgotten, having written it."""
        windows.close()
        with suppress(LinkClosed):
            while (delivery := windows.get(LOOK_S)) is not None:
                self._take(delivery, windows)
        self._look_for_beginnings(windows)
        while self._line.ready:
            self._apply_next()

    def _take(self, delivery: Delivery, windows: Windows) -> None:
        try:
            self._line.add(delivery, self._clock())
        except EventProblem as problem:
            self._letters.bury([delivery], "frame", str(problem), problem, self._stopping)
            windows.ack([delivery])
        for origin in self._line.take_strangers():
            last = self._patiently(partial(self._sink.last, origin))
            if last is not None:
                self._last[origin] = last
            self._line.introduce(origin, last, self._clock())

    def _look_for_beginnings(self, windows: Windows) -> None:
        """Begin origins that have waited for it, and tell of what came too late."""
        self._line.look(self._clock(), at_once=self._is_stuck(windows))
        for origin, sequence in self._line.take_late():
            self._tell(
                "late",
                f"changeset {sequence} of {origin} was not applied: it came when others behind it "
                "had been applied, or not as a whole",
                origin,
                sequence,
            )

    # What is applied.

    def _apply_next(self) -> None:
        group = self._line.peek(self._batch)
        if not group:
            return
        if group[0].problem:
            self._bury_changeset(group[0], "frame", group[0].problem)
            return
        self._apply(list(takewhile(lambda ready: not ready.problem, group)))

    def _apply(self, group: list[Ready[Delivery]]) -> None:
        changesets = [ready.changeset for ready in group]
        try:
            self._patiently(partial(self._sink.apply, changesets))
        except ApplyProblem as problem:
            if len(group) > 1:
                # One of them can't be applied; the others shall not wait for it.
                for each in group:
                    self._apply([each])
            elif not self._apply_rows(group[0]):
                self._bury_changeset(group[0], "apply", str(problem), problem)
            return
        self._applied_all(group)

    def _apply_rows(self, ready: Ready[Delivery]) -> bool:
        """Apply what can be applied of a changeset, and make dead letters of its other changes.

        Returns False where the sink can't do that, or all of the changeset is refused.
        """
        changeset = ready.changeset
        # Of one change, too: what is refused may have come before it, and have waited for others.
        if not self._letters.has_destination or not isinstance(self._sink, RowSink):
            return False

        def refuse(refused: Sequence[Refused]) -> None:
            self._letters.bury_changes(ready.arrivals, refused, self._stopping, changeset)

        try:
            self._patiently(partial(self._sink.apply_rows, changeset, refuse))
        except ApplyProblem:
            return False
        self._applied_all([ready])
        return True

    def _applied_all(self, group: Sequence[Ready[Delivery]]) -> None:
        """Note what the sink has committed, and tell of it."""
        changesets = [ready.changeset for ready in group]
        self._done(group)
        self._applied += len(group)
        self._changes += sum(len(changeset.changes) for changeset in changesets)
        newest = changesets[-1]
        made = newest.source.time or newest.timestamp
        made = made if made.tzinfo else made.replace(tzinfo=UTC)
        self._lag_s = (datetime.now(UTC) - made).total_seconds()
        if self._on_applied is not None:
            self._call(self._on_applied, changesets)

    def _done(self, group: Sequence[Ready[Delivery]]) -> None:
        self._line.done(group)
        for ready in group:
            self._last[ready.changeset.origin] = ready.changeset.sequence

    def _patiently(self, function: Callable[[], _Given]) -> _Given:
        return self._patience.call(function, self._stopping)

    # What can't be applied.

    def _bury_changeset(
        self, ready: Ready[Delivery], kind: Kind, reason: str, error: Exception | None = None
    ) -> None:
        changeset = ready.changeset
        self._letters.bury(ready.arrivals, kind, reason, error, self._stopping, changeset)
        self._patiently(partial(self._sink.skip, changeset))
        self._done([ready])

    # What is missing.

    def _look_for_gaps(self, windows: Windows) -> None:
        if self._is_starved(windows) and not self._is_full and windows.can_grow:
            windows.grow()
            self._idle_since = None
        self._watch.look(self._line, self._clock(), is_stuck=self._is_stuck(windows))

    # Who is told.

    def _tell_of_failure(self, error: Exception) -> None:
        self._tell("retry", f"the sink has failed: {error!r}", error=error)

    def _tell(
        self,
        kind: ProblemKind,
        text: str,
        origin: str = "",
        sequence: int | None = None,
        error: BaseException | None = None,
    ) -> None:
        level = logging.WARNING if kind == "retry" else logging.ERROR
        _log.log(level, "%s: %s", self._destination, text)
        if self._on_problem is not None:
            problem = Problem(kind=kind, text=text, origin=origin, sequence=sequence, error=error)
            self._call(self._on_problem, problem)

    def _call(self, function: Callable[[_Given], object], argument: _Given) -> None:
        try:
            function(argument)
        except Exception:
            _log.exception("a callback of %r has failed", self)
