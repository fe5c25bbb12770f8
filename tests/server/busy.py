"""A broker that is busy: time passes with each look at the clock.

What is not done at once is done in iterations to come, which are those of the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.internet.task import Clock

from stompkit.frames import Frame, encode
from stompkit.testing.memory import MemoryClient

__all__ = ["LONG", "BusyClock", "frames", "is_served", "iterate", "iterations", "receipts"]

#: A condition that takes long, and is true for numbers from 1000 to 1099.
LONG = " OR ".join(f"n = {number}" for number in range(1_000, 1_100))


class BusyClock(Clock):
    """A clock that goes on by a millisecond whenever somebody looks at it."""

    is_busy = False

    def seconds(self) -> float:
        """What time it is."""
        if self.is_busy:
            self.rightNow += 0.001
        return float(super().seconds())


def iterations(clock: BusyClock, is_over: Callable[[], object]) -> int:
    """Have iterations go by until something is so; gives their number."""
    for number in range(2_000):
        if is_over():
            return number
        iterate(clock)
    raise AssertionError("it never ends")


def iterate(clock: BusyClock) -> None:
    """Make the calls that are due, and none of those that come up meanwhile."""
    calls = cast("list[Any]", clock.getDelayedCalls())
    due = [call for call in calls if call.getTime() <= clock.rightNow]
    for call in due:
        if call.active():
            function, arguments, named = call.func, call.args, call.kw
            call.cancel()
            function(*arguments, **named)


def frames(*all_of_them: tuple[str, dict[str, str]]) -> bytes:
    """Octets of frames without bodies."""
    return b"".join(encode(Frame(command, headers), "1.2") for command, headers in all_of_them)


def is_served(client: MemoryClient) -> bool:
    """Whether a client's message is receipted at once."""
    client.send("SEND", destination="/topic/none", receipt="served")
    return [each.headers["receipt-id"] for each in client.take("RECEIPT")] == ["served"]


def receipts(client: MemoryClient) -> list[str]:
    """The receipts that have come."""
    return [each.headers["receipt-id"] for each in client.take("RECEIPT")]
