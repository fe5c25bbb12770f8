"""Resuming the job *replicate* after a rebuild of its own target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stompkit.spark.jobs.runs.checkpoint import put_aside
from stompkit.spark.jobs.runs.job_lock import alone
from stompkit.spark.jobs.settings import PipelineError, PipelineSettings
from stompkit.spark.stream.options import SourceOptions
from stompkit.spool import SpoolError

__all__ = ["check_gap", "forget_checkpoint", "going_on"]


@contextmanager
def going_on(settings: PipelineSettings) -> Iterator[None]:
    """Keep the job from running meanwhile.

    Raises PipelineError if it is running, or would resume from another position.
    """
    if "://" in settings.checkpoint:
        raise PipelineError(
            "checkpoint: the job replicate would go on at its checkpoint, and miss changes. End it,"
            f" remove {settings.checkpoint_of('replicate')}, rebuild with a file without"
            " checkpoint, and go on with this one; or give another --target"
        )
    if SourceOptions.parse(settings.source_options("replicate")).starting != "earliest":
        raise PipelineError(
            "[source]: with startingOffsets or startingTimestamp the job replicate would begin"
            " elsewhere than where the rebuild has ended: leave them out, or give another --target"
        )
    remedy = "end it while its target is rebuilt, or give another --target"
    with alone(settings, "replicate", remedy):
        yield


def check_gap(settings: PipelineSettings, fence: tuple[str, dict[int, int]] | None) -> None:
    """Raise PipelineError if the spool no longer retains the messages after the fence.

    ``fence`` is the future fence: the id of the spool, and the last ordinals.
    """
    try:
        reader = settings.open_spool()
    except SpoolError:
        return
    _, lasts = fence or ("", {})
    for number, floor in enumerate(reader.floor()):
        first = lasts.get(number, -1) + 1
        if first < floor:
            raise PipelineError(
                f"the job replicate could not go on: the changes of the messages {first} to"
                f" {floor - 1} of partition {number} are missing between what is rebuilt and the"
                f" spool {reader.place}, from which they are removed. Give another --target"
            )


def forget_checkpoint(settings: PipelineSettings) -> None:
    """Remove the checkpoint, so that the job starts from the fence."""
    put_aside(Path(settings.checkpoint_of("replicate")))
