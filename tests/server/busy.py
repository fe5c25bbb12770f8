"""A busy broker: each time the broker reads the clock, time passes.

Work that is not done at once continues in later iterations, which are those of the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.internet.task import Clock

from stompkit.frames import Frame, encode
from stompkit.testing.memory import MemoryClient

__all__ = ["LONG", "BusyClock", "frames", "is_served", "iterate", "iterations", "receipts"]

#: A condition that is slow to evaluate, and true for numbers from 1000 to 1099.
LONG = " OR ".join(f"n = {number}" for number in range(1_000, 1_100))


class BusyClock(Clock):
    """A clock that advances by a millisecond whenever it is read."""

    is_busy = False

    def seconds(self) -> float:
        """Return the current time in seconds."""
        if self.is_busy:
            self.rightNow += 0.001
        return float(super().seconds())


def iterations(clock: BusyClock, is_over: Callable[[], object]) -> int:
    """Run iterations until a condition is true; return their number."""
    for number in range(2_000):
        if is_over():
            return number
        iterate(clock)
    raise AssertionError("it never ends")


def iterate(clock: BusyClock) -> None:
    """Make the calls that are due, but no calls that are added meanwhile."""
    calls = cast("list[Any]", clock.getDelayedCalls())
    due = [call for call in calls if call.getTime() <= clock.rightNow]
    for call in due:
        if call.active():
            function, arguments, named = call.func, call.args, call.kw
            call.cancel()
            function(*arguments, **named)


def frames(*all_of_them: tuple[str, dict[str, str]]) -> bytes:
    """Return encoded frames without bodies."""
    return b"".join(encode(Frame(command, headers), "1.2") for command, headers in all_of_them)


def is_served(client: MemoryClient) -> bool:
    """Return True if the broker confirms a client's message immediately."""
    client.send("SEND", destination="/topic/none", receipt="served")
    return [each.headers["receipt-id"] for each in client.take("RECEIPT")] == ["served"]


def receipts(client: MemoryClient) -> list[str]:
    """Return the receipts received."""
    return [each.headers["receipt-id"] for each in client.take("RECEIPT")]
