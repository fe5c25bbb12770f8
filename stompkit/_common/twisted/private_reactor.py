"""A reactor for one thread or one command, which does not depend on the system's date."""

from __future__ import annotations

from typing import Any

from twisted.internet.pollreactor import PollReactor

from stompkit._common.clock import monotonic

__all__ = ["private_reactor"]


class _PrivateReactor(PollReactor):
    """A reactor with a monotonic clock.

    Twisted's own clock is the date: once it is set back, calls that are already scheduled are late.
    """

    seconds = staticmethod(monotonic)


def private_reactor() -> Any:
    """Return a new reactor, which the caller runs."""
    return _PrivateReactor()  # type: ignore[no-untyped-call]  # Twisted's
