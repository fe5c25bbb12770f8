"""A sink that sends signals: changesets from a broker are received like local ones."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import Any, Final

from blinker import Signal

from stompkit._common.moved import renamed
from stompkit.replication.model.events import Changeset
from stompkit.replication.model.signals import CHANGESET, emit

__all__ = ["SignalSink", "SignalsStoppedError"]

#: Interval in seconds at which a wait checks for a stop.
_LOOK_S: Final = 0.1


class SignalsStoppedError(Exception):
    """:meth:`SignalSink.stop` was called before receivers had accepted a changeset."""


class SignalSink:
    """Sends the signals of each changeset to the subscribers of this process.

    A changeset counts as applied when the receivers of
    :data:`~stompkit.replication.model.signals.CHANGESET` have accepted it. Numbers are kept in
    memory only: after a restart, subscribers receive unacknowledged changesets again.
    """

    def __init__(self, changesets: Signal = CHANGESET) -> None:
        """Start empty; ``changesets`` is the signal by which changesets are sent."""
        self._signal = changesets
        self._last: dict[str, int] = {}
        self._stop = threading.Event()

    def last(self, origin: str) -> int | None:
        """Return the number of the last changeset of that origin since this sink was created."""
        return self._last.get(origin)

    def apply(self, changesets: Sequence[Changeset]) -> None:
        """Send the signals; raises the errors of changeset receivers, directly or by their futures.

        Earlier changesets have been received, and are not sent again. Raises
        :class:`SignalsStoppedError` after :meth:`stop`, instead of waiting.
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
        """Record a changeset as applied."""
        self._last[changeset.origin] = changeset.sequence

    def stop(self) -> None:
        """Stop waiting for receivers; thread-safe."""
        self._stop.set()

    def _wait(self, futures: Sequence[Future[Any]]) -> None:
        """Wait until they are done; raises the first error."""
        while True:
            done, others = wait(futures, _LOOK_S, FIRST_EXCEPTION)
            for future in done:
                future.result()
            if not others:
                return
            if self._stop.is_set():
                raise SignalsStoppedError("receivers have not taken a changeset yet")

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


renamed(
    __name__,
    SignalsStopped="SignalsStoppedError",
)
