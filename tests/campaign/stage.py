"""What a run is, whatever is played: it ends with what was seen, and a judgement of that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec import Struct

from tests.campaign.checker import Finding
from tests.campaign.plan import Plan

__all__ = ["Line", "Stage"]


class Stage(Protocol):
    """A run that is made."""

    def play(self) -> None:
        """Make it; raises what keeps it from being made to its end."""

    @property
    def log(self) -> str:
        """What all programs have written, also after a run that was not made to its end."""

    @property
    def events(self) -> Sequence[Struct]:
        """What was seen."""

    def check(self) -> Finding:
        """Judge what was seen."""


class Line(NamedTuple):
    """A run in which several programs of stompkit work together."""

    title: str
    #: Takes the plan, an empty directory, and that of the library of the disk.
    stage: Callable[[Plan, Path, Path], Stage]
    #: Says what it needs and is not here; nothing if it can be run.
    missing: Callable[[], str] = lambda: ""
