"""Selected tables of a job: only their changes are applied or sent."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any

import msgspec
from blinker import Signal

from stompkit.client.blocking import LinkClosedError
from stompkit.replication.jobs.feeder import FeederClosedError
from stompkit.replication.model.events import Changeset
from stompkit.replication.model.signals import emit
from stompkit.replication.model.tables import Tables
from stompkit.replication.sinks import Refuse, RowSink, Sink

__all__ = ["CountingEmitter", "SelectingSink"]


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
        self._sink.apply([_selected(self._tables, each) for each in changesets])

    def apply_rows(self, changeset: Changeset, refuse: Refuse) -> None:
        """Apply the selected changes that the sink accepts; see RowSink."""
        selected = _selected(self._tables, changeset)
        if isinstance(self._sink, RowSink):
            self._sink.apply_rows(selected, refuse)
        else:
            self._sink.apply([selected])


class CountingEmitter:
    """Sends the signals of changesets, and counts them."""

    def __init__(self, tables: Tables, stop: threading.Event, changesets: Signal) -> None:
        """Send the changes of *tables*; failures after *stop* was set are not raised."""
        self._tables = tables
        self._signal = changesets
        self._stop = stop
        self.changesets = self.changes = 0
        self.lag_s: float | None = None

    def publish(self, changeset: Changeset) -> Future[Any] | None:
        """Send the signals of the selected changes of a changeset."""
        changeset = _selected(self._tables, changeset)
        try:
            futures = emit(changeset, changesets=self._signal)
        except (FeederClosedError, LinkClosedError):
            if not self._stop.is_set():
                raise
            # The changeset stays in the outbox, and the relay waits a while for earlier ones.
            return Future()
        self.changesets += 1
        self.changes += len(changeset.changes)
        self.lag_s = (datetime.now(UTC) - changeset.timestamp).total_seconds()
        # A job has one target, so futures of other receivers are ignored.
        return futures[0] if futures else None
