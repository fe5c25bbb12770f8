"""Short talks with a broker in memory, each of which goes differently with a rule and without."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from stompkit.frames import Frame
from stompkit.server import BrokerFactory
from stompkit.testing.memory import MemoryBroker, MemoryClient
from stompkit.testing.server.quirks import Quirks, factory_for

__all__ = ["TALKS", "Talk", "broker_with", "heard", "shows"]

Say = Callable[[MemoryBroker], object]


@dataclass(frozen=True)
class Talk:
    """What to say, and what comes of it: with a rule, and without it."""

    say: Say
    rule: str
    given: tuple[str, ...]
    """Rules that hold with it and without it."""
    on: object
    off: object


TALKS: Final[list[Talk]] = []


def shows(
    rule: str, *, on: object, off: object, given: tuple[str, ...] = ()
) -> Callable[[Say], Say]:
    """Say that a function shows a rule."""

    def add(say: Say) -> Say:
        TALKS.append(Talk(say, rule, given, on, off))
        return say

    return add


def broker_with(*rules: str, **settings: Any) -> MemoryBroker:
    """A broker with some rules and no others."""
    made: Callable[..., BrokerFactory] = partial(factory_for, Quirks(rules))
    return MemoryBroker(make=made, **settings)


def heard(client: MemoryClient, *headers: str) -> list[object]:
    """What has come since the last time: commands, with some headers, and the end."""
    frames: Iterable[Frame] = client.take()
    told: list[object] = [
        (each.command, *(each.headers.get(name) for name in headers)) if headers else each.command
        for each in frames
    ]
    return [*told, "end"] if client.eof else told
