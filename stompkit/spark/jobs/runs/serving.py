"""Serving of a job's metrics while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stompkit._common import metrics
from stompkit._common.files import write_atomically
from stompkit._common.metrics import Address, MetricsError, new_registry, parse_address
from stompkit.spark.jobs.settings import JobName, PipelineError, PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    from stompkit.spark.metrics import Observed

__all__ = ["serving"]


@contextmanager
def serving(
    settings: PipelineSettings, job: JobName, pipeline: Observed, *, query: str
) -> Iterator[tuple[Address | None, StreamingQueryListener | None]]:
    """Serve metrics if configured; yields the address, and the listener for batches."""
    listen = None if settings.metrics is None else settings.metrics.address(job)
    if listen is None:
        yield None, None
        return
    restarts = _count_start(settings, job)
    try:
        registry = new_registry()
    except MetricsError as problem:
        raise PipelineError(f"[metrics]: {problem}") from None
    from stompkit.spark.metrics import JobMetrics, QueryMetrics

    own = (settings.name, job)
    JobMetrics(*own, pipeline, restarts, registry)
    listener = QueryMetrics(*own, registry, query=query)
    try:
        with metrics.serving(parse_address(listen), registry) as address:
            yield address, listener
    except MetricsError as problem:
        raise PipelineError(f"[metrics]: {problem}{_advice(settings, listen)}") from None


def _advice(settings: PipelineSettings, listen: str) -> str:
    """Return what to do if several jobs have the same address."""
    assert settings.metrics is not None
    sharing = [job for job in settings.jobs() if settings.metrics.address(job) == listen]
    if not sharing[1:]:
        return ""
    own = parse_address(listen)
    ports = [f'{job} = "{own._replace(port=own.port + at)}"' for at, job in enumerate(sharing)]
    return (
        ". Jobs that run at the same time need different addresses, such as"
        f" listen = {{{', '.join(ports)}}}, or --metrics-port of each"
    )


def _count_start(settings: PipelineSettings, job: JobName) -> int:
    """Return the number of former starts of the job, and increment it."""
    path = settings.folder() / job / "starts"
    try:
        count = int(path.read_text())
    except (FileNotFoundError, ValueError):
        count = 0
    write_atomically(path, f"{count + 1}\n".encode(), mode=None, parents=True)
    return count
