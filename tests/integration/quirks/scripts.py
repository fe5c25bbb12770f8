"""Raw frames by which brokers differ, said to any of them; each gives what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.integration.quirks.peer import Site

__all__ = ["SCRIPTS", "Script", "script"]

Run = Callable[[Site], object]


@dataclass(frozen=True)
class Script:
    """What to say, to which brokers, and the rules that the outcome shows."""

    run: Run
    rules: frozenset[str]
    brokers: frozenset[str]

    @property
    def name(self) -> str:
        """What it is called."""
        return self.run.__name__


SCRIPTS: Final[list[Script]] = []


def script(*rules: str, brokers: str = "activemq artemis rabbitmq coilmq") -> Callable[[Run], Run]:
    """Say that a function is a script, which shows these rules in these brokers."""

    def add(run: Run) -> Run:
        SCRIPTS.append(Script(run, frozenset(rules), frozenset(brokers.split())))
        return run

    return add
