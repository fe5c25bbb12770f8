"""Creation of jobs by name."""

from __future__ import annotations

from stompkit.spark.jobs.contract import Aggregating, Done, Work
from stompkit.spark.jobs.settings import JobName, PipelineSettings

__all__ = ["Aggregating", "Done", "Work", "work_of"]


def work_of(settings: PipelineSettings, job: JobName) -> Work:
    """Create a job; raises :class:`~stompkit.spark.jobs.settings.PipelineError`.

    No connection is opened yet.
    """
    settings.demand(job)
    if job == "replicate":
        from stompkit.spark.jobs.replicate import Replicate

        return Replicate(settings)
    if job == "analytics":
        from stompkit.spark.jobs.analytics import Analytics

        return Analytics(settings)
    from stompkit.spark.jobs.events import Events

    return Events(settings)
