"""The interface of a run: it plays, returns the observed events, and checks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec import Struct

from tests.campaign.checker import Finding
from tests.campaign.plan import Plan

__all__ = ["Line", "Stage"]


class Stage(Protocol):
    """A run in progress."""

    def play(self) -> None:
        """Run it; raise the error that stops it early."""

    @property
    def log(self) -> str:
        """Return the output of all programs, also after an incomplete run."""

    @property
    def events(self) -> Sequence[Struct]:
        """Return the observed events."""

    def check(self) -> Finding:
        """Check the observed events."""


class Line(NamedTuple):
    """A run in which several programs of stompkit work together."""

    title: str
    #: Factory; takes the plan, an empty directory, and the directory of the disk's library.
    stage: Callable[[Plan, Path, Path], Stage]
    #: Returns a description of the missing requirements; empty if it can be run.
    missing: Callable[[], str] = lambda: ""
