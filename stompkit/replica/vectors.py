"""Version vectors: the last changeset number of each origin that a replica has.

Changesets of one origin are numbered from 1 without gaps, so a number includes all below it. An
origin missing in a vector counts as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

__all__ = [
    "Dot",
    "Ranges",
    "Vector",
    "count",
    "covers",
    "dominates",
    "dot_text",
    "least",
    "merged",
    "missing",
    "parse_dot",
    "settled",
]

#: A changeset: its origin and sequence number.
Dot = tuple[str, int]
#: Last sequence number of each origin.
Vector = Mapping[str, int]
#: First and last sequence number of a range for each origin.
Ranges = Mapping[str, tuple[int, int]]

_DIGITS: Final = frozenset("0123456789")


def covers(vector: Vector, dot: Dot) -> bool:
    """Return True if the vector includes the changeset."""
    origin, sequence = dot
    return sequence <= vector.get(origin, 0)


def dominates(one: Vector, other: Vector) -> bool:
    """Return True if the first vector includes the other one; equal vectors do."""
    get = one.get
    return all(sequence <= get(origin, 0) for origin, sequence in other.items())


def merged(*vectors: Vector) -> dict[str, int]:
    """Return the union of the vectors."""
    most: dict[str, int] = {}
    for vector in vectors:
        for origin, sequence in vector.items():
            if sequence > most.get(origin, 0):
                most[origin] = sequence
    return most


def least(*vectors: Vector) -> dict[str, int]:
    """Return the intersection of the vectors; empty if there are none."""
    if not vectors:
        return {}
    first, *others = vectors
    found = {
        origin: min(sequence, *(other.get(origin, 0) for other in others)) if others else sequence
        for origin, sequence in first.items()
    }
    return {origin: sequence for origin, sequence in found.items() if sequence > 0}


def missing(have: Vector, theirs: Vector) -> dict[str, tuple[int, int]]:
    """Return the ranges that ``theirs`` includes and ``have`` lacks."""
    return {
        origin: (have.get(origin, 0) + 1, sequence)
        for origin, sequence in theirs.items()
        if sequence > have.get(origin, 0)
    }


def count(ranges: Ranges) -> int:
    """Return the number of changesets in the ranges."""
    return sum(last - first + 1 for first, last in ranges.values())


def settled(
    own: Vector, clocks: Mapping[str, Vector], heard: Iterable[tuple[str, Vector]]
) -> dict[str, int]:
    """Return the common past of all changesets that can still arrive from origins in ``clocks``.

    ``own`` is the vector applied here. ``clocks`` has, for each origin that may write again, the
    vector of its last changeset applied here; it is empty if there is none. ``heard`` has the
    vectors that replicas have announced. An announced vector does not show that its sender's
    changesets were made on top of it: one in transit may be older. It therefore counts only after
    all that the sender had written by then was applied here.
    """
    known = {origin: [clock] for origin, clock in clocks.items()}
    for origin, vector in heard:
        if origin in known and vector.get(origin, 0) <= own.get(origin, 0):
            known[origin].append(vector)
    return least(own, *(merged(*vectors) for vectors in known.values()))


def dot_text(dot: Dot) -> str:
    """Return the name of a changeset, such as ``A~1f2e3d4c:17``."""
    origin, sequence = dot
    return f"{origin}:{sequence}"


def parse_dot(text: str) -> Dot:
    """Parse a name of :func:`dot_text`; raises ``ValueError``."""
    origin, _, number = text.rpartition(":")
    if not origin or not number or not _DIGITS.issuperset(number) or number.startswith("0"):
        raise ValueError(f"{text!r} is no origin and number, such as A~1f2e3d4c:17")
    return origin, int(number)
