"""Handling of SIGTERM and Ctrl-C in commands that run until they are stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

__all__ = ["end_by_signals", "ended_by_signals", "handling_signals", "signalled"]


@contextmanager
def handling_signals(handle: Callable[[int], object]) -> Iterator[None]:
    """Call ``handle`` with the number of each SIGINT and SIGTERM, in place of their actions."""

    def called(number: int, frame: FrameType | None) -> None:
        handle(number)

    before = {number: signal.signal(number, called) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ended_by_signals(end: Callable[[], object]) -> AbstractContextManager[None]:
    """Call ``end`` at SIGINT and SIGTERM, in place of their default actions."""
    return handling_signals(lambda _: end())


def end_by_signals(end: Callable[[], object]) -> None:
    """Call ``end`` at SIGINT and SIGTERM from now on, until the process has ended.

    A late signal does not change the exit status then.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: end())


@contextmanager
def signalled() -> Iterator[int]:
    """Yield a descriptor that becomes readable after a termination signal."""
    end, wake = os.pipe()
    try:
        with ended_by_signals(lambda: os.write(wake, b"!")):
            yield end
    finally:
        os.close(end)
        os.close(wake)
