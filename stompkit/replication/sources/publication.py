"""Common functions of publishers: sequence numbers, signals, back-pressure and checkpoints."""

from __future__ import annotations

import time as clocks
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event
from typing import Any, Final
from uuid import uuid4

import msgspec
from blinker import Signal

from stompkit._common.moved import renamed
from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from stompkit.replication.model.signals import CHANGESET, Raw, emit
from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.offsets import Checkpoint, MemoryOffsets, Offsets

__all__ = ["Publication", "PublicationStoppedError"]

#: Interval in seconds at which a wait checks for :meth:`Publication.stop`.
_LOOK_S: Final = 0.2


class PublicationStoppedError(Exception):
    """:meth:`Publication.stop` was called during a wait."""


@dataclass(slots=True)
class _Entry:
    """A position from which reading can resume once all futures up to it are done."""

    checkpoint: Checkpoint
    futures: list[Future[Any]]
    #: Number of changesets that they confirm.
    changesets: int = 1


class Publication:
    """Numbers changesets, sends them to the receivers of signals, and keeps the checkpoint.

    The checkpoint follows the changesets that all receivers have confirmed, in order. After a crash
    the publisher reads again from the checkpoint, and assigns the same numbers and ids again.
    Receivers can therefore detect duplicates. The numbers of one origin have no gaps.

    One thread publishes; :meth:`stop` and the properties are thread-safe.
    """

    def __init__(
        self,
        offsets: Offsets | None = None,
        *,
        kind: str,
        name: str = "",
        server: str = "",
        tables: Tables | None = None,
        max_unconfirmed: int = 1000,
        checkpoint_s: float = 0.5,
        raw: Raw | None = None,
        changesets: Signal = CHANGESET,
        clock: Callable[[], float] = clocks.monotonic,
    ) -> None:
        """Load the checkpoint, if there is one.

        ``name`` is the prefix of the origin, by default ``kind``. The suffix is random, generated
        once and kept with the checkpoint, so a publisher without a checkpoint is a new origin.
        ``kind`` and ``server`` are for :class:`~stompkit.replication.model.events.Source`. At most
        ``max_unconfirmed`` changesets wait for confirmation. The checkpoint is stored every
        ``checkpoint_s`` seconds at most, and by :meth:`flush`. ``raw`` makes the payload of raw
        signals. ``changesets`` is the signal by which changesets are sent; receivers of a private
        signal receive this publication only. Receivers of CHANGESET receive it as well.

        Raises the errors of loading.
        """
        self.tables: Final = tables or Tables()
        self._offsets = offsets or MemoryOffsets()
        self._kind = kind
        self._server = server
        self._most = max_unconfirmed
        self._checkpoint_s = checkpoint_s
        self._raw = raw
        self._changesets = changesets
        self._clock = clock
        found = self._offsets.load()
        begin = Checkpoint(origin=f"{name or kind}.{uuid4().hex[:8]}", sequence=0, position="")
        #: Checkpoints: last published, confirmed by all receivers, and stored.
        self._last = self._confirmed = found or begin
        self._stored = found
        self._stored_at = clock()
        self._waiting: deque[_Entry] = deque()
        #: Number of changesets in the queue, and of those with futures.
        self._queued = 0
        self._unconfirmed = 0
        self._stop = Event()
        self._published = 0
        self._changes = 0
        self._lag_s: float | None = None
        #: Why the log cannot be read at present, for the status; empty while it can.
        self.problem = ""

    def __repr__(self) -> str:
        """Show the origin and the last sequence number."""
        return f"<Publication of {self.origin}: {self._last.sequence}>"

    # Progress.

    @property
    def origin(self) -> str:
        """Origin of the published changesets."""
        return self._last.origin

    @property
    def sequence(self) -> int:
        """Sequence number of the last changeset; 0 before the first."""
        return self._last.sequence

    @property
    def position(self) -> str:
        """Position from which reading resumes after the last changeset; empty before the first."""
        return self._last.position

    @property
    def state(self) -> dict[str, Any]:
        """State that the publisher stored with that position; a copy."""
        return dict(self._last.state)

    @property
    def confirmed_position(self) -> str:
        """Position up to which everything is confirmed and the checkpoint is stored."""
        return self._stored.position if self._stored is not None else ""

    @property
    def unconfirmed(self) -> int:
        """Number of unconfirmed changesets, as of the last call."""
        return self._unconfirmed

    @property
    def published(self) -> int:
        """Number of changesets published by this object."""
        return self._published

    @property
    def changes(self) -> int:
        """Number of row changes published by this object."""
        return self._changes

    @property
    def lag_s(self) -> float | None:
        """Age in seconds of the last changeset when it was published.

        It is measured by the source's clock; 0 when the source has no more data, ``None`` if
        unknown.
        """
        return self._lag_s

    # Publishing.

    def publish(
        self,
        changes: Iterable[RowChange],
        *,
        position: str,
        transaction: str = "",
        time: datetime | None = None,
        is_snapshot: bool = False,
        state: dict[str, Any] | None = None,
    ) -> Changeset:
        """Publish the changes of one transaction, after which reading resumes at ``position``.

        ``tables`` filters and masks the changes. ``state`` replaces the state of the checkpoint; by
        default the state is kept. Blocks while the maximum number of changesets is unconfirmed;
        raises :class:`PublicationStoppedError` if :meth:`stop` is called then. Raises the errors of
        the changeset's receivers, directly or through their futures; then start again from the
        checkpoint, with a new object.
        """
        self._make_room()
        if self._stored is None:
            # The origin must survive a crash, even if nothing is confirmed before it.
            self._store(self._confirmed)
        last = self._last
        checkpoint = Checkpoint(
            origin=last.origin,
            sequence=last.sequence + 1,
            position=position,
            state=last.state if state is None else dict(state),
        )
        source = Source(
            kind=self._kind,
            server=self._server,
            position=position,
            transaction=transaction,
            time=time,
            is_snapshot=is_snapshot,
        )
        shape = self.tables.shape
        changeset = make_changeset(
            checkpoint.origin,
            checkpoint.sequence,
            [shape(change) for change in changes],
            source,
            id=f"{checkpoint.origin}:{checkpoint.sequence}",
            timestamp=time,
        )
        futures = emit(changeset, raw=self._raw, changesets=self._changesets)
        self._last = checkpoint
        self._enqueue(checkpoint, futures)
        self._published += 1
        self._changes += len(changeset.changes)
        if time is not None:
            made = time if time.tzinfo else time.replace(tzinfo=UTC)
            self._lag_s = (datetime.now(UTC) - made).total_seconds()
        self._settle()
        return changeset

    def end_snapshot(self, position: str, state: dict[str, Any]) -> None:
        """Publish an empty changeset that marks the end of a snapshot.

        Receivers that hold rows back until others have arrived can then process them. Raises the
        errors of :meth:`publish`.
        """
        self.publish([], position=position, state=state)

    def advance(self, position: str, state: dict[str, Any] | None = None) -> None:
        """Record that reading can resume at ``position``, although nothing is published.

        Raises the error of a receiver's future.
        """
        checkpoint = msgspec.structs.replace(
            self._last,
            position=position,
            state=self._last.state if state is None else dict(state),
        )
        self._last = checkpoint
        self._lag_s = None if self._lag_s is None else 0.0
        if self._waiting and not self._waiting[-1].futures:
            self._queued -= self._waiting.pop().changesets
        self._waiting.append(_Entry(checkpoint, [], 0))
        self._settle()

    def settle(self) -> None:
        """Process new confirmations, and store the checkpoint if it is due.

        For publishers that are idle for a while. Raises the error of a receiver's future.
        """
        self._settle()

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything is confirmed, and store the checkpoint.

        Raises TimeoutError, :class:`PublicationStoppedError`, and the error of a receiver's future;
        the checkpoint is stored up to that point.
        """
        deadline = None if timeout_s is None else self._clock() + timeout_s
        try:
            while self._waiting:
                self._wait_for_first(deadline)
                self._settle()
        finally:
            if self._stored is not self._confirmed:
                self._store(self._confirmed)

    def stop(self) -> None:
        """Make current and future waits raise :class:`PublicationStoppedError`."""
        self._stop.set()

    # Inside.

    def _enqueue(self, checkpoint: Checkpoint, futures: list[Future[Any]]) -> None:
        """Record a changeset and its futures, which it may share with the previous one."""
        self._queued += 1
        self._unconfirmed += bool(futures)
        last = self._waiting[-1] if futures and self._waiting else None
        if last is not None and last.futures == futures:
            last.checkpoint = checkpoint
            last.changesets += 1
        else:
            self._waiting.append(_Entry(checkpoint, futures))

    def _make_room(self) -> None:
        while self._queued >= self._most:
            self._wait_for_first(None)
            self._settle()

    def _wait_for_first(self, deadline: float | None) -> None:
        """Wait for the futures of the oldest unconfirmed entry."""
        futures = self._waiting[0].futures
        while True:
            left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - self._clock())
            done = wait(futures, max(left, 0.0), FIRST_EXCEPTION)
            if not done.not_done or any(each.exception() for each in done.done):
                return
            if self._stop.is_set():
                raise PublicationStoppedError
            if left <= 0:
                raise TimeoutError(f"{self.unconfirmed} changesets were not confirmed in time")

    def _settle(self) -> None:
        """Process new confirmations; store the checkpoint if it is due."""
        waiting = self._waiting
        while waiting:
            first = waiting[0]
            done = [future for future in first.futures if future.done()]
            for future in done:
                # A failed future does not wait for the others.
                future.result()
            if len(done) < len(first.futures):
                break
            self._queued -= first.changesets
            self._unconfirmed -= first.changesets if done else 0
            self._confirmed = waiting.popleft().checkpoint
        if self._stored is not self._confirmed and (
            self._clock() - self._stored_at >= self._checkpoint_s
        ):
            self._store(self._confirmed)

    def _store(self, checkpoint: Checkpoint) -> None:
        self._offsets.store(checkpoint)
        self._stored = checkpoint
        self._stored_at = self._clock()


renamed(
    __name__,
    PublicationStopped="PublicationStoppedError",
)
