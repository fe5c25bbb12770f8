"""The order of changesets: next, early and repeated ones; no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic

from stompkit.replication.consumer._copies import A, Arrival, Copies, Copy, Ready
from stompkit.replication.consumer._labels import label_of, read_label
from stompkit.replication.model.events import EventError
from stompkit.replication.model.frames import Reassembler

__all__ = ["FIRST", "Arrival", "Gap", "Ready", "Sequencer"]

#: First sequence number of a publisher.
FIRST: Final = 1


@dataclass(frozen=True, slots=True)
class Gap:
    """Changesets of one origin that wait for a missing one."""

    origin: str
    missing: int
    """Number of the first missing changeset."""
    found: int | None
    """Lowest received number after it; ``None`` if only parts of it were received."""
    held: int
    """Number of waiting changesets, including incomplete ones."""
    parts: str
    """Received parts of the missing one, such as ``3 of 5``; empty if there are none."""
    waited_s: float
    """Time in seconds since a part of the missing changeset was received."""

    def __str__(self) -> str:
        """Describe the gap in one sentence."""
        some = f", of which {self.parts} parts have come," if self.parts else ""
        last = f" to {self.found - 1}" if self.found and self.found > self.missing + 1 else ""
        return (
            f"changeset {self.missing}{last} of {self.origin}{some} is missing for "
            f"{self.waited_s:.1f} seconds, and {self.held} wait"
        )


@dataclass(slots=True)
class _OriginState(Generic[A]):
    """State of one origin."""

    arrived_at: float
    is_started: bool = False
    last: int | None = None
    """Number of the last applied changeset."""
    next: int | None = None
    """Number of the next expected changeset."""
    ready: dict[int, Copies[A]] = field(default_factory=dict)
    early: dict[int, Copies[A]] = field(default_factory=dict)
    blocked_at: float | None = None
    passed: list[range] = field(default_factory=list)
    """Skipped ranges of numbers."""

    def is_behind(self, sequence: int) -> bool:
        """Return True if this changeset's position in the order was passed."""
        return self.next is not None and sequence < self.next and sequence not in self.ready

    def is_whole(self, sequence: int) -> bool:
        """Return True if all frames of a changeset have been received."""
        return any(copy.is_complete for copy in self.early.get(sequence, {}).values())


