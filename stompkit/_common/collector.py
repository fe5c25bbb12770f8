"""Pause Python's garbage collector while very many objects are created that all remain."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_collection"]


@contextmanager
def without_collection() -> Iterator[None]:
    """Disable garbage collection within the context, for all threads of the process.

    Imports of large packages and reads of large results get slower by collections that find
    nothing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
