"""The order of changesets: which is next, which is too early, and which has been; no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic

from stompkit.replication.consumer._copies import A, Arrival, Copies, Copy, Ready
from stompkit.replication.consumer._labels import label_of, read_label
from stompkit.replication.events import EventProblem
from stompkit.replication.frames import Reassembler

__all__ = ["FIRST", "Arrival", "Gap", "Ready", "Sequencer"]

#: The number that publishers begin with.
FIRST: Final = 1


@dataclass(frozen=True, slots=True)
class Gap:
    """Changesets of one origin that wait for one that is missing."""

    origin: str
    missing: int
    """The number of the first that is missing."""
    found: int | None
    """The lowest number behind it that has come; ``None`` where only parts of it have."""
    held: int
    """How many changesets wait, those that are not whole among them."""
    parts: str
    """Such as ``3 of 5`` where some parts of the missing one have come; else empty."""
    waited_s: float
    """How long nothing of what is missing has come, in seconds."""

    def __str__(self) -> str:
        """All of that."""
        some = f", of which {self.parts} parts have come," if self.parts else ""
        last = f" to {self.found - 1}" if self.found and self.found > self.missing + 1 else ""
        return (
            f"changeset {self.missing}{last} of {self.origin}{some} is missing for "
            f"{self.waited_s:.1f} seconds, and {self.held} wait"
        )


@dataclass(slots=True)
class _Track(Generic[A]):
    """One origin."""

    arrived_at: float
    is_introduced: bool = False
    last: int | None = None
    """The number of the last changeset that was applied."""
    next: int | None = None
    """The number of the one that is waited for."""
    ready: dict[int, Copies[A]] = field(default_factory=dict)
    early: dict[int, Copies[A]] = field(default_factory=dict)
    blocked_at: float | None = None
    passed: list[range] = field(default_factory=list)
    """What was not waited for any longer."""

    def is_behind(self, sequence: int) -> bool:
        """Whether the turn of this changeset is over."""
        return self.next is not None and sequence < self.next and sequence not in self.ready

    def is_whole(self, sequence: int) -> bool:
        """Whether all frames of a changeset have come."""
        return any(copy.is_complete for copy in self.early.get(sequence, {}).values())


class Sequencer(Generic[A]):
    """Puts the frames of many origins in the order in which each has published.

    Frames are added as they come: in any order, and more than once. What comes out is each
    changeset once, with its frames, which are to be acknowledged when it has been applied; and the
    frames that are of no use any more, to be acknowledged at once.
    """

    def __init__(self, *, beginning_wait_s: float = 2.0) -> None:
        """Begin empty.

        The first changeset of an origin of which nothing was ever applied is number 1, or the
        lowest that has come ``beginning_wait_s`` seconds after the first of that origin.
        """
        self._beginning_wait_s = beginning_wait_s
        self._tracks: dict[str, _Track[A]] = {}
        self._strangers: list[str] = []
        self._beginners: list[str] = []
        self._ready: deque[tuple[str, int]] = deque()
        self._spent: list[A] = []
        self._late: list[tuple[str, int]] = []
        #: Frames that are held, and octets of their bodies.
        self.frames = self.size = 0
        #: Frames of changesets that had been applied, or that are held already.
        self.repeats = 0

    # What comes in.

    def add(self, arrival: A, now: float) -> None:
        """Take a frame; raises EventProblem for one that belongs to no changeset."""
        label = read_label(arrival.headers)
        if label is None:
            whole = Reassembler().add(arrival.headers, arrival.body)
            if whole is None:
                raise EventProblem("a part of a changeset does not say of which")
            label = label_of(whole)
        track = self._tracks.get(label.origin)
        if track is None:
            track = self._tracks[label.origin] = _Track(now)
            self._strangers.append(label.origin)
        sequence = label.sequence
        if track.is_behind(sequence):
            if any(sequence in numbers for numbers in track.passed):
                self._late.append((label.origin, sequence))
            self.repeats += 1
            self._spent.append(arrival)
            return
        copies = track.ready.get(sequence)
        if copies is None:
            copies = track.early.setdefault(sequence, {})
        copy = copies.setdefault(label.parts, Copy(label))
        self.frames += 1
        self.size += len(arrival.body)
        if label.part in copy.arrivals:
            self.repeats += 1
            self._release(copy.add_again(label, arrival))
        else:
            copy.add(label, arrival)
            if sequence == track.next:
                track.blocked_at = now
            self._advance(label.origin, track, now)

    def take_strangers(self) -> list[str]:
        """Origins that are new: somebody has to say what was applied of them."""
        strangers, self._strangers = self._strangers, []
        return strangers

    def introduce(self, origin: str, last: int | None, now: float) -> None:
        """Say which changeset of an origin was applied last, ``None`` for none."""
        track = self._tracks[origin]
        track.is_introduced = True
        track.last = last
        if last is None:
            self._beginners.append(origin)
            self.look(now)
            return
        track.next = last + 1
        for sequence in [each for each in track.early if each <= last]:
            self._drop(track.early.pop(sequence))
        self._advance(origin, track, now)

    def look(self, now: float, *, at_once: bool = False) -> None:
        """Find the beginnings that have been waited for; ``at_once`` waits no more."""
        for origin in list(self._beginners):
            track = self._tracks[origin]
            # Who comes in the middle of a split changeset never gets the first part of that.
            begun = [
                sequence
                for sequence, copies in track.early.items()
                if any(1 in copy.arrivals for copy in copies.values())
            ]
            if not begun:
                continue
            lowest = min(begun)
            is_late = at_once or now - track.arrived_at >= self._beginning_wait_s
            if lowest <= FIRST or is_late:
                self._beginners.remove(origin)
                self._go_on(origin, track, lowest, now)

    # What comes out.

    @property
    def ready(self) -> int:
        """How many changesets can be applied now."""
        return len(self._ready)

    def peek(self, most: int) -> list[Ready[A]]:
        """The changesets that are next, in order."""
        found = []
        for origin, sequence in islice(self._ready, most):
            copies = self._tracks[origin].ready[sequence].values()
            complete = [copy for copy in copies if copy.is_complete]
            good = next((copy for copy in complete if copy.whole is not None), complete[0])
            found.append(good.ready())
        return found

    def done(self, ready: Sequence[Ready[A]]) -> None:
        """Say that these, which :meth:`peek` has given first, have been applied for good."""
        for each in ready:
            origin, sequence = self._ready.popleft()
            assert (origin, sequence) == (each.changeset.origin, each.changeset.sequence)
            track = self._tracks[origin]
            track.last = sequence
            self._drop(track.ready.pop(sequence), are_repeats=False)

    def take_spent(self) -> list[A]:
        """Frames that can be acknowledged."""
        spent, self._spent = self._spent, []
        return spent

    def take_late(self) -> list[tuple[str, int]]:
        """Origins and numbers of what came when its turn was over, though it was not applied."""
        late, self._late = self._late, []
        return late

    # What is missing.

    def gaps(self, now: float) -> list[Gap]:
        """What is waited for, of each origin."""
        found = []
        for origin, track in self._tracks.items():
            if track.blocked_at is None or track.next is None:
                continue
            behind = [sequence for sequence in track.early if sequence > track.next]
            copies = track.early.get(track.next, {}).values()
            parts = " or ".join(f"{len(copy.arrivals)} of {copy.label.parts}" for copy in copies)
            lowest = min(behind, default=None)
            waited_s = now - track.blocked_at
            found.append(Gap(origin, track.next, lowest, len(track.early), parts, waited_s))
        return found

    def skip(self, gap: Gap, now: float) -> None:
        """Go on behind a gap; raises ValueError where nothing has come behind it."""
        if gap.found is None:
            raise ValueError("nothing has come behind the gap")
        self._go_on(gap.origin, self._tracks[gap.origin], gap.found, now)

    # Inside.

    def _go_on(self, origin: str, track: _Track[A], sequence: int, now: float) -> None:
        """Wait for nothing before ``sequence``."""
        for each in [each for each in track.early if each < sequence]:
            self._late.append((origin, each))
            self._drop(track.early.pop(each))
        track.passed.append(range(FIRST if track.next is None else track.next, sequence))
        track.next = sequence
        self._advance(origin, track, now)

    def _advance(self, origin: str, track: _Track[A], now: float) -> None:
        if track.next is None:
            if track.is_introduced:
                self.look(now)
            return
        while track.is_whole(track.next):
            track.ready[track.next] = track.early.pop(track.next)
            self._ready.append((origin, track.next))
            track.next += 1
            track.blocked_at = None
        if not track.early:
            track.blocked_at = None
        elif track.blocked_at is None:
            track.blocked_at = now

    def _drop(self, copies: Copies[A], *, are_repeats: bool = True) -> None:
        """Hold frames no longer."""
        for copy in copies.values():
            arrivals = [*copy.arrivals.values(), *copy.again]
            self._release(arrivals)
            self._spent += arrivals
            if are_repeats:
                self.repeats += len(arrivals)

    def _release(self, arrivals: Sequence[A]) -> None:
        self.frames -= len(arrivals)
        self.size -= sum(len(each.body) for each in arrivals)
