"""What publishers have in common: numbers, signals, back-pressure and checkpoints."""

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

from stompkit.replication.events import Changeset, RowChange, Source, make_changeset
from stompkit.replication.offsets import Checkpoint, MemoryOffsets, Offsets
from stompkit.replication.signals import CHANGESET, Raw, emit
from stompkit.replication.tables import Tables

__all__ = ["Publication", "PublicationStopped"]

#: How often a wait looks whether it is to end, in seconds.
_LOOK_S: Final = 0.2


class PublicationStopped(Exception):
    """:meth:`Publication.stop` was called while something was waited for."""


@dataclass(slots=True)
class _Entry:
    """A point where reading can be resumed when all futures up to here are done."""

    checkpoint: Checkpoint
    futures: list[Future[Any]]


class Publication:
    """Numbers changesets, hands them to the receivers of signals, and keeps the checkpoint.

    The checkpoint follows the changesets that all receivers have confirmed, in their order. After a
    crash the publisher reads again from there, and gives what it finds the same numbers and ids:
    whoever has seen them can tell. Numbers of one origin are without gaps.

    One thread publishes; :meth:`stop` and the properties can be used by others.
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

        ``name`` is the beginning of the origin, by default ``kind``; the rest of it is random, made
        once and kept with the checkpoint: a publisher that begins anew is another origin.
        ``kind`` and ``server`` are for :class:`~stompkit.replication.events.Source`. At most
        ``max_unconfirmed`` changesets wait for confirmation. The checkpoint is stored every
        ``checkpoint_s`` seconds at most, and by :meth:`flush`. ``raw`` makes what raw signals send.
        ``changesets`` is the signal that changesets are sent by; with one of its own, receivers
        hear of this publication alone. Those of CHANGESET hear it as well.

        Raises what loading raises.
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
        #: What was published last, what all receivers have confirmed, and what is stored of that.
        self._last = self._confirmed = found or begin
        self._stored = found
        self._stored_at = clock()
        self._waiting: deque[_Entry] = deque()
        self._unconfirmed = 0
        self._stop = Event()
        self._published = 0
        self._changes = 0
        self._lag_s: float | None = None

    def __repr__(self) -> str:
        """Who publishes, and how far it is."""
        return f"<Publication of {self.origin}: {self._last.sequence}>"

    # How far it is.

    @property
    def origin(self) -> str:
        """Who publishes."""
        return self._last.origin

    @property
    def sequence(self) -> int:
        """The number of the last changeset; 0 before the first."""
        return self._last.sequence

    @property
    def position(self) -> str:
        """Where reading goes on behind what was published; empty where nothing ever was."""
        return self._last.position

    @property
    def state(self) -> dict[str, Any]:
        """What the publisher has said with that position; a copy."""
        return dict(self._last.state)

    @property
    def confirmed_position(self) -> str:
        """The position up to which everything is confirmed and the checkpoint is stored."""
        return self._stored.position if self._stored is not None else ""

    @property
    def unconfirmed(self) -> int:
        """Changesets that wait for confirmation, as of the last call."""
        return self._unconfirmed

    @property
    def published(self) -> int:
        """Changesets since this object was made."""
        return self._published

    @property
    def changes(self) -> int:
        """Changes of rows since this object was made."""
        return self._changes

    @property
    def lag_s(self) -> float | None:
        """How old the last changeset was when it was published, in seconds.

        By the source's clock; 0 when the source has nothing more, ``None`` where it never said.
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
        """Publish the changes of one transaction, behind which reading resumes at ``position``.

        They are shaped by ``tables``. ``state`` replaces that of the checkpoint, and is kept where
        it is not given. Waits while as many changesets as may be are unconfirmed; raises
        :class:`PublicationStopped` then, if somebody calls :meth:`stop`. Raises what a receiver of
        the changeset raises, now or by its future: then begin again from the checkpoint, with a new
        object.
        """
        self._make_room()
        if self._stored is None:
            # The origin has to be the same after a crash, even if nothing is confirmed before.
            self._store(self._confirmed)
        checkpoint = msgspec.structs.replace(
            self._last,
            sequence=self._last.sequence + 1,
            position=position,
            state=self._last.state if state is None else dict(state),
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
        self._waiting.append(_Entry(checkpoint, futures))
        self._unconfirmed += bool(futures)
        self._published += 1
        self._changes += len(changeset.changes)
        if time is not None:
            made = time if time.tzinfo else time.replace(tzinfo=UTC)
            self._lag_s = (datetime.now(UTC) - made).total_seconds()
        self._settle()
        return changeset

    def end_snapshot(self, position: str, state: dict[str, Any]) -> None:
        """Publish an empty changeset, behind which no rows of a snapshot come any more.

        Who keeps rows until others have come does with them what can be done. Raises what
        :meth:`publish` raises.
        """
        self.publish([], position=position, state=state)

    def advance(self, position: str, state: dict[str, Any] | None = None) -> None:
        """Say that reading can resume at ``position``, although nothing is to be published.

        Raises what a receiver's future has failed with.
        """
        checkpoint = msgspec.structs.replace(
            self._last,
            position=position,
            state=self._last.state if state is None else dict(state),
        )
        self._last = checkpoint
        self._lag_s = None if self._lag_s is None else 0.0
        if self._waiting and not self._waiting[-1].futures:
            self._waiting.pop()
        self._waiting.append(_Entry(checkpoint, []))
        self._settle()

    def settle(self) -> None:
        """Look what was confirmed meanwhile, and store the checkpoint if it is time for that.

        For publishers that have nothing to say for a while. Raises what a receiver's future has
        failed with.
        """
        self._settle()

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything is confirmed, and store the checkpoint.

        Raises TimeoutError, :class:`PublicationStopped`, and what a receiver's future has failed
        with; the checkpoint is stored up to there.
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
        """Have whoever waits, and whoever waits from now on, raise :class:`PublicationStopped`."""
        self._stop.set()

    # Inside.

    def _make_room(self) -> None:
        while len(self._waiting) >= self._most:
            self._wait_for_first(None)
            self._settle()

    def _wait_for_first(self, deadline: float | None) -> None:
        """Wait for the futures of what was published first."""
        futures = self._waiting[0].futures
        while True:
            left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - self._clock())
            done = wait(futures, max(left, 0.0), FIRST_EXCEPTION)
            if not done.not_done or any(each.exception() for each in done.done):
                return
            if self._stop.is_set():
                raise PublicationStopped
            if left <= 0:
                raise TimeoutError(f"{self.unconfirmed} changesets were not confirmed in time")

    def _settle(self) -> None:
        """Look what is confirmed; store the checkpoint if it is time for that."""
        waiting = self._waiting
        while waiting:
            done = [future for future in waiting[0].futures if future.done()]
            for future in done:
                # One that has failed need not wait for the others.
                future.result()
            if len(done) < len(waiting[0].futures):
                break
            self._unconfirmed -= bool(done)
            self._confirmed = waiting.popleft().checkpoint
        if self._stored is not self._confirmed and (
            self._clock() - self._stored_at >= self._checkpoint_s
        ):
            self._store(self._confirmed)

    def _store(self, checkpoint: Checkpoint) -> None:
        self._offsets.store(checkpoint)
        self._stored = checkpoint
        self._stored_at = self._clock()
