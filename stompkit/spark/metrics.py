"""Metrics of a pipeline's job, for Prometheus. Requires the extra ``metrics``.

For a query of your own there is :class:`QueryMetrics`, a listener::

    metrics = QueryMetrics("shop", "mine", registry)
    spark.streams.addListener(metrics)
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Summary
from prometheus_client.metrics_core import Metric
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from stompkit._common.metrics import counter, gauge

if TYPE_CHECKING:
    from stompkit.spark.jobs.progress import Progress

__all__ = ["JobMetrics", "Observed", "QueryMetrics"]

_PREFIX: Final = "stompkit_pipeline"
_LABELS: Final = ("pipeline", "job")
#: Spark's names of the phases of a batch, and the names of the metrics.
_PHASES: Final = {
    "latestOffset": "latest_offset",
    "getBatch": "get_batch",
    "queryPlanning": "planning",
    "walCommit": "write_offsets",
    "addBatch": "work",
    "commitOffsets": "write_commit",
    "triggerExecution": "all",
}


class QueryMetrics(StreamingQueryListener):
    """Metrics from Spark's progress events of a streaming query over the source ``stomp``.

    ``stompkit_pipeline_batches_total``, ``_rows_total``
        completed batches, and rows that they have read.
    ``stompkit_pipeline_batch_seconds``
        a summary with the label ``phase``: ``latest_offset``, ``get_batch``, ``planning``,
        ``write_offsets``, ``work``, ``write_commit``, and ``all`` of it.
    ``stompkit_pipeline_last_batch_timestamp_seconds``
        start time of the last batch.

    All have the labels ``pipeline`` and ``job``.
    """

    def __init__(
        self,
        pipeline: str,
        job: str,
        registry: CollectorRegistry,
        *,
        query: str | None = None,
    ) -> None:
        """Register the metrics; ``query`` is the name of the query to count, by default any.

        Raises ``ValueError`` if the registry contains them already.
        """
        self._query: Final = query
        labels = (pipeline, job)

        def own(kind: Any, name: str, what: str, *more: str) -> Any:
            made = kind(f"{_PREFIX}_{name}", what, (*_LABELS, *more), registry=registry)
            return made if more else made.labels(*labels)

        self._batches = own(Counter, "batches", "Batches that are done.")
        self._rows = own(Counter, "rows", "Rows that batches have read.")
        self._last = own(Gauge, "last_batch_timestamp_seconds", "When the last batch began.")
        seconds = own(Summary, "batch_seconds", "What batches take, by phase.", "phase")
        self._seconds = {name: seconds.labels(*labels, phase) for name, phase in _PHASES.items()}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: no batch is counted yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Count a batch."""
        progress = event.progress
        if self._query is not None and progress.name != self._query:
            return
        self._batches.inc()
        self._rows.inc(max(progress.numInputRows or 0, 0))
        for name, seconds in self._seconds.items():
            if name in progress.durationMs:
                seconds.observe(progress.durationMs[name] / 1000)
        self._last.set(datetime.fromisoformat(progress.timestamp).timestamp())

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: no message has arrived."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the counts remain."""


class Observed(Protocol):
    """The interface that the metrics need from a pipeline."""

    def progress(self) -> Progress:
        """Return the progress of the job."""


class JobMetrics:
    """A collector of the pipeline's own metrics of its job.

    ``stompkit_pipeline_changes_total``, ``_dead_letters_total``, ``_late_total``,
    ``_retries_total``
        since the start of the process: new changes, changes that cannot be applied, changes too
        late for the job analytics, and retries of batches.
    ``stompkit_pipeline_restarts_total``
        number of former starts of the job on this machine.
    ``stompkit_pipeline_lag_messages``
        messages of the spool still to be read, once known.
    ``stompkit_pipeline_failing``
        1 while a batch is being retried.
    """

    def __init__(
        self,
        pipeline: str,
        job: str,
        source: Observed,
        restarts: int,
        registry: CollectorRegistry,
    ) -> None:
        """Register the metrics; raises ``ValueError`` if the registry contains them already."""
        self._labels: Final = (pipeline, job)
        self._source: Final = source
        self._restarts: Final = restarts
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        progress = self._source.progress()
        counts = {
            "changes": ("Changes that were new.", progress.changes),
            "dead_letters": ("Changes that cannot be applied.", progress.dead_letters),
            "late": ("Changes that came too late to be counted.", progress.late),
            "retries": ("How often a batch was tried again.", progress.retries),
            "restarts": ("How often the job was started before.", self._restarts),
        }
        for name, (what, value) in counts.items():
            yield counter(f"{_PREFIX}_{name}", what, [(self._labels, value)], _LABELS)
        if progress.lag is not None:
            text = "Messages of the spool that are still to be read."
            yield gauge(f"{_PREFIX}_lag_messages", text, [(self._labels, progress.lag)], _LABELS)
        text = "Whether a batch is tried again and again."
        yield gauge(f"{_PREFIX}_failing", text, [(self._labels, bool(progress.problem))], _LABELS)
