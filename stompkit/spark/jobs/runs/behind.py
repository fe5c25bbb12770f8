"""Recovery of a job whose target is behind Spark's checkpoint.

Spark resumes from its checkpoint. A target that was restored from a backup, emptied, or replaced by
a standby with older data would then miss the changes in between for ever. The target stores its own
progress, which is compared before a job begins, and with each batch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Literal

from stompkit.spark.fence import Fence
from stompkit.spark.jobs.runs.checkpoint import Offset
from stompkit.spark.jobs.settings import PipelineError
from stompkit.spark.stream.options import SourceOptions

__all__ = ["Beginning", "beginning"]

_log: Final = logging.getLogger(__name__)

#: Start of a job: at its checkpoint, at the position in its settings, or at the first message of
#: the spool without its checkpoint.
Beginning = Literal["checkpoint", "settings", "spool"]


def beginning(
    fence: Fence,
    last: Offset | None,
    options: SourceOptions,
    floor: Sequence[int],
    *,
    checkpoint: str,
) -> Beginning:
    """Return the start of a job.

    ``fence`` is the progress of the target, ``last`` the progress of the job in the checkpoint, and
    ``floor`` the first retained messages of the spool. Raises PipelineError if changes that the
    target lacks are no longer retained.
    """
    if last is None:
        if fence:
            _check(fence, range(len(floor)), options, floor)
            return "spool"
        return "settings"
    missing = [number for number, end in last.ends.items() if fence.get(number, -1) + 1 < end]
    if not missing:
        return "checkpoint"
    if not fence and options.starting != "earliest":
        raise PipelineError(
            f"the target has nothing of the spool, where the checkpoint {checkpoint} says that"
            f" messages up to {last.ends[missing[0]] - 1} are applied; and the job did not begin"
            " with the spool's first message. Restore the target, or remove the checkpoint to begin"
            " where startingOffsets or startingTimestamp in [source] say now"
        )
    _check(fence, missing, options, floor)
    number = missing[0]
    _log.warning(
        "the target is older than the checkpoint: it ends with message %d of partition %d, and the"
        " checkpoint with message %d; the spool is read again, and what the target has is left out",
        fence.get(number, -1),
        number,
        last.ends[number] - 1,
    )
    return "spool"


def _check(
    fence: Fence, partitions: Sequence[int], options: SourceOptions, floor: Sequence[int]
) -> None:
    """Raise PipelineError if retention has removed messages after the fence."""
    for number in partitions:
        first = fence.get(number, -1) + 1
        if first >= floor[number]:
            continue
        text = (
            f"the target lacks the changes of the messages {first} to {floor[number] - 1} of"
            f" partition {number}, and retention has removed these from the spool"
        )
        if options.fail_on_data_loss:
            raise PipelineError(
                f"{text}. Restore a newer copy of the target, or set failOnDataLoss = false in"
                " [source] to go on without them"
            )
        _log.warning("%s", text)
