"""Metrics of a pipeline's job, for Prometheus. Needs the extra ``metrics``.

For a query of your own there is :class:`QueryMetrics`, a listener::

    metrics = QueryMetrics("shop", "mine", registry)
    spark.streams.addListener(metrics)
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Summary
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

if TYPE_CHECKING:
    from stompkit.spark.jobs.progress import Progress

__all__ = ["JobMetrics", "QueryMetrics"]

_PREFIX: Final = "stompkit_pipeline"
_LABELS: Final = ("pipeline", "job")
#: What Spark calls the phases of a batch, and what they are called here.
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
    """Counts what Spark tells of a streaming query over the source ``stomp``.

    ``stompkit_pipeline_batches_total``, ``_rows_total``
        batches that are done, and rows that these have read.
    ``stompkit_pipeline_batch_seconds``
        a summary, with the label ``phase``: ``latest_offset``, ``get_batch``, ``planning``,
        ``write_offsets``, ``work``, ``write_commit``, and ``all`` of it.
    ``stompkit_pipeline_last_batch_timestamp_seconds``
        when the last batch began.

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
        """Register the metrics; ``query`` is the name of the only query that counts.

        Raises ``ValueError`` where the registry has them already.
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
        self._seconds = {told: seconds.labels(*labels, phase) for told, phase in _PHASES.items()}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is counted yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Count a batch."""
        told = event.progress
        if self._query is not None and told.name != self._query:
            return
        self._batches.inc()
        self._rows.inc(max(told.numInputRows or 0, 0))
        for name, seconds in self._seconds.items():
            if name in told.durationMs:
                seconds.observe(told.durationMs[name] / 1000)
        self._last.set(datetime.fromisoformat(told.timestamp).timestamp())

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing was there to be done."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """What was counted stays."""


class _Told(Protocol):
    """What is used of a pipeline."""

    def progress(self) -> Progress:
        """How far it is."""


class JobMetrics:
    """A collector of what the pipeline itself knows of its job.

    ``stompkit_pipeline_changes_total``, ``_dead_letters_total``, ``_late_total``,
    ``_retries_total``
        since the start of the process: changes that were new, that can't be applied, that came too
        late to be counted by the job analytics; and how often a batch was tried again.
    ``stompkit_pipeline_restarts_total``
        how often the job was started before on this machine.
    ``stompkit_pipeline_lag_messages``
        messages of the spool that are still to be read, as soon as that is known.
    ``stompkit_pipeline_failing``
        1 while a batch is tried again and again.
    """

    def __init__(
        self,
        pipeline: str,
        job: str,
        told: _Told,
        restarts: int,
        registry: CollectorRegistry,
    ) -> None:
        """Register the metrics; raises ``ValueError`` where the registry has them already."""
        self._labels: Final = (pipeline, job)
        self._told: Final = told
        self._restarts: Final = restarts
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        progress = self._told.progress()
        counts = {
            "changes": ("Changes that were new.", progress.changes),
            "dead_letters": ("Changes that can't be applied.", progress.dead_letters),
            "late": ("Changes that came too late to be counted.", progress.late),
            "retries": ("How often a batch was tried again.", progress.retries),
            "restarts": ("How often the job was started before.", self._restarts),
        }
        for name, (what, value) in counts.items():
            count = CounterMetricFamily(f"{_PREFIX}_{name}", what, labels=_LABELS)
            count.add_metric(self._labels, value)
            yield count
        if progress.lag is not None:
            lag = GaugeMetricFamily(
                f"{_PREFIX}_lag_messages",
                "Messages of the spool that are still to be read.",
                labels=_LABELS,
            )
            lag.add_metric(self._labels, progress.lag)
            yield lag
        failing = GaugeMetricFamily(
            f"{_PREFIX}_failing", "Whether a batch is tried again and again.", labels=_LABELS
        )
        failing.add_metric(self._labels, bool(progress.problem))
        yield failing
