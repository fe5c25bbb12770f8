"""Trying again what fails for the moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from stompkit._common.retry import Backoff
from stompkit.replication.sinks import ApplyProblem, SinkMisconfigured

__all__ = ["LOOK_S", "RetryPolicy", "Stopped", "Stopping"]

_Given = TypeVar("_Given")

#: How often a wait looks whether it is to end, in seconds.
LOOK_S: Final = 0.1


class Stopped(Exception):
    """The consumer is to stop while it waits for something."""


class Stopping:
    """Whether to stop: by either of two events, one of the consumer's and one of its user's."""

    def __init__(self, own: threading.Event, given: threading.Event | None) -> None:
        """Look at both."""
        self._own = own
        self._given = given

    @property
    def is_set(self) -> bool:
        """Whether one of them is set."""
        return self._own.is_set() or (self._given is not None and self._given.is_set())

    def pause(self, seconds: float) -> None:
        """Wait; raises :class:`Stopped` soon after one of them is set."""
        while seconds > 0:
            self._own.wait(min(seconds, LOOK_S))
            if self.is_set:
                raise Stopped
            seconds -= LOOK_S


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How often, and after what times, the sink is tried again."""

    retries: int | None
    """``None``: for ever."""
    backoff_s: float
    """The first wait, in seconds; each further one is twice as long."""
    max_backoff_s: float
    """But not longer than that."""
    on_failure: Callable[[Exception], None]
    """Called before each wait."""

    def call(self, function: Callable[[], _Given], stopping: Stopping) -> _Given:
        """Call a function until it succeeds.

        Raises ApplyProblem and SinkMisconfigured at once, what the function has raised last, and
        :class:`Stopped`.
        Whether a failure came before or behind the sink's commit nobody knows: the sink itself
        leaves out what it has applied.
        """
        for pause_s in self._pauses():
            try:
                return function()
            except (ApplyProblem, SinkMisconfigured):
                raise
            except Exception as error:
                self.on_failure(error)
            stopping.pause(pause_s)
        return function()

    def _pauses(self) -> Iterator[float]:
        backoff = Backoff(self.backoff_s, self.max_backoff_s)
        left = self.retries
        while left is None or left > 0:
            yield backoff.fail()
            left = None if left is None else left - 1
