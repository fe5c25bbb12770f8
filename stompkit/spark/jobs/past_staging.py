"""Staging of past changes in a target, with missing columns added."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import pyarrow as pa

from stompkit.replication.sinks import ApplyError
from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.spark.fence import ranges_of
from stompkit.spark.targets.base import Job, Staged, Target
from stompkit.spark.targets.planning.evolve import merged

__all__ = ["PastStaging"]

#: Maximum number of attempts of a chunk, if the target lacks a column.
_MOST_ATTEMPTS: Final = 10
#: Columns that define the order of changes.
_PLACE: Final = ("_partition", "_ordinal", "change")


class PastStaging:
    """Staging of changes in this process, one chunk after the other."""

    def __init__(self, target: Target, job: Job) -> None:
        """Use a target that is prepared."""
        self._target = target
        self._job = job

    def staged(self, chunk: Sequence[pa.RecordBatch]) -> list[Staged]:
        """Return the staged result of some changes, after adding missing columns to the target."""
        if not ranges_of(chunk)[1]:
            # Staging requires ordered changes. Incomplete changesets are reported after later ones.
            order = [(name, "ascending") for name in _PLACE]
            chunk = pa.Table.from_batches(chunk).sort_by(order).combine_chunks().to_batches()
        for _ in range(_MOST_ATTEMPTS):
            parts = list(self._target.stage(chunk, self._job))
            is_kept = False
            try:
                assert all(part.in_order for part in parts), "each change is there once"
                lacking = merged(part.lacking for part in parts)
                problems = [each for part in parts for each in part.problems]
                if problems and not (lacking or self._job.dead_letters):
                    raise ApplyError(str(problems[0]))
                if not lacking:
                    is_kept = True
                    return parts
            finally:
                if not is_kept:
                    self.discard(parts)
            self._target.evolve(lacking)
        raise ApplyError("the target lacks columns again and again: is it changed by others?")

    def discard(self, parts: Sequence[Staged]) -> None:
        """Discard staged data; an unreachable server does that at its next start."""
        with suppress(SinkUnavailableError):
            self._target.discard(parts)
