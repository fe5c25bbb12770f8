"""A changeset that is being assembled: one copy for each way in which it was split into frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from stompkit.replication.consumer._labels import Label, placeholder
from stompkit.replication.model.events import Changeset, EventError
from stompkit.replication.model.frames import Reassembler

__all__ = ["A", "Arrival", "Copies", "Copy", "Ready"]

#: No limit; the caller limits the frames that it adds.
_UNBOUNDED: Final = 2**62


class Arrival(Protocol):
    """A received frame; :class:`stompkit.client.blocking.Delivery` is one."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the MESSAGE."""

    @property
    def body(self) -> bytes:
        """Body of the MESSAGE."""

    @property
    def is_stale(self) -> bool:
        """True if it can no longer be acknowledged, and will be redelivered."""


#: Type of the received frames.
A = TypeVar("A", bound=Arrival)


@dataclass(frozen=True, slots=True)
class Ready(Generic[A]):
    """A changeset that is next in order."""

    changeset: Changeset
    """The changeset; without changes if there is a ``problem``."""
    arrivals: tuple[A, ...]
    """Its frames, in the order of its parts."""
    problem: str = ""
    """Reason if its frames are not a valid changeset."""


@dataclass(slots=True)
class Copy(Generic[A]):
    """A changeset split into a given number of frames, with the frames received until now."""

    label: Label
    arrivals: dict[int, A] = field(default_factory=dict)
    """Received frames by part number."""
    again: list[A] = field(default_factory=list)
    """Repeated frames for parts that were already received."""
    reassembler: Reassembler = field(default_factory=lambda: Reassembler(max_bytes=_UNBOUNDED))
    whole: Changeset | None = None
    problem: str = ""

    @property
    def is_complete(self) -> bool:
        """True if all frames have been received."""
        return len(self.arrivals) == self.label.parts

    def add(self, label: Label, arrival: A) -> None:
        """Add a frame that was not received before."""
        self.arrivals[label.part] = arrival
        if self.problem:
            return
        try:
            whole = self.reassembler.add(arrival.headers, arrival.body)
            if whole is not None:
                label.check(whole)
        except EventError as problem:
            self.problem = str(problem)
        else:
            self.whole = whole
            if whole is None and self.is_complete:
                self.problem = "its parts are of several changesets"

    def add_again(self, label: Label, arrival: A) -> list[A]:
        """Add a repeated frame; return the frames that are no longer needed.

        Neither is acknowledged before the changeset is applied. Both may be the same message, which
        the broker has redelivered after a timeout, and then either acknowledgement would settle it.
        """
        self.again.append(self.arrivals[label.part])
        self.arrivals[label.part] = arrival
        stale = [each for each in self.again if each.is_stale]
        self.again = [each for each in self.again if not each.is_stale]
        return stale

    def ready(self) -> Ready[A]:
        """Return the changeset to apply."""
        arrivals = tuple(self.arrivals[part] for part in sorted(self.arrivals))
        if self.whole is None:
            return Ready(placeholder(self.label), arrivals, self.problem)
        return Ready(self.whole, arrivals)


#: Copies by number of parts: a restarted publisher may split differently.
Copies = dict[int, Copy[A]]
