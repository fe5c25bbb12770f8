"""Handles of faults, used to wait for them and to remove them."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from stompkit.testing.frames.log import FrameLog
from stompkit.testing.frames.matching import Match
from stompkit.testing.frames.timeouts import seconds
from stompkit.testing.proxy.rules import Rule

__all__ = ["Fault", "FaultNotSeenError"]

_SHOWN_FRAMES: Final = 10


class FaultNotSeenError(AssertionError):
    """A fault did not happen as often as a test expected."""


class Fault:
    """A fault that is active until it is removed.

    As a context manager, it is removed on exit. All methods are thread-safe.
    """

    def __init__(
        self, rule: Rule, remove: Callable[[Rule], None], frames: FrameLog | None = None
    ) -> None:
        """Created by the methods of a proxy; ``frames`` logs its incoming traffic, if set."""
        self._rule = rule
        self._remove = remove
        self._frames = frames

    @property
    def kind(self) -> str:
        """Name of the method that created the fault."""
        return self._rule.kind

    @property
    def match(self) -> Match:
        """Condition of the fault; for whole connections only ``connection`` is used."""
        return self._rule.match

    @property
    def count(self) -> int:
        """Number of times that the fault has occurred."""
        return self._rule.count

    def wait(self, count: int = 1, timeout_s: float = 5.0, *, timeout: float | None = None) -> None:
        """Wait until the fault has occurred ``count`` times in all.

        Raises FaultNotSeenError after ``timeout_s`` (or ``timeout``) seconds.
        """
        timeout_s = seconds(timeout_s, timeout)
        rule = self._rule
        with rule.changed:
            if rule.changed.wait_for(lambda: rule.count >= count, timeout_s):
                return
        could = f"; {rule.matched} could have been it" if rule.matched > rule.count else ""
        raise FaultNotSeenError(
            f"{self}: happened {rule.count} times within {timeout_s:g} s, wanted {count}{could}"
            + self._seen()
        )

    def _seen(self) -> str:
        """Return the traffic that reached the proxy instead, as more lines of a message."""
        if self._frames is None:
            return ""
        text = self._frames.text(_SHOWN_FRAMES)
        return f"\nwhat came to the proxy:\n{text}" if text else "\nnothing came to the proxy"

    def remove(self) -> None:
        """Remove the fault; held or delayed data goes out. Harmless the second time."""
        self._remove(self._rule)

    def __enter__(self) -> Self:
        """Return the fault."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove it."""
        self.remove()

    def __str__(self) -> str:
        """Return the fault in words."""
        return str(self._rule)

    def __repr__(self) -> str:
        """Return the fault in words, and how often it has occurred."""
        return f"<Fault {self}: happened {self.count} times>"
