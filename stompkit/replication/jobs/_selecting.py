"""Selected tables of a job: only their changes are applied or sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from blinker import Signal

from stompkit._common.futures import all_of
from stompkit.client.blocking import LinkClosedError
from stompkit.replication.jobs.feeder import FeederClosedError
from stompkit.replication.model.events import Changeset, EncodedChangeset
from stompkit.replication.model.signals import emit, has_receivers
from stompkit.replication.model.tables import Tables
from stompkit.replication.sinks import Refuse, RowSink, Sink, SinkMisconfiguredError
from stompkit.replication.sinks.forwarders.stomp import StompSub

__all__ = ["CountingEmitter", "SelectingSink"]

_Sent = TypeVar("_Sent")


def _selected(tables: Tables, changeset: Changeset) -> Changeset:
    """Return a changeset with the selected changes only, with masks."""
    changes = tuple(
        tables.shape(change)
        for change in changeset.changes
        if tables.wants(change.schema, change.table)
    )
    return msgspec.structs.replace(changeset, changes=changes)


class SelectingSink:
    """A sink that applies only selected changes."""

    def __init__(self, sink: Sink, tables: Tables) -> None:
        """Apply the changes of *tables* to *sink*."""
        self._tables = tables
        self._sink = sink
        self.last = sink.last
        self.skip = sink.skip
        self.close = sink.close

    def apply(self, changesets: Sequence[Changeset]) -> None:
        """Apply the selected changes; an empty changeset still advances the sequence number."""
        self._sink.apply([self._selected(each) for each in changesets])

    def apply_rows(self, changeset: Changeset, refuse: Refuse) -> None:
        """Apply the selected changes that the sink accepts; see RowSink."""
        selected = self._selected(changeset)
        if isinstance(self._sink, RowSink):
            self._sink.apply_rows(selected, refuse)
        else:
            self._sink.apply([selected])

    def _selected(self, changeset: Changeset) -> Changeset:
        try:
            return _selected(self._tables, changeset)
        except ValueError as problem:
            # Only other options help.
            raise SinkMisconfiguredError(str(problem)) from None


class CountingEmitter:
    """Sends the signals of changesets, and counts them."""

    def __init__(
        self,
        tables: Tables,
        stop: threading.Event,
        changesets: Signal,
        sub: StompSub | None = None,
    ) -> None:
        """Send the changes of *tables*; failures after *stop* was set are not raised.

        *sub* is the receiver of the signal, if it is a broker.
        """
        self._tables = tables
        self._signal = changesets
        self._sub = sub
        self._stop = stop
        self.changesets = self.changes = 0
        self.lag_s: float | None = None

    def send_encoded(self, changesets: Sequence[EncodedChangeset]) -> Future[Any]:
        """Send the signals of the selected changes of changesets.

        If a broker is the only receiver of all changes, they are passed on without being decoded.
        """
        sub = self._sub
        if sub is None or not self._tables.selects_all or has_receivers():
            futures = [self.publish(each.decoded()) for each in changesets]
            return all_of([future for future in futures if future is not None])
        future = self._unless_stopped(lambda: sub.send_encoded(changesets))
        if future is None:
            return Future()
        self._count(changesets[-1], len(changesets), sum(each.count for each in changesets))
        return future

    def publish(self, changeset: Changeset) -> Future[Any] | None:
        """Send the signals of the selected changes of a changeset."""
        changeset = _selected(self._tables, changeset)
        futures = self._unless_stopped(lambda: emit(changeset, changesets=self._signal))
        if futures is None:
            return Future()
        self._count(changeset, 1, len(changeset.changes))
        # A job has one target, so futures of other receivers are ignored.
        return futures[0] if futures else None

    def _unless_stopped(self, send: Callable[[], _Sent]) -> _Sent | None:
        """Return None if the job is stopped while it sends.

        The changesets stay in the outbox, and the relay waits a while for earlier ones.
        """
        try:
            return send()
        except (FeederClosedError, LinkClosedError):
            if not self._stop.is_set():
                raise
            return None

    def _count(self, last: Changeset | EncodedChangeset, changesets: int, changes: int) -> None:
        self.changesets += changesets
        self.changes += changes
        self.lag_s = (datetime.now(UTC) - last.timestamp).total_seconds()
