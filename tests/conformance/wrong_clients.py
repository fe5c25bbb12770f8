"""Base class of clients that break one rule each, with the cases that detect it."""

from __future__ import annotations

from typing import ClassVar

from tests.conformance.minimal_client import Agent

__all__ = ["FAULTS", "Fault"]

#: All faults by name, once the modules ``wrong_*`` are imported.
FAULTS: dict[str, type[Fault]] = {}


class Fault(Agent):
    """An agent with a fault; ``found_by`` has the cases that are not OK for it."""

    found_by: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Register the class."""
        FAULTS[cls.__name__] = cls
