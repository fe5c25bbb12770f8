"""A sink that sends signals: what a broker has brought is heard as if it had happened here."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import Any, Final

from blinker import Signal

from stompkit.replication.events import Changeset
from stompkit.replication.signals import CHANGESET, emit

__all__ = ["SignalSink", "SignalsStopped"]

#: How often a wait looks whether it is to end, in seconds.
_LOOK_S: Final = 0.1


class SignalsStopped(Exception):
    """:meth:`SignalSink.stop` was called while receivers had not taken a changeset."""


class SignalSink:
    """Sends the signals of each changeset; all subscribers of this process can hear it.

    A changeset counts as applied when the receivers of
    :data:`~stompkit.replication.signals.CHANGESET` have taken it. Numbers are kept in memory only:
    after a restart subscribers hear again what had not been acknowledged.
    """

    def __init__(self, changesets: Signal = CHANGESET) -> None:
        """Begin with nothing; ``changesets`` is the signal that changesets are sent by."""
        self._signal = changesets
        self._last: dict[str, int] = {}
        self._stop = threading.Event()

    def last(self, origin: str) -> int | None:
        """The number of the last changeset of that origin since this sink was made."""
        return self._last.get(origin)

    def apply(self, changesets: Sequence[Changeset]) -> None:
        """Send the signals; raises what a receiver of changesets raises, now or by its future.

        Those before that one have been heard, and are not sent again. Raises
        :class:`SignalsStopped` after :meth:`stop`, in place of waiting.
        """
        sent: list[tuple[Changeset, list[Future[Any]]]] = []
        try:
            for changeset in changesets:
                if changeset.sequence > self._last.get(changeset.origin, 0):
                    sent.append((changeset, emit(changeset, changesets=self._signal)))
        finally:
            for changeset, futures in sent:
                self._wait(futures)
                self.skip(changeset)

    def skip(self, changeset: Changeset) -> None:
        """Count it."""
        self._last[changeset.origin] = changeset.sequence

    def stop(self) -> None:
        """Wait for no receiver any more; from any thread."""
        self._stop.set()

    def _wait(self, futures: Sequence[Future[Any]]) -> None:
        """Wait until they are done; raises what the first one that has failed has failed with."""
        while True:
            done, others = wait(futures, _LOOK_S, FIRST_EXCEPTION)
            for future in done:
                future.result()
            if not others:
                return
            if self._stop.is_set():
                raise SignalsStopped("receivers have not taken a changeset yet")

    def close(self) -> None:
        """Nothing is to be closed."""
