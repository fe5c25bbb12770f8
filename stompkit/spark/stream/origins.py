"""Progress of origins: the changesets read, and those still missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["FIRST", "Gap", "Origin", "Origins", "Seen"]

#: First number that publishers use, for changesets and for parts.
FIRST: Final = 1
#: Number of parts in offsets of an earlier version, which did not store it.
_UNKNOWN: Final = 0


@dataclass
class Seen:
    """The parts of an incomplete changeset that were read."""

    numbers: set[int]
    #: Lowest ordinal of their messages in the spool. Offsets of an earlier version lack it; they
    #: have 0.
    since: int

    def add(self, number: int, ordinal: int) -> None:
        """Add a part, by its number and the ordinal of its message."""
        self.numbers.add(number)
        self.since = min(self.since, ordinal)

    def dump(self) -> list[Any]:
        """Return the parts as JSON: the lowest ordinal, and ranges of numbers."""
        runs: list[list[int]] = []
        for number in sorted(self.numbers):
            if runs and runs[-1][1] == number - 1:
                runs[-1][1] = number
            else:
                runs.append([number, number])
        return [self.since, runs]

    @classmethod
    def load(cls, since: int, runs: Sequence[Sequence[int]]) -> Seen:
        """Return the parts from JSON; the reverse of :meth:`dump`."""
        return cls({number for low, high in runs for number in range(low, high + 1)}, since)


@dataclass
class Origin:
    """Progress of one origin."""

    #: First number read, and last number of which all parts were read.
    begun: int
    last: int
    #: Parts of the next number that were read, by the number of parts: a publisher that is
    #: restarted may split a changeset in another way.
    seen: dict[int, Seen] = field(default_factory=dict)
    #: Ranges of numbers that were skipped: first and last.
    passed: list[tuple[int, int]] = field(default_factory=list)

    def copy(self, of: int, ordinal: int) -> Seen:
        """Return the parts of the next number that were read, split into ``of`` parts.

        ``ordinal`` is that of a message with such a part.
        """
        if _UNKNOWN in self.seen:
            self.seen[of] = self.seen.pop(_UNKNOWN)
        return self.seen.setdefault(of, Seen(set(), ordinal))

    @property
    def is_torn(self) -> bool:
        """True if the first changeset was read without its first part."""
        are_first = self.last == self.begun - 1
        return are_first and all(FIRST not in each.numbers for each in self.seen.values())

    @property
    def parts(self) -> str:
        """The parts of the next number that were read, such as ``3 of 5``; empty for none."""
        return " or ".join(f"{len(seen.numbers)} of {of}" for of, seen in self.seen.items())

    def dump(self) -> list[Any]:
        """Return the progress as JSON."""
        seen = [[of, *each.dump()] for of, each in self.seen.items()]
        return [self.begun, self.last, seen, [list(each) for each in self.passed]]

    @classmethod
    def load(cls, found: Sequence[Any]) -> Origin:
        """Return the progress from JSON; the reverse of :meth:`dump`."""
        begun, last, parts, passed = found
        if any(len(each) == 2 for each in parts):
            # An earlier version, which stored only ranges of numbers.
            seen = {_UNKNOWN: Seen.load(0, parts)}
        else:
            seen = {of: Seen.load(since, runs) for of, since, runs in parts}
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
    #: Lowest number after the gap that has arrived; None if nothing waits.
    found: int | None
    #: Number of waiting messages of the origin.
    held: int
    #: True if the origin is new: the number that has arrived may be its first.
    is_beginning: bool = False
    #: True if it is the first changeset of its origin, and the spool lacks its first part.
    is_torn: bool = False
    #: First ordinal that retention has kept.
    floor: int = 0
    #: Parts of the first missing changeset that have arrived, such as ``3 of 5``.
    parts: str = ""
    #: False if changesets of the origin wait for another gap before this one.
    is_first: bool = True

    @property
    def has_joined(self) -> bool:
        """True if the spool begins within the missing changeset.

        Its receiver has subscribed while the changeset was sent. Consumers leave it out, too.
        """
        return self.is_torn and not self.floor

    def __str__(self) -> str:
        """Return the gap as text."""
        some = f", of which {self.parts} parts are there," if self.parts else ""
        if self.found is None:
            return f"changeset {self.missing} of {self.origin}{some} is incomplete in the spool"
        last = f" to {self.found - 1}" if self.found > self.missing + 1 else ""
        why = (
            f" (retention has removed all before {self.floor})"
            if self.is_torn and self.floor
            else ""
        )
        return (
            f"changeset {self.missing}{last} of {self.origin}{some} is missing in the spool{why},"
            f" and {self.held} messages behind it wait"
        )
