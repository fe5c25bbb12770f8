"""What a job does where its target has less than Spark's checkpoint says.

Spark goes on at its checkpoint. A target that was restored from a backup, emptied, or replaced by a
standby that had not all of it, would lack for ever what is in between. How far the target is stands
in the target, so that is compared before a job begins, and with each batch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Literal

from stompkit.spark._options import SourceOptions
from stompkit.spark.fence import Fence
from stompkit.spark.jobs._checkpoint import Offset
from stompkit.spark.jobs.settings import PipelineProblem

__all__ = ["Beginning", "beginning"]

_log: Final = logging.getLogger(__name__)

#: Where a job begins: at its checkpoint, where its settings say, or at the spool's first message
#: and without its checkpoint.
Beginning = Literal["checkpoint", "settings", "spool"]


def beginning(
    fence: Fence,
    last: Offset | None,
    options: SourceOptions,
    floor: Sequence[int],
    *,
    checkpoint: str,
) -> Beginning:
    """Where a job begins.

    ``fence`` is how far the target is, ``last`` how far the checkpoint says that the job is, and
    ``floor`` has the first messages that the spool still has. Raises PipelineProblem where the
    changes that the target lacks are not there any more.
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
        raise PipelineProblem(
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
    """Raise PipelineProblem where retention has removed what comes after the fence."""
    for number in partitions:
        first = fence.get(number, -1) + 1
        if first >= floor[number]:
            continue
        text = (
            f"the target lacks the changes of the messages {first} to {floor[number] - 1} of"
            f" partition {number}, and retention has removed these from the spool"
        )
        if options.fail_on_data_loss:
            raise PipelineProblem(
                f"{text}. Restore a newer copy of the target, or set failOnDataLoss = false in"
                " [source] to go on without them"
            )
        _log.warning("%s", text)
