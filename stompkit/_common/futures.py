"""Futures of several results."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any

__all__ = ["all_of"]


def all_of(futures: Sequence[Future[Any]]) -> Future[None]:
    """Return a future that is done when all are; it fails with the first error, at once."""
    whole: Future[None] = Future()
    left = len(futures)
    lock = Lock()

    def done(future: Future[Any]) -> None:
        nonlocal left
        with lock:
            left -= 1
            error = future.exception()
            if whole.done():
                return
            if error is not None:
                whole.set_exception(error)
            elif not left:
                whole.set_result(None)

    if not futures:
        whole.set_result(None)
    for future in futures:
        future.add_done_callback(done)
    return whole
