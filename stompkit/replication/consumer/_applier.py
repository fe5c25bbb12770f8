"""Application of changesets to the sink, in batches; refused ones go to the dead letters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from typing import TypeVar

from stompkit.client.blocking import Delivery
from stompkit.replication.consumer._dead_letters import DeadLetters, Kind
from stompkit.replication.consumer._sequencer import Ready, Sequencer
from stompkit.replication.consumer.retry_policy import RetryPolicy, Stopping
from stompkit.replication.model.events import Changeset
from stompkit.replication.sinks import ApplyError, Refused, RowSink, Sink

__all__ = ["Applier"]

_Given = TypeVar("_Given")


class Applier:
    """Applies the changesets that are ready in a sequencer."""

    def __init__(
        self,
        sink: Sink,
        dead_letters: DeadLetters,
        retry_policy: RetryPolicy,
        *,
        batch: int,
        on_applied: Callable[[Sequence[Changeset]], None],
    ) -> None:
        """Apply up to ``batch`` changesets in a transaction of the sink."""
        self._sink = sink
        self._dead_letters = dead_letters
        self._retry_policy = retry_policy
        self._batch = batch
        self._on_applied = on_applied
        self._sequencer = Sequencer[Delivery]()
        self._stopping = Stopping(threading.Event(), None)
        self.applied = 0
        """Number of applied changesets."""
        self.changes = 0
        """Number of applied row changes."""
        self.lag_s: float | None = None
        """Age in seconds of the newest changeset when it was applied."""
        self.last: dict[str, int] = {}
        """Number of the last applied changeset, by origin."""

    def start(self, sequencer: Sequencer[Delivery], stopping: Stopping) -> None:
        """Begin a run: apply the changesets of *sequencer* until *stopping* is set."""
        self._sequencer = sequencer
        self._stopping = stopping

    def look_up(self, origin: str) -> int | None:
        """Return the number of the last changeset that the sink has of an origin."""
        last = self._retry(partial(self._sink.last, origin))
        if last is not None:
            self.last[origin] = last
        return last

    def apply_next(self) -> None:
        """Apply the next changesets that are ready, or send one to the dead letters."""
        group = self._sequencer.peek(self._batch)
        if not group:
            return
        if group[0].problem:
            self._send_dead_letter(group[0], "frame", group[0].problem)
            return
        self._apply(list(takewhile(lambda ready: not ready.problem, group)))

    def _apply(self, group: list[Ready[Delivery]]) -> None:
        changesets = [ready.changeset for ready in group]
        try:
            self._retry(partial(self._sink.apply, changesets))
        except ApplyError as problem:
            if len(group) > 1:
                # One of them cannot be applied; the others are applied separately.
                for each in group:
                    self._apply([each])
            elif not self._apply_rows(group[0]):
                self._send_dead_letter(group[0], "apply", str(problem), problem)
            return
        self._applied_all(group)

    def _apply_rows(self, ready: Ready[Delivery]) -> bool:
        """Apply the acceptable changes of a changeset, and send the others to the dead letters.

        Returns False if the sink does not support this, or if it refuses the whole changeset.
        """
        changeset = ready.changeset
        # Also for a single change: the refused change may have been held back earlier.
        if not self._dead_letters.has_destination or not isinstance(self._sink, RowSink):
            return False

        def refuse(refused: Sequence[Refused]) -> None:
            self._dead_letters.send_changes(ready.arrivals, refused, self._stopping, changeset)

        try:
            self._retry(partial(self._sink.apply_rows, changeset, refuse))
        except ApplyError:
            return False
        self._applied_all([ready])
        return True

    def _applied_all(self, group: Sequence[Ready[Delivery]]) -> None:
        """Record and report the changesets that the sink has committed."""
        changesets = [ready.changeset for ready in group]
        self._done(group)
        self.applied += len(group)
        self.changes += sum(len(changeset.changes) for changeset in changesets)
        newest = changesets[-1]
        committed = newest.source.time or newest.timestamp
        committed = committed if committed.tzinfo else committed.replace(tzinfo=UTC)
        self.lag_s = (datetime.now(UTC) - committed).total_seconds()
        self._on_applied(changesets)

    def _done(self, group: Sequence[Ready[Delivery]]) -> None:
        self._sequencer.done(group)
        for ready in group:
            self.last[ready.changeset.origin] = ready.changeset.sequence

    def _retry(self, function: Callable[[], _Given]) -> _Given:
        return self._retry_policy.call(function, self._stopping)

    def _send_dead_letter(
        self, ready: Ready[Delivery], kind: Kind, reason: str, error: Exception | None = None
    ) -> None:
        changeset = ready.changeset
        self._dead_letters.send(ready.arrivals, kind, reason, error, self._stopping, changeset)
        self._retry(partial(self._sink.skip, changeset))
        self._done([ready])
