"""Progress of origins: the changesets read, and those still missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["FIRST", "Gap", "Origin", "Origins"]

#: First number that publishers use.
FIRST: Final = 1


@dataclass
class Origin:
    """Progress of one origin."""

    #: First number read, and last number of which all parts were read.
    begun: int
    last: int
    #: Parts of the next number that were read.
    seen: set[int] = field(default_factory=set)
    #: Ranges of numbers that were skipped: first and last.
    passed: list[tuple[int, int]] = field(default_factory=list)

    def dump(self) -> list[Any]:
        """Return the progress as JSON."""
        runs: list[list[int]] = []
        for number in sorted(self.seen):
            if runs and runs[-1][1] == number - 1:
                runs[-1][1] = number
            else:
                runs.append([number, number])
        return [self.begun, self.last, runs, [list(each) for each in self.passed]]

    @classmethod
    def load(cls, found: Sequence[Any]) -> Origin:
        """Return the progress from JSON; the reverse of :meth:`dump`."""
        begun, last, runs, passed = found
        seen = {number for low, high in runs for number in range(low, high + 1)}
        return cls(begun, last, seen, [(low, high) for low, high in passed])


@dataclass
class Origins:
    """Progress of all origins."""

    known: dict[str, Origin] = field(default_factory=dict)
    #: True if earlier messages were not scanned: a number below the first one may then be a
    #: duplicate, and does not count as missed.
    has_past: bool = False

    def dump(self) -> dict[str, Any]:
        """Return the progress as JSON."""
        found = {name: each.dump() for name, each in self.known.items()}
        return {"past": self.has_past, "origins": found}

    @classmethod
    def load(cls, found: Mapping[str, Any]) -> Origins:
        """Return the progress from JSON; the reverse of :meth:`dump`."""
        known = {name: Origin.load(each) for name, each in found["origins"].items()}
        return cls(known, bool(found["past"]))


@dataclass(frozen=True)
class Gap:
    """Missing changesets of one origin, and the messages that wait for them."""

    origin: str
    missing: int
    #: Lowest number after the gap that has arrived.
    found: int
    #: Number of waiting messages of the origin.
    held: int
    #: True if the origin is new: the number that has arrived may be its first.
    is_beginning: bool = False

    def __str__(self) -> str:
        """Return the gap as text."""
        last = f" to {self.found - 1}" if self.found > self.missing + 1 else ""
        return (
            f"changeset {self.missing}{last} of {self.origin} is missing in the spool, and"
            f" {self.held} messages behind it wait"
        )
