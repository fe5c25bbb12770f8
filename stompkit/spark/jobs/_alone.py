"""Keeps a job of a pipeline from being done twice at once."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from stompkit.spark.jobs.settings import JobName, PipelineProblem, PipelineSettings

__all__ = ["alone"]

#: How long a lock is tried for that somebody may have who asks for the status.
_LOCK_S: Final = 2.0
#: How often, in seconds.
_LOOK_S: Final = 0.1


@contextmanager
def alone(settings: PipelineSettings, job: JobName, remedy: str) -> Iterator[None]:
    """Have nobody else on this machine run a job meanwhile.

    Raises PipelineProblem where it is running, with what to do then.
    """
    folder = settings.folder() / job
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = open(folder / "lock", "w")
    except OSError as error:
        raise PipelineProblem(f"{error.filename}: {error.strerror}") from None
    with file:
        deadline = time.monotonic() + _LOCK_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise PipelineProblem(
                        f"the job {job} of the pipeline {settings.name} is running already;"
                        f" {remedy}"
                    ) from None
            time.sleep(_LOOK_S)
        yield
