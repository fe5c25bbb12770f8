"""A changeset whose frames arrive, one copy for each way in which it was split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from stompkit.replication.consumer._labels import Label, placeholder
from stompkit.replication.events import Changeset, EventProblem
from stompkit.replication.frames import Reassembler

__all__ = ["A", "Arrival", "Copies", "Copy", "Ready"]

#: What is held is bounded by whoever adds it.
_UNBOUNDED: Final = 2**62


class Arrival(Protocol):
    """A frame that has arrived; :class:`stompkit.link.Delivery` is one."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Those of the MESSAGE."""

    @property
    def body(self) -> bytes:
        """Its body."""

    @property
    def is_stale(self) -> bool:
        """Whether it can't be acknowledged any more, and comes again."""


#: What arrives.
A = TypeVar("A", bound=Arrival)


@dataclass(frozen=True, slots=True)
class Ready(Generic[A]):
    """A changeset whose turn it is."""

    changeset: Changeset
    """Without changes where there is a ``problem``."""
    arrivals: tuple[A, ...]
    """Its frames, in the order of its parts."""
    problem: str = ""
    """Why its frames are no changeset, if so."""


@dataclass(slots=True)
class Copy(Generic[A]):
    """A changeset in so many frames, as far as they have come."""

    label: Label
    arrivals: dict[int, A] = field(default_factory=dict)
    """By the number of the part."""
    again: list[A] = field(default_factory=list)
    """Frames that came while one for the same part was there."""
    reassembler: Reassembler = field(default_factory=lambda: Reassembler(max_bytes=_UNBOUNDED))
    whole: Changeset | None = None
    problem: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether all frames have come."""
        return len(self.arrivals) == self.label.parts

    def add(self, label: Label, arrival: A) -> None:
        """Take a frame that has not come before."""
        self.arrivals[label.part] = arrival
        if self.problem:
            return
        try:
            whole = self.reassembler.add(arrival.headers, arrival.body)
            if whole is not None:
                label.check(whole)
        except EventProblem as problem:
            self.problem = str(problem)
        else:
            self.whole = whole
            if whole is None and self.is_complete:
                self.problem = "its parts are of several changesets"

    def add_again(self, label: Label, arrival: A) -> list[A]:
        """Take a frame for a part that is there; gives those that are not needed any more.

        Neither is acknowledged before the changeset is applied: it may be one message, which the
        broker has taken back after a while and delivered again, and then either acknowledgement
        would be the last of it.
        """
        self.again.append(self.arrivals[label.part])
        self.arrivals[label.part] = arrival
        stale = [each for each in self.again if each.is_stale]
        self.again = [each for each in self.again if not each.is_stale]
        return stale

    def ready(self) -> Ready[A]:
        """What is applied."""
        arrivals = tuple(self.arrivals[part] for part in sorted(self.arrivals))
        if self.whole is None:
            return Ready(placeholder(self.label), arrivals, self.problem)
        return Ready(self.whole, arrivals)


#: By the number of parts: a publisher that has been restarted may split otherwise.
Copies = dict[int, Copy[A]]
