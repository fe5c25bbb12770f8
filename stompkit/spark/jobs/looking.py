"""Pipelines from outside: what is still missing for a run, and how far jobs are."""

from __future__ import annotations

import msgspec

from stompkit._common.files import is_locked
from stompkit.metrics import MetricsProblem, new_registry
from stompkit.spark._java import SparkProblem, find_java_home
from stompkit.spark.jobs.settings import JobName, PipelineSettings
from stompkit.spark.jobs.work import work_of
from stompkit.spool import SpoolProblem, SpoolReader

__all__ = ["JobState", "Place", "look", "missing"]


class Place(msgspec.Struct, frozen=True):
    """A partition of the spool."""

    partition: int
    #: The first ordinal that is still to be done, and the one after the last that there is.
    next: int
    head: int


class JobState(msgspec.Struct, frozen=True):
    """How far a job is."""

    job: JobName
    is_running: bool
    #: Messages that are still to be done.
    lag: int
    places: list[Place]


def missing(settings: PipelineSettings) -> list[str]:
    """What there is to do on this machine before the jobs can run; nothing is connected to.

    Raises :class:`~stompkit.spark.jobs.settings.PipelineProblem` where a job can't be made.
    """
    found = []
    if _has_pyspark():
        for job in settings.jobs():
            work_of(settings, job).close()
    else:
        found.append("PySpark is not installed: pip install 'stompkit[spark]'")
    try:
        find_java_home()
    except SparkProblem as problem:
        found.append(str(problem))
    if "hosts" not in {name.lower() for name in settings.source}:
        try:
            SpoolReader(settings.spool())
        except SpoolProblem as problem:
            found.append(str(problem))
    if settings.metrics is not None:
        try:
            new_registry()
        except MetricsProblem as problem:
            found.append(f"[metrics]: {problem}")
    return found


def _has_pyspark() -> bool:
    try:
        import pyspark
    except ImportError:
        return False
    return bool(pyspark)


def look(settings: PipelineSettings, job: JobName) -> JobState:
    """How far a job is by its target, whether it runs or not; Spark is not started.

    Raises :class:`~stompkit.spool.SpoolProblem` where there is no spool,
    :class:`~stompkit.spark.jobs.settings.PipelineProblem`, and what the target can't be asked with.
    """
    reader = SpoolReader(settings.spool())
    work = work_of(settings, job)
    try:
        fence = work.fence(reader.id)
    finally:
        work.close()
    places = [
        Place(number, fence.get(number, -1) + 1, head) for number, head in enumerate(reader.head())
    ]
    lag = sum(max(place.head - place.next, 0) for place in places)
    return JobState(job, is_locked(settings.folder() / job / "lock"), lag, places)
