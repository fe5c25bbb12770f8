"""The timeouts of waits, which have two names."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["seconds"]

_Seconds = TypeVar("_Seconds", float, float | None)


def seconds(timeout_s: _Seconds, timeout: float | None) -> _Seconds:
    """Return the timeout that was given under either of its names."""
    return timeout_s if timeout is None else timeout
