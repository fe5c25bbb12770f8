"""Deadlines that a peer meets by sending something.

A timer measures time in this process. It does not prove that the peer was silent. If the process
was stopped or busy, data that the peer sent in time is still in the kernel. A deadline is therefore
checked only after that data has been read.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Final, Protocol

__all__ = ["LOOK_S", "MOST_GRACE_S", "Clock", "PeerDeadline", "can_write", "has_unread"]

#: Interval in seconds between two checks of a peer whose bytes wait to be handled.
LOOK_S: Final = 0.05
#: Maximum time in seconds by which a deadline is extended for that reason.
MOST_GRACE_S: Final = 5.0


class _Timer(Protocol):
    """A scheduled call, as returned by ``callLater`` of a reactor."""

    def cancel(self) -> None: ...
    def active(self) -> bool: ...


class Clock(Protocol):
    """The time and timers of a reactor."""

    def seconds(self) -> float: ...
    def callLater(self, delay: float, callable: Callable[..., object], /) -> _Timer: ...


def has_unread(transport: object) -> bool:
    """Return True if bytes of the peer, or the end of its stream, wait in the kernel.

    A transport without a descriptor, as in a test, has none.
    """
    return _is_ready(transport, select.POLLIN)


def can_write(transport: object) -> bool:
    """Return True if the kernel accepts bytes for the peer now."""
    return _is_ready(transport, select.POLLOUT)


def _is_ready(transport: object, event: int) -> bool:
    fileno = getattr(transport, "fileno", None)
    descriptor = -1 if fileno is None else fileno()
    if descriptor < 0:
        return False
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(0))


class PeerDeadline:
    """Calls a function when a peer's deadline passes and none of its bytes wait to be handled.

    While bytes of the peer wait, the deadline is extended, by at most :data:`MOST_GRACE_S`.
    """

    def __init__(
        self, clock: Clock, has_input: Callable[[], bool], call: Callable[[], object]
    ) -> None:
        """Create a deadline that is not set; ``has_input`` returns True if bytes wait."""
        self._clock = clock
        self._has_input = has_input
        self._call = call
        self._timer: _Timer | None = None
        self._due = 0.0

    def start(self, delay_s: float) -> None:
        """Start or restart the deadline, *delay_s* seconds from now."""
        self.cancel()
        self._due = self._clock.seconds() + delay_s
        self._timer = self._clock.callLater(delay_s, self._on_time)

    def cancel(self) -> None:
        """Cancel the deadline."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def active(self) -> bool:
        """Return True if the deadline is set and has not passed."""
        return self._timer is not None and self._timer.active()

    def _on_time(self) -> None:
        self._timer = None
        if self._has_input() and self._clock.seconds() < self._due + MOST_GRACE_S:
            self._timer = self._clock.callLater(LOOK_S, self._on_time)
        else:
            self._call()
