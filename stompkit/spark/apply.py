"""Replication: applying batches of changes to a target, each change exactly once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import Any, Final, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stompkit.replication.sinks import ApplyError
from stompkit.spark.fence import Span, are_in_order, beyond, sort_key, within
from stompkit.spark.names import Names, NamesFound, dump, load, merged
from stompkit.spark.restarts import ColumnsMissing, FenceMoved, Restart, Unsorted, WorkLost
from stompkit.spark.states import Choice
from stompkit.spark.stream.columns import APPLIED, CHANGES
from stompkit.spark.stream.ranges import are_ranges, batches_of, changes_of, overlapping
from stompkit.spark.targets import (
    Committed,
    Job,
    RejectedChangeError,
    Staged,
    StagingLostError,
    Target,
    open_target,
)
from stompkit.spark.targets.planning.draft import MissingTableError
from stompkit.spark.targets.planning.evolve import lacking_of

__all__ = ["Applied", "OnProblem", "applier", "apply_changes"]

_log: Final = logging.getLogger(__name__)

#: Handling of a change that cannot be applied: reject its batch, or store a dead letter.
OnProblem = Literal["stop", "dead-letter"]

#: Maximum number of attempts of a batch after concurrent updates, and of all attempts. A batch with
#: many new columns in the target may begin as often as it finds some.
_MOST_ATTEMPTS: Final = 10
_MOST_RESTARTS: Final = 100

_RESULT: Final = pa.schema([("staged", pa.binary()), ("names", pa.binary())])


@dataclass(frozen=True)
class Applied:
    """Result of a batch."""

    #: Number of rows in the batch.
    rows: int = 0
    #: Number of new changes of selected tables.
    changes: int = 0
    #: Number of rows that had been applied before.
    fenced: int = 0
    #: Number of rows written to the target.
    written: int = 0
    deleted: int = 0
    #: Number of changes stored as dead letters.
    dead_letters: int = 0
    #: Number of changes dropped because the row was newer.
    conflicts: int = 0
    #: Columns of the tables in the batch, selected or not, by schema and name of the table.
    names: Names = field(default_factory=dict, compare=False, repr=False)


def apply_changes(
    df: DataFrame,
    target: Target | str,
    *,
    pipeline: str,
    spool: str = "",
    keys: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    sequence_by: str = "_ordinal",
    apply_as_deletes: str = "operation = 'delete'",
    column_list: Iterable[str] | None = None,
    except_column_list: Iterable[str] | None = None,
    stored_as_scd_type: Literal[1, 2] = 1,
    ignore_null_updates: bool = False,
    tables: Iterable[str] | None = None,
    on_problem: OnProblem = "stop",
    span: Span | None = None,
) -> Applied:
    """Apply a batch of changes to a target, and move the pipeline's fence, in one transaction.

    ``df`` has the columns of the source with the option ``payload`` set to ``ranges`` or
    ``changeset``. ``ranges`` is fastest; ``changeset`` is for a query that changes or filters rows
    first. Changes that are not beyond the fence are skipped. So a batch may be repeated or resized,
    and Spark may lose its checkpoint. Tasks do most of the work if ``df`` preserves the order of
    the spool; otherwise changes are sorted first.

    ``pipeline``, ``spool``
        Key of the fence: a name, and the id of the spool, since ordinals of another spool have
        another meaning.
    ``keys``
        Columns that identify rows, for all tables or by ``table`` or ``schema.table``; by default
        the key in the changes.
    ``sequence_by``
        Order of the changes of a row, if that is not the order of the spool: a column of ``df``
        or of the rows. A change that is older than the row has no effect, even if the row was
        deleted. The driver does the work then.
    ``apply_as_deletes``
        SQL condition on the columns of ``df`` for changes that delete a row.
    ``column_list``, ``except_column_list``
        Columns to apply, or to exclude; key columns are always applied.
    ``stored_as_scd_type``
        2 keeps versions of rows, with the columns ``valid_from_ordinal``, ``valid_from``,
        ``valid_to`` and ``is_current``. The driver does the work then.
    ``ignore_null_updates``
        Ignore updates of a column to NULL.
    ``tables``
        Tables to apply, as ``table`` or ``schema.table``; by default all.
    ``on_problem``
        ``"dead-letter"`` writes changes that cannot be applied to the target's table
        ``stompkit_pipeline_dead_letters``, and applies the others.
    ``span``
        Bounds of the batch in the spool. A target that ends before the batch begins then raises
        :class:`~stompkit.spark.fence.TargetBehindError`.

    Raises :class:`~stompkit.replication.sinks.ApplyError` for a change that can never be applied,
    and names it. Raises SchemaError with a remedy if the target lacks something that must not be
    created. Raises :class:`~stompkit.replication.sinks.sql.SinkUnavailableError` and errors of
    Spark if a retry may succeed. No change is applied then.
    """
    opened = open_target(target) if isinstance(target, str) else target
    if not 0 < len(pipeline) <= 100:
        raise ValueError("the name of a pipeline has 1 to 100 characters")
    job = Job(
        pipeline=pipeline,
        spool=spool,
        choice=Choice.of(
            keys=keys,
            tables=tables,
            column_list=column_list,
            except_column_list=except_column_list,
            ignores_null_updates=ignore_null_updates,
        ),
        dead_letters=on_problem == "dead-letter",
        sequence_by=sequence_by,
        scd_type=stored_as_scd_type,
        span=span or Span(),
    )
    try:
        opened.prepare()
        if not are_ranges(df):
            return _Batch(_reduced(df, apply_as_deletes, job), None, opened, job).run()
        ranges = df if job.is_plain and _is_plain(apply_as_deletes) else None
        changes = _reduced(changes_of(df), apply_as_deletes, job)
        return _Batch(changes, ranges, opened, job).run()
    finally:
        if isinstance(target, str):
            opened.close()


def applier(
    target: Target | str,
    *,
    on_applied: Callable[[int, Applied], None] | None = None,
    **options: Any,
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``writeStream.foreachBatch``, with the options of ``apply_changes``.

    ``on_applied`` is called with the number of each batch and its result.
    """
    opened = open_target(target) if isinstance(target, str) else target

    def apply(df: DataFrame, batch_id: int) -> None:
        applied = apply_changes(df, opened, **options)
        if on_applied is not None:
            on_applied(batch_id, applied)

    return apply


