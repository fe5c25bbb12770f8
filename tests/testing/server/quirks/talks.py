"""Short dialogues with a broker in memory, each of which differs with and without a rule."""

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
    """A dialogue, and its results with and without a rule."""

    say: Say
    rule: str
    given: tuple[str, ...]
    """Rules that are active in both cases."""
    on: object
    off: object


TALKS: Final[list[Talk]] = []


def shows(
    rule: str, *, on: object, off: object, given: tuple[str, ...] = ()
) -> Callable[[Say], Say]:
    """Return a decorator that registers a function as a dialogue for a rule."""

    def add(say: Say) -> Say:
        TALKS.append(Talk(say, rule, given, on, off))
        return say

    return add


def broker_with(*rules: str, **settings: Any) -> MemoryBroker:
    """Return a broker with these rules and no others."""
    made: Callable[..., BrokerFactory] = partial(factory_for, Quirks(rules))
    return MemoryBroker(make=made, **settings)


def heard(client: MemoryClient, *headers: str) -> list[object]:
    """Return the commands received since the last call, with some headers, and the end."""
    frames: Iterable[Frame] = client.take()
    told: list[object] = [
        (each.command, *(each.headers.get(name) for name in headers)) if headers else each.command
        for each in frames
    ]
    return [*told, "end"] if client.eof else told
