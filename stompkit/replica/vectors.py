"""Version vectors: what a replica has, as the last number of each origin.

Changesets of one origin are numbered from 1 without gaps, so that a number stands for all below it.
An origin that is missing in a vector counts as 0: nothing of it.
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

#: One changeset: its origin, and its number there.
Dot = tuple[str, int]
#: The last number of each origin.
Vector = Mapping[str, int]
#: The first and the last number of what is meant of each origin.
Ranges = Mapping[str, tuple[int, int]]

_DIGITS: Final = frozenset("0123456789")


def covers(vector: Vector, dot: Dot) -> bool:
    """Whether that changeset is among what the vector stands for."""
    origin, sequence = dot
    return sequence <= vector.get(origin, 0)


def dominates(one: Vector, other: Vector) -> bool:
    """Whether all that the other vector stands for is in the first; equal ones do, too."""
    get = one.get
    return all(sequence <= get(origin, 0) for origin, sequence in other.items())


def merged(*vectors: Vector) -> dict[str, int]:
    """What is in any of them."""
    most: dict[str, int] = {}
    for vector in vectors:
        for origin, sequence in vector.items():
            if sequence > most.get(origin, 0):
                most[origin] = sequence
    return most


def least(*vectors: Vector) -> dict[str, int]:
    """What is in each of them; nothing where there are none."""
    if not vectors:
        return {}
    first, *others = vectors
    found = {
        origin: min(sequence, *(other.get(origin, 0) for other in others)) if others else sequence
        for origin, sequence in first.items()
    }
    return {origin: sequence for origin, sequence in found.items() if sequence > 0}


def missing(have: Vector, theirs: Vector) -> dict[str, tuple[int, int]]:
    """First and last number of each origin of what they have, and is not had here."""
    return {
        origin: (have.get(origin, 0) + 1, sequence)
        for origin, sequence in theirs.items()
        if sequence > have.get(origin, 0)
    }


def count(ranges: Ranges) -> int:
    """How many changesets that are."""
    return sum(last - first + 1 for first, last in ranges.values())


def settled(
    own: Vector, clocks: Mapping[str, Vector], heard: Iterable[tuple[str, Vector]]
) -> dict[str, int]:
    """What is in the past of every changeset that can still arrive from the origins of ``clocks``.

    ``own`` is what has been applied here, ``clocks`` the vector of the last changeset applied of
    each origin that may write again (an empty one of those that have not written), and ``heard``
    what replicas say that they have. That a replica has something does not mean that its changesets
    were made with it: one that is on its way may be older. So what it says counts only as soon as
    all that it had written by then has been applied here.
    """
    known = {origin: [clock] for origin, clock in clocks.items()}
    for origin, vector in heard:
        if origin in known and vector.get(origin, 0) <= own.get(origin, 0):
            known[origin].append(vector)
    return least(own, *(merged(*vectors) for vectors in known.values()))


def dot_text(dot: Dot) -> str:
    """A changeset's name for people, such as ``A~1f2e3d4c:17``."""
    origin, sequence = dot
    return f"{origin}:{sequence}"


def parse_dot(text: str) -> Dot:
    """The reverse of :func:`dot_text`; raises ``ValueError``."""
    origin, _, number = text.rpartition(":")
    if not origin or not number or not _DIGITS.issuperset(number) or number.startswith("0"):
        raise ValueError(f"{text!r} is no origin and number, such as A~1f2e3d4c:17")
    return origin, int(number)
