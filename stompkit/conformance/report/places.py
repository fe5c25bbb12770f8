"""Position of a case in a table: a group of chapters, a topic, and a version."""

from __future__ import annotations

from typing import Final, NamedTuple

from stompkit.frames import VERSIONS

__all__ = ["ANY_VERSION", "SPECIFICATIONS", "Place", "place_of"]

#: The group of the chapters about specifications; every other chapter is a separate group.
SPECIFICATIONS: Final = "specifications"
#: The version of a case that is run once, on any version that the target supports.
ANY_VERSION: Final = ""


class Place(NamedTuple):
    """The parts of a case's id."""

    group: str
    topic: str
    version: str


def place_of(case_id: str) -> Place:
    """Return the place of a case: ``1.2/ack/x``, ``behaviour/1.2/ack/x``, ``behaviour/ack/x``."""
    first, second, third, *_ = (*case_id.split("/"), "", "")
    if first in VERSIONS:
        return Place(SPECIFICATIONS, second, first)
    if second in VERSIONS:
        return Place(first, third, second)
    return Place(first, second, ANY_VERSION)
