"""The status of pipelines from outside: missing requirements, and the progress of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from stompkit._common.files import is_locked
from stompkit._common.metrics import MetricsError, new_registry
from stompkit._common.text import text_of
from stompkit.spark.java import SparkError, find_java_home
from stompkit.spark.jobs.settings import JobName, LibraryMissingError, PipelineSettings, advice
from stompkit.spool import SpoolError

__all__ = ["JobState", "Missing", "Place", "look", "missing", "unmatched"]


class Place(msgspec.Struct, frozen=True):
    """Progress in a partition of the spool."""

    partition: int
    #: First ordinal still to process, and the ordinal after the last one available.
    next: int
    head: int


class JobState(msgspec.Struct, frozen=True):
    """Progress of a job."""

    job: JobName
    is_running: bool
    #: Number of messages still to process.
    lag: int
    places: list[Place]


class Missing(NamedTuple):
    """Something that a job lacks to run on this machine."""

    reason: str
    #: ``None`` if all jobs lack it.
    job: JobName | None = None

    def __str__(self) -> str:
        """Return one line for users."""
        return self.reason if self.job is None else f"{self.job}: {self.reason}"


def missing(settings: PipelineSettings) -> list[Missing]:
    """Return what the jobs lack to run on this machine; changes nothing.

    Targets are connected to, but no broker. Raises
    :class:`~stompkit.spark.jobs.settings.PipelineError` if a job cannot be created.
    """
    found = []
    if _has_pyspark():
        found += [
            Missing(reason, job) for job in settings.jobs() for reason in _lacks(settings, job)
        ]
    else:
        found.append(Missing("PySpark is not installed: pip install 'stompkit[spark]'"))
    try:
        find_java_home()
    except SparkError as problem:
        found.append(Missing(str(problem)))
    if "hosts" not in {name.lower() for name in settings.source}:
        try:
            settings.open_spool(timeout_s=0)
        except SpoolError as problem:
            found.append(Missing(str(problem)))
    if settings.metrics is not None:
        try:
            new_registry()
        except MetricsError as problem:
            found.append(Missing(f"[metrics]: {problem}"))
    return found


def _lacks(settings: PipelineSettings, job: JobName) -> Iterator[str]:
    """Yield what a job lacks besides Spark."""
    # Imported on demand: it needs the libraries of the extra.
    from stompkit.spark.jobs.work import work_of

    try:
        work = work_of(settings, job)
    except LibraryMissingError as error:
        yield str(error)
        return
    except ModuleNotFoundError as error:
        yield advice(error)
        return
    try:
        work.fence("")
    except ModuleNotFoundError as error:
        yield f"{work.setting}: {advice(error)}"
    except Exception as error:
        yield f"{work.setting}: {settings.without_secrets(text_of(error))}"
    finally:
        work.close()


def unmatched(settings: PipelineSettings) -> list[str]:
    """Return a warning for each name in the settings that no change of former runs has had."""
    if not _has_pyspark():
        return []
    # Imported on demand: it needs the libraries of the extra.
    from stompkit.spark.jobs.runs.known_names import KnownNames

    return [
        f"{job}: {warning}"
        for job in settings.jobs()
        for warning in KnownNames(settings, job).unmatched()
    ]


def _has_pyspark() -> bool:
    try:
        import pyspark
    except ImportError:
        return False
    return bool(pyspark)


def look(settings: PipelineSettings, job: JobName) -> JobState:
    """Return the progress of a job according to its target, running or not, without Spark.

    Raises :class:`~stompkit.spool.SpoolError` if there is no spool,
    :class:`~stompkit.spark.jobs.settings.PipelineError`, and errors of the target.
    """
    from stompkit.spark.jobs.work import work_of

    reader = settings.open_spool(timeout_s=0)
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
