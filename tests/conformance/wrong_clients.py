"""Clients that break one rule each, and the cases that find it: what they have in common."""

from __future__ import annotations

from typing import ClassVar

from tests.conformance.minimal_client import Agent

__all__ = ["FAULTS", "Fault"]

#: All of them by name, once the modules ``wrong_*`` have been imported.
FAULTS: dict[str, type[Fault]] = {}


class Fault(Agent):
    """An agent with a fault; ``found_by`` names the cases that are not OK for it."""

    found_by: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Take note of it."""
        FAULTS[cls.__name__] = cls
