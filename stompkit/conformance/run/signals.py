"""Signals that end a run: the finished cases are reported nevertheless."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

__all__ = ["ENDING", "hold_signals", "interruptible"]

#: Signals that end a run; SIGHUP comes when a terminal is closed.
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Handle each of the signals like Ctrl-C; yield a list to which the signal is added.

    Only the first signal raises KeyboardInterrupt: ``timeout`` sends two, and a CI job sends SIGINT
    and then SIGTERM. A signal that is ignored, as by ``nohup``, remains ignored.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, _Interrupt(received))
        yield received
    finally:
        for number, handler in before.items():
            # None is a handler that was not installed from Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


class _Interrupt:
    """The handler of a signal while cases run."""

    def __init__(self, received: list[int]) -> None:
        self._received = received

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Interrupt the run."""
        self._received.append(number)
        hold_signals()
        raise KeyboardInterrupt


def hold_signals() -> None:
    """Make signals harmless while reports are written; within ``interruptible`` only.

    The second Ctrl-C from now on has its usual effect.
    """
    if threading.current_thread() is threading.main_thread():
        for number in ENDING:
            if isinstance(signal.getsignal(number), _Interrupt):
                signal.signal(number, _held)


def _held(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGINT:
        signal.signal(number, signal.default_int_handler)