def _reduced(df: DataFrame, deletes: str, job: Job) -> DataFrame:
    """Return the required columns, since each costs time, with deletes marked as such."""
    missing = [name for name in APPLIED if name not in df.columns]
    if missing:
        raise ValueError(
            f"the batch has no column {missing[0]!r}: is the source's payload set to changeset?"
        )
    if not _is_plain(deletes):
        told = F.when(F.expr(deletes), "delete").when(F.col("operation") == "delete", "update")
        df = df.withColumn("operation", told.otherwise(F.col("operation")))
    more = ["problem", job.sequence_by, *(["committed"] if job.scd_type == 2 else [])]
    wanted = [name for name in more if name in df.columns]
    return df.select(*dict.fromkeys((*APPLIED, *wanted)))


def _is_plain(deletes: str) -> bool:
    """Return True if the condition selects exactly the changes with the operation ``delete``."""
    return deletes.replace(" ", "").replace('"', "'") == "operation='delete'"


class _Batch:
    """One batch in progress."""

    def __init__(self, df: DataFrame, ranges: DataFrame | None, target: Target, job: Job) -> None:
        self._df = df
        #: The ranges of ``df``, if tasks can read them directly.
        self._ranges = ranges
        self._target = target
        self._job = job
        self._names: Names = {}

    def run(self) -> Applied:
        """Apply the batch, with as many restarts as needed."""
        reasons: list[Restart] = []
        while True:
            fence = self._target.fence(self._job.pipeline, self._job.spool)
            self._job.span.check(fence)
            job = replace(self._job, fence=fence)
            applied = self._by_tasks(job) if job.is_plain else self._by_driver(job)
            if isinstance(applied, Applied):
                return replace(applied, names=self._names)
            _log.info("the batch starts over: %s", applied)
            # A column may be widened several times. Lacking the same again is no progress.
            is_stuck = isinstance(applied, ColumnsMissing) and applied in reasons
            reasons.append(applied)
            others = [each for each in reasons if not isinstance(each, ColumnsMissing)]
            if is_stuck or len(others) == _MOST_ATTEMPTS or len(reasons) == _MOST_RESTARTS:
                raise applied.final(self._job, len(reasons))

    def _by_tasks(self, job: Job) -> Applied | Restart:
        """Stage the batch in tasks, and commit the result."""
        parts = sorted(self._stage(job), key=lambda part: sort_key(part.ranges))
        is_done = False
        try:
            if not all(part.in_order for part in parts) or not are_in_order(
                [part.ranges for part in parts]
            ):
                self._df = self._df.repartitionByRange("_partition", "_ordinal")
                self._df = self._df.sortWithinPartitions("_partition", "_ordinal", "change")
                self._ranges = None
                return Unsorted()
            if any(part.is_reshaped for part in parts):
                return self._by_driver(job)
            lacking = lacking_of(parts)
            if lacking:
                self._target.evolve(lacking)
                return ColumnsMissing(lacking)
            problems = [each for part in parts for each in part.problems]
            if problems and not job.dead_letters:
                raise ApplyError(str(problems[0]))
            if job.moved() == job.fence and not any(part.rows > part.fenced for part in parts):
                return _applied(parts, Committed())
            try:
                done = self._target.commit(parts, replace(job, reread=self._reread))
            except RejectedChangeError:
                raise
            except MissingTableError as error:
                self._target.evolve(error.lacking)
                return ColumnsMissing(error.lacking)
            except ApplyError:
                # Apply changes one by one, to find the failing change or succeed.
                return self._by_driver(job)
            except StagingLostError as lost:
                return WorkLost(str(lost))
            is_done = done is not None
            return FenceMoved() if done is None else _applied(parts, done)
        finally:
            if not is_done:
                self._target.discard(parts)

    def _stage(self, job: Job) -> list[Staged]:
        target = self._target
        has_ranges = self._ranges is not None

        def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            found = NamesFound()
            changes = found.watch(batches_of(batches) if has_ranges else batches)
            for staged in target.stage(changes, job):
                yield _result(staged=staged.dump())
            yield _result(names=dump(found.names))

        df = self._df if self._ranges is None else self._ranges
        rows = df.mapInArrow(stage, "staged binary, names binary").collect()
        self._names = merged(load(bytes(row.names)) for row in rows if row.names is not None)
        return [Staged.load(bytes(row.staged)) for row in rows if row.staged is not None]

    def _reread(self, part: Staged) -> list[pa.RecordBatch]:
        """Return the changes that a task has staged as one part."""
        if self._ranges is None:
            conditions = [
                (F.col("_partition") == number) & F.col("_ordinal").between(first[0], last[0])
                for number, (first, last) in part.ranges.items()
            ]
            found: Iterable[pa.RecordBatch] = (
                self._df.where(reduce(or_, conditions)).toArrow().combine_chunks().to_batches()
            )
        else:
            ranges = self._ranges.toArrow().to_batches()
            found = batches_of(each for batch in ranges for each in overlapping(batch, part.ranges))
        own = (within(batch, part.ranges) for batch in found)
        return [batch for batch in own if batch.num_rows]

    def _changes(self) -> pa.Table:
        """Return the changes of the batch; those in ranges do not pass through Spark."""
        if self._ranges is None:
            return self._df.toArrow()
        names = (*APPLIED, "problem")
        found = batches_of(self._ranges.toArrow().to_batches())
        schema = pa.schema([CHANGES.arrow.field(name) for name in names])
        return pa.Table.from_batches([each.select(names) for each in found], schema)

    def _by_driver(self, job: Job) -> Applied | Restart:
        """Apply the batch in the driver."""
        table = self._changes().combine_chunks()
        if job.is_plain:
            table = table.sort_by([(name, "ascending") for name in APPLIED[:3]])
        batches = table.to_batches()
        found = NamesFound()
        for batch in batches:
            found.add(batch)
        self._names = found.names
        done = self._target.apply(batches, job)
        if done is None:
            return FenceMoved()
        if not isinstance(done, Committed):
            self._target.evolve(done)
            return ColumnsMissing(done)
        new = sum(beyond(batch, job.fence).num_rows for batch in batches)
        return Applied(
            table.num_rows,
            new,
            table.num_rows - new,
            done.written,
            done.deleted,
            done.dead_letters,
            done.conflicts,
        )


def _result(*, staged: bytes | None = None, names: bytes | None = None) -> pa.RecordBatch:
    """Return a row of the result of a task."""
    return pa.RecordBatch.from_pydict({"staged": [staged], "names": [names]}, _RESULT)


def _applied(parts: Sequence[Staged], done: Committed) -> Applied:
    return Applied(
        sum(part.rows for part in parts),
        sum(part.changes for part in parts),
        sum(part.fenced for part in parts),
        done.written,
        done.deleted,
        done.dead_letters,
        done.conflicts,
    )
