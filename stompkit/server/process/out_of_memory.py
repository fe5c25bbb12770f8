"""The end of a process that has no memory left: at once, rather than to go on with half a state."""

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
#: Where events have failures: those of the reactor are of the old kind of log.
_KEYS: Final = ("log_failure", "failure")
#: Made before there is no room for it.
_WORDS: Final = b"stompkit: no memory is left: the process ends; what was confirmed is kept\n"


@implementer(ILogObserver)
class MemoryWatch:
    """Ends the process when the log hears of a MemoryError that nobody has seen to.

    It may have come up anywhere: a unit that never gets to the store, an answer that nobody
    writes. What such a broker does next is anybody's guess, and clients that wait for it would
    wait for ever. One that has ended gives its place to the next, which has all that was confirmed.
    """

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._is_applied = False

    def apply(self) -> None:
        """Begin; harmless the second time."""
        if not self._is_applied:
            self._is_applied = True
            globalLogPublisher.addObserver(self)

    def undo(self) -> None:
        """Leave the process alone again; harmless where that is so."""
        if self._is_applied:
            self._is_applied = False
            globalLogPublisher.removeObserver(self)

    def __call__(self, event: LogEvent) -> None:
        """Look at what is logged."""
        for key in _KEYS:
            failure = event.get(key)
            if isinstance(failure, Failure) and isinstance(failure.value, MemoryError):
                _end()


def _end() -> None:
    # There may be no memory to say it, either.
    with suppress(Exception):
        os.write(2, _WORDS)
    with suppress(Exception):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    # Nothing in order: that takes memory, and would go by a state that may be wrong.
    os._exit(_STATUS)
