"""Waiting until a signal, or another thread, says that it is enough."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["halting"]


@contextmanager
def halting() -> Iterator[tuple[Callable[[], None], Callable[[], object]]]:
    """Give what ends a wait, for SIGTERM, SIGINT and other threads, and the wait itself.

    Signals are heard in the main thread only; afterwards their handlers are what they were.
    """
    # A handler of signals can write to it whatever the main thread is doing, or holds.
    end, begin = socket.socketpair()

    def halt() -> None:
        with suppress(OSError):  # nobody waits any more
            begin.send(b"\0")

    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGINT) if is_main else ()
    before = {number: signal.signal(number, lambda *_: halt()) for number in numbers}
    try:
        yield halt, lambda: end.recv(1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        end.close()
        begin.close()
