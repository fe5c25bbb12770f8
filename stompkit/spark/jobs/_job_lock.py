"""Keeps a job of a pipeline from being done twice at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from stompkit._common.files import FileLock, LockedError
from stompkit.spark.jobs.settings import JobName, PipelineProblem, PipelineSettings

__all__ = ["alone"]

#: How long a lock is tried for that somebody may have who asks for the status.
_LOCK_S: Final = 2.0


@contextmanager
def alone(settings: PipelineSettings, job: JobName, remedy: str) -> Iterator[None]:
    """Have nobody else on this machine run a job meanwhile.

    Raises PipelineProblem where it is running, with what to do then.
    """
    folder = settings.folder() / job
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(folder / "lock").acquire(_LOCK_S)
    except LockedError:
        raise PipelineProblem(
            f"the job {job} of the pipeline {settings.name} is running already; {remedy}"
        ) from None
    except OSError as error:
        raise PipelineProblem(f"{error.filename}: {error.strerror}") from None
    with lock:
        yield
