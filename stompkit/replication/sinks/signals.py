"""A sink that sends signals: what a broker has brought is heard as if it had happened here."""

from __future__ import annotations

from collections.abc import Sequence

from stompkit.replication.events import Changeset
from stompkit.replication.signals import emit

__all__ = ["SignalSink"]


class SignalSink:
    """Sends the signals of each changeset; all subscribers of this process can hear it.

    A changeset counts as applied when the receivers of
    :data:`~stompkit.replication.signals.CHANGESET` have taken it. Numbers are kept in memory only:
    after a restart subscribers hear again what had not been acknowledged.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._last: dict[str, int] = {}

    def last(self, origin: str) -> int | None:
        """The number of the last changeset of that origin since this sink was made."""
        return self._last.get(origin)

    def apply(self, changesets: Sequence[Changeset]) -> None:
        """Send the signals; raises what a receiver of changesets raises, now or by its future.

        Those before that one have been heard, and are not sent again.
        """
        futures = []
        for changeset in changesets:
            if changeset.sequence > self._last.get(changeset.origin, 0):
                futures.append((changeset, emit(changeset)))
        for changeset, given in futures:
            for future in given:
                future.result()
            self.skip(changeset)

    def skip(self, changeset: Changeset) -> None:
        """Count it."""
        self._last[changeset.origin] = changeset.sequence

    def close(self) -> None:
        """Nothing is to be closed."""
