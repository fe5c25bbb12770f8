"""Threads for blocking calls: one each, since calls that wait would fill any pool."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["started"]

_T = TypeVar("_T")


def started(function: Callable[[], _T]) -> Future[_T]:
    """Call a function in a new thread, and return the future of its result."""
    future: Future[_T] = Future()
    # It cannot be cancelled any more, since the call has begun.
    future.set_running_or_notify_cancel()

    def call() -> None:
        try:
            result = function()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=call, name="stompkit-call", daemon=True).start()
    return future
