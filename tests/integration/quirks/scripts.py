"""Raw frames by which brokers differ, sent to any of them; each script returns the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.integration.quirks.peer import Site

__all__ = ["SCRIPTS", "Script", "script"]

Run = Callable[[Site], object]


@dataclass(frozen=True)
class Script:
    """A script, its brokers, and the rules that its result shows."""

    run: Run
    rules: frozenset[str]
    brokers: frozenset[str]

    @property
    def name(self) -> str:
        """Name of the script."""
        return self.run.__name__


SCRIPTS: Final[list[Script]] = []


def script(*rules: str, brokers: str = "activemq artemis rabbitmq coilmq") -> Callable[[Run], Run]:
    """Return a decorator that registers a script for these rules and brokers."""

    def add(run: Run) -> Run:
        SCRIPTS.append(Script(run, frozenset(rules), frozenset(brokers.split())))
        return run

    return add
