"""Waiting for a signal, or for another thread, to request the end."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["halting"]


@contextmanager
def halting() -> Iterator[tuple[Callable[[], None], Callable[[], object]]]:
    """Yield a function that ends the wait, and the wait itself; SIGTERM and SIGINT also end it.

    Signals are handled in the main thread only; afterwards the previous handlers are restored.
    """
    # A signal handler can write to it independently of the main thread's state and locks.
    end, begin = socket.socketpair()

    def halt() -> None:
        with suppress(OSError):  # the wait has ended already
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
