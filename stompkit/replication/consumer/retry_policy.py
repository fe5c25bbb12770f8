"""Retries of temporary failures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from stompkit._common.retry import Backoff
from stompkit.replication.sinks import ApplyError, SinkMisconfiguredError

__all__ = ["LOOK_S", "ConsumerStoppedError", "RetryPolicy", "Stopping"]

_Given = TypeVar("_Given")

#: Interval in seconds at which a wait checks for a stop.
LOOK_S: Final = 0.1


class ConsumerStoppedError(Exception):
    """The consumer was stopped while it was waiting."""


class Stopping:
    """A stop condition: set if either of two events is set, the consumer's own or its user's."""

    def __init__(self, own: threading.Event, given: threading.Event | None) -> None:
        """Check both events."""
        self._own = own
        self._given = given

    @property
    def is_set(self) -> bool:
        """True if one of them is set."""
        return self._own.is_set() or (self._given is not None and self._given.is_set())

    def pause(self, seconds: float) -> None:
        """Wait; raises :class:`ConsumerStoppedError` soon after one of them is set."""
        while seconds > 0:
            self._own.wait(min(seconds, LOOK_S))
            if self.is_set:
                raise ConsumerStoppedError
            seconds -= LOOK_S


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Number of retries of the sink, and the back-off between them."""

    retries: int | None
    """Maximum number of retries; ``None``: forever."""
    backoff_s: float
    """First wait in seconds; it doubles with each retry."""
    max_backoff_s: float
    """Maximum wait in seconds."""
    on_failure: Callable[[Exception], None]
    """Function to call before each wait."""

    def call(self, function: Callable[[], _Given], stopping: Stopping) -> _Given:
        """Call a function until it succeeds.

        Raises ApplyError and SinkMisconfiguredError at once, the function's last error, and
        :class:`ConsumerStoppedError`. A failure may have come before or after the sink's commit.
        The sink itself therefore skips changesets that it has already applied.
        """
        for pause_s in self._pauses():
            try:
                return function()
            except (ApplyError, SinkMisconfiguredError):
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
