"""Locks that prevent concurrent runs of a job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from stompkit._common.files import FileLock, LockedError, describe, make_directory
from stompkit.spark.jobs.settings import JobName, PipelineError, PipelineSettings

__all__ = ["alone"]

#: Time in seconds to wait for a lock that a status query may hold.
_LOCK_S: Final = 2.0


@contextmanager
def alone(settings: PipelineSettings, job: JobName, remedy: str) -> Iterator[None]:
    """Hold the lock of a job, so that no other process on this machine runs it.

    Raises PipelineError with *remedy* if the job is running.
    """
    folder = settings.folder() / job
    try:
        make_directory(folder, mode=0o700)
        lock = FileLock(folder / "lock").acquire(_LOCK_S)
    except LockedError:
        raise PipelineError(
            f"the job {job} of the pipeline {settings.name} is running already; {remedy}"
        ) from None
    except OSError as error:
        raise PipelineError(describe(error)) from None
    with lock:
        yield
