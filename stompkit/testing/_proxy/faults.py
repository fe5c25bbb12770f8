"""Faults as those who made them see them: to be waited for, and to be removed."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from stompkit.testing._frames.log import FrameLog
from stompkit.testing._frames.matching import Match
from stompkit.testing._proxy.rules import Rule

__all__ = ["Fault", "FaultNotSeen"]

_SHOWN_FRAMES: Final = 10


class FaultNotSeen(AssertionError):
    """A fault did not happen as often as a test expected."""


class Fault:
    """A fault that is in force until it is removed.

    A context manager: leaving it removes the fault. All methods can be called from any thread.
    """

    def __init__(
        self, rule: Rule, remove: Callable[[Rule], None], frames: FrameLog | None = None
    ) -> None:
        """Made by the methods of a proxy; ``frames`` has what comes to it, if anything does."""
        self._rule = rule
        self._remove = remove
        self._frames = frames

    @property
    def kind(self) -> str:
        """The name of the method that made it."""
        return self._rule.kind

    @property
    def match(self) -> Match:
        """What it is about; for whole connections only ``connection`` says something."""
        return self._rule.match

    @property
    def count(self) -> int:
        """How often it has happened."""
        return self._rule.count

    def wait(self, count: int = 1, timeout_s: float = 5.0) -> None:
        """Wait until it has happened ``count`` times in all.

        Raises FaultNotSeen when ``timeout_s`` seconds have passed.
        """
        rule = self._rule
        with rule.changed:
            if rule.changed.wait_for(lambda: rule.count >= count, timeout_s):
                return
        could = f"; {rule.matched} could have been it" if rule.matched > rule.count else ""
        raise FaultNotSeen(
            f"{self}: happened {rule.count} times within {timeout_s:g} s, wanted {count}{could}"
            + self._seen()
        )

    def _seen(self) -> str:
        """What came to the proxy instead, as more lines of a message."""
        if self._frames is None:
            return ""
        text = self._frames.text(_SHOWN_FRAMES)
        return f"\nwhat came to the proxy:\n{text}" if text else "\nnothing came to the proxy"

    def remove(self) -> None:
        """Have it happen no more; what it holds or delays goes out. Harmless the second time."""
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
        """In words."""
        return str(self._rule)

    def __repr__(self) -> str:
        """In words, and how often it has happened."""
        return f"<Fault {self}: happened {self.count} times>"
