"""Staging of past changes in a target, with missing columns added."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final

import pyarrow as pa

from stompkit.replication.sinks import ApplyError
from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.spark.fence import ranges_of
from stompkit.spark.states import Place, Problem
from stompkit.spark.targets.base import Job, Staged, Target
from stompkit.spark.targets.planning.evolve import merged

__all__ = ["PastStaging"]

#: Maximum number of attempts of a chunk, if the target lacks a column.
_MOST_ATTEMPTS: Final = 10
#: Columns that identify changes and define their order.
_PLACE: Final = ("_partition", "_ordinal", "change")
#: Columns that identify the row of a change.
_ROW: Final = ("schema", "table", "key")


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
        letters: list[Problem] = []
        attempts = 0
        while attempts < _MOST_ATTEMPTS:
            parts = list(self._target.stage(chunk, self._job))
            is_kept = False
            try:
                assert all(part.in_order for part in parts), "each change is there once"
                lacking = merged(part.lacking for part in parts)
                failures = [] if lacking else [each for part in parts for each in part.failures]
                problems = [*failures, *(each for part in parts for each in part.problems)]
                if problems and not (lacking or self._job.dead_letters):
                    raise ApplyError(str(problems[0]))
                if not lacking and not failures:
                    is_kept = True
                    return [*parts, Staged({}, problems=letters)] if letters else parts
            finally:
                if not is_kept:
                    self.discard(parts)
            if lacking:
                self._target.evolve(lacking)
                attempts += 1
            else:
                refused = self._refused(chunk, failures)
                letters += refused
                chunk = _without(chunk, {each.place for each in refused})
        raise ApplyError("the target lacks columns again and again: is it changed by others?")

    def _refused(
        self, chunk: Sequence[pa.RecordBatch], failures: Sequence[Problem]
    ) -> list[Problem]:
        """Return the changes that make the target reject the final state of some rows."""
        table = pa.Table.from_batches(chunk)
        rows = list(zip(*(table.column(name).to_pylist() for name in _ROW), strict=True))
        places = list(zip(*(table.column(name).to_pylist() for name in _PLACE), strict=True))
        changes: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for number, row in enumerate(rows):
            changes[row].append(number)
        row_of = dict(zip(places, rows, strict=True))
        found: list[Problem] = []
        for last in failures:
            numbers = changes.pop(row_of[last.place], [])
            if not numbers:
                # This row was processed before: it is written, and deleted first.
                continue
            own: list[Problem] = []
            if len(numbers) > 1:
                # The last change of a row represents all of them.
                for number in numbers:
                    own += self._failures(table.slice(number, 1))
            found += own or [last]
        return found

    def _failures(self, changes: pa.Table) -> list[Problem]:
        """Return the errors for which the target rejects some changes individually."""
        parts = list(self._target.stage(changes.combine_chunks().to_batches(), self._job))
        self._target.discard(parts)
        return [each for part in parts for each in part.failures]

    def discard(self, parts: Sequence[Staged]) -> None:
        """Discard staged data; an unreachable server does that at its next start."""
        with suppress(SinkUnavailableError):
            self._target.discard(parts)


def _without(
    chunk: Sequence[pa.RecordBatch], places: Collection[Place]
) -> Sequence[pa.RecordBatch]:
    """Return the changes whose positions are not in *places*."""
    chosen = []
    for batch in chunk:
        found = zip(*(batch.column(name).to_pylist() for name in _PLACE), strict=True)
        chosen.append(batch.filter(pa.array([place not in places for place in found], pa.bool_())))
    return chosen
