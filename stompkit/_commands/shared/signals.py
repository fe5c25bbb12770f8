"""Handling of SIGTERM and Ctrl-C in commands that run until they are stopped."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["ended_by_signals"]


@contextmanager
def ended_by_signals(end: Callable[[], object]) -> Iterator[None]:
    """Call ``end`` at SIGINT and SIGTERM, in place of their default actions."""

    def called(number: int, frame: FrameType | None) -> None:
        end()

    before = {number: signal.signal(number, called) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
