"""End a process that is out of memory at once, instead of continuing in an inconsistent state."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Final

from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.python.failure import Failure
from zope.interface import implementer

__all__ = ["MemoryWatch"]

_STATUS: Final = 1
#: Keys of failures in log events; the reactor uses the legacy log.
_KEYS: Final = ("log_failure", "failure")
#: Allocated before memory runs out.
_WORDS: Final = b"stompkit: no memory is left: the process ends; what was confirmed is kept\n"


@implementer(ILogObserver)
class MemoryWatch:
    """Ends the process when an unhandled MemoryError is logged.

    It may have occurred anywhere: a write batch may never reach the store, or a reply may never be
    sent. The behaviour of such a broker is undefined, and its clients could wait for ever. After it
    has ended, the next broker takes over with everything that was confirmed.
    """

    def __init__(self) -> None:
        """Start inactive."""
        self._is_applied = False

    def apply(self) -> None:
        """Start watching the log; does nothing the second time."""
        if not self._is_applied:
            self._is_applied = True
            globalLogPublisher.addObserver(self)

    def undo(self) -> None:
        """Stop watching the log; does nothing if inactive."""
        if self._is_applied:
            self._is_applied = False
            globalLogPublisher.removeObserver(self)

    def __call__(self, event: LogEvent) -> None:
        """Check a log event."""
        for key in _KEYS:
            failure = event.get(key)
            if isinstance(failure, Failure) and isinstance(failure.value, MemoryError):
                _end()


def _end() -> None:
    # Memory may be lacking even for the message.
    with suppress(Exception):
        os.write(2, _WORDS)
    with suppress(Exception):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    # No orderly shutdown: it needs memory, and would rely on a possibly invalid state.
    os._exit(_STATUS)