class Sequencer(Generic[A]):
    """Puts the frames of many origins in the order in which each origin has published.

    Frames are added as they arrive: in any order, and more than once. The output is each changeset
    once, with its frames, which the caller acknowledges when the changeset is applied. Frames that
    are no longer needed are returned separately, to be acknowledged at once.
    """

    def __init__(self, *, beginning_wait_s: float = 2.0) -> None:
        """Start empty.

        For an origin without any applied changeset, the first one is number 1. If number 1 does not
        arrive, it is the lowest number received ``beginning_wait_s`` seconds after the origin's
        first.
        """
        self._beginning_wait_s = beginning_wait_s
        self._origins: dict[str, _OriginState[A]] = {}
        self._new: list[str] = []
        self._without_last: list[str] = []
        self._ready: deque[tuple[str, int]] = deque()
        self._spent: list[A] = []
        self._late: list[tuple[str, int]] = []
        #: Number of held frames, and total size of their bodies in bytes.
        self.frames = self.size = 0
        #: Number of frames whose changesets were already applied or held.
        self.repeats = 0

    # Input.

    def add(self, arrival: A, now: float) -> None:
        """Add a frame; raises EventError if it does not belong to a changeset."""
        label = read_label(arrival.headers)
        if label is None:
            whole = Reassembler().add(arrival.headers, arrival.body)
            if whole is None:
                raise EventError("a part of a changeset does not say of which")
            label = label_of(whole)
        state = self._origins.get(label.origin)
        if state is None:
            state = self._origins[label.origin] = _OriginState(now)
            self._new.append(label.origin)
        sequence = label.sequence
        if state.is_behind(sequence):
            if any(sequence in numbers for numbers in state.passed):
                self._late.append((label.origin, sequence))
            self.repeats += 1
            self._spent.append(arrival)
            return
        copies = state.ready.get(sequence)
        if copies is None:
            copies = state.early.setdefault(sequence, {})
        copy = copies.setdefault(label.parts, Copy(label))
        self.frames += 1
        self.size += len(arrival.body)
        if label.part in copy.arrivals:
            self.repeats += 1
            self._release(copy.add_again(label, arrival))
        else:
            copy.add(label, arrival)
            if sequence == state.next:
                state.blocked_at = now
            self._advance(label.origin, state, now)

    def take_new(self) -> list[str]:
        """Return new origins, for which the caller must call :meth:`start`."""
        new, self._new = self._new, []
        return new

    def start(self, origin: str, last: int | None, now: float) -> None:
        """Set the last applied changeset of an origin; ``None`` if there is none."""
        state = self._origins[origin]
        state.is_started = True
        state.last = last
        if last is None:
            self._without_last.append(origin)
            self.start_overdue(now)
            return
        state.next = last + 1
        for sequence in [each for each in state.early if each <= last]:
            self._drop(state.early.pop(sequence))
        self._advance(origin, state, now)

    def start_overdue(self, now: float, *, at_once: bool = False) -> None:
        """Start origins whose waiting time is over; ``at_once`` ignores the waiting time."""
        for origin in list(self._without_last):
            state = self._origins[origin]
            # A reader that joins during a split changeset never receives its first part.
            begun = [
                sequence
                for sequence, copies in state.early.items()
                if any(1 in copy.arrivals for copy in copies.values())
            ]
            if not begun:
                continue
            lowest = min(begun)
            is_late = at_once or now - state.arrived_at >= self._beginning_wait_s
            if lowest <= FIRST or is_late:
                self._without_last.remove(origin)
                self._continue_at(origin, state, lowest, now)

    # Output.

    @property
    def ready(self) -> int:
        """Number of changesets that can be applied now."""
        return len(self._ready)

    def peek(self, most: int) -> list[Ready[A]]:
        """Return the next changesets, in order."""
        found = []
        for origin, sequence in islice(self._ready, most):
            copies = self._origins[origin].ready[sequence].values()
            complete = [copy for copy in copies if copy.is_complete]
            good = next((copy for copy in complete if copy.whole is not None), complete[0])
            found.append(good.ready())
        return found

    def done(self, ready: Sequence[Ready[A]]) -> None:
        """Record that these changesets, the first ones from :meth:`peek`, are durably applied."""
        for each in ready:
            origin, sequence = self._ready.popleft()
            assert (origin, sequence) == (each.changeset.origin, each.changeset.sequence)
            state = self._origins[origin]
            state.last = sequence
            self._drop(state.ready.pop(sequence), are_repeats=False)

    def take_spent(self) -> list[A]:
        """Return and clear the frames that can be acknowledged."""
        spent, self._spent = self._spent, []
        return spent

    def take_late(self) -> list[tuple[str, int]]:
        """Return origins and numbers of changesets that arrived too late and were not applied."""
        late, self._late = self._late, []
        return late

    # Gaps.

    def gaps(self, now: float) -> list[Gap]:
        """Return the current gap of each origin."""
        found = []
        for origin, state in self._origins.items():
            if state.blocked_at is None or state.next is None:
                continue
            behind = [sequence for sequence in state.early if sequence > state.next]
            copies = state.early.get(state.next, {}).values()
            parts = " or ".join(f"{len(copy.arrivals)} of {copy.label.parts}" for copy in copies)
            lowest = min(behind, default=None)
            waited_s = now - state.blocked_at
            found.append(Gap(origin, state.next, lowest, len(state.early), parts, waited_s))
        return found

    def skip(self, gap: Gap, now: float) -> None:
        """Skip a gap; raises ValueError if nothing after it was received."""
        if gap.found is None:
            raise ValueError("nothing has come behind the gap")
        self._continue_at(gap.origin, self._origins[gap.origin], gap.found, now)

    # Inside.

    def _continue_at(self, origin: str, state: _OriginState[A], sequence: int, now: float) -> None:
        """Continue at ``sequence``, and wait for no earlier changeset."""
        for each in [each for each in state.early if each < sequence]:
            self._late.append((origin, each))
            self._drop(state.early.pop(each))
        state.passed.append(range(FIRST if state.next is None else state.next, sequence))
        state.next = sequence
        self._advance(origin, state, now)

    def _advance(self, origin: str, state: _OriginState[A], now: float) -> None:
        if state.next is None:
            if state.is_started:
                self.start_overdue(now)
            return
        while state.is_whole(state.next):
            state.ready[state.next] = state.early.pop(state.next)
            self._ready.append((origin, state.next))
            state.next += 1
            state.blocked_at = None
        if not state.early:
            state.blocked_at = None
        elif state.blocked_at is None:
            state.blocked_at = now

    def _drop(self, copies: Copies[A], *, are_repeats: bool = True) -> None:
        """Release held frames."""
        for copy in copies.values():
            arrivals = [*copy.arrivals.values(), *copy.again]
            self._release(arrivals)
            self._spent += arrivals
            if are_repeats:
                self.repeats += len(arrivals)

    def _release(self, arrivals: Sequence[A]) -> None:
        self.frames -= len(arrivals)
        self.size -= sum(len(each.body) for each in arrivals)
