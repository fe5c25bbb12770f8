"""Common code of targets in files: tasks plan changes, and the driver rewrites files."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from stompkit.replication.sinks import ApplyError
from stompkit.replication.sql import Catalog, Owners
from stompkit.spark.fence import Fence, beyond, moved, ranges_of
from stompkit.spark.states import Problem, TableRules
from stompkit.spark.targets.base import (
    MOST_BYTES,
    Committed,
    Job,
    Lacking,
    NewColumn,
    Staged,
    chunks,
    letters_of,
)
from stompkit.spark.targets.database.tally import Tally
from stompkit.spark.targets.files.arrow import BACKEND, arrow_type, field_of
from stompkit.spark.targets.files.dead_letters import DEAD_LETTERS
from stompkit.spark.targets.files.held import (
    Held,
    Source,
    new_columns,
    replaced_columns,
    schema_with,
    sources_of,
    without,
)
from stompkit.spark.targets.files.incomplete import Incomplete
from stompkit.spark.targets.files.planner import FilePlanner
from stompkit.spark.targets.files.rewriting import TableRewriting, by_table
from stompkit.spark.targets.files.staged_work import LEAST_BYTES, Epoch, StagedFiles
from stompkit.spark.targets.planning.collapse import Collapse
from stompkit.spark.targets.planning.draft import Draft, problems_of
from stompkit.spark.targets.planning.evolve import check_new, missing_table
from stompkit.spark.targets.planning.plan import Op

__all__ = ["FileTarget"]

#: Maximum number of changes collapsed at once, which limits a task's memory.
_MOST_CHANGES: Final = 200_000


class _AheadError(Exception):
    """A table is ahead of the pipeline by other positions than when its changes were staged."""


class FileTarget(ABC):
    """Tables in files below one location, one for each table of the source."""

    def __init__(
        self,
        url: str,
        *,
        create: bool = False,
        evolve: bool = True,
        schema_map: Mapping[str, str] | None = None,
        table_map: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """Describe a target without accessing it.

        ``create``
            Create missing tables, from the columns in changes. Create a column again if its type
            has changed in the source, and the source sends all rows again.
        ``evolve``
            Add missing columns; no other column is dropped.
        """
        self.url = url
        #: URL, which has no secrets: they are options.
        self.name = url
        self._settings: dict[str, Any] = {
            "create": create,
            "evolve": evolve,
            "schema_map": dict(schema_map or {}),
            "table_map": dict(table_map or {}),
            **more,
        }
        self._catalog = Catalog(
            schema_map=self._settings["schema_map"],
            table_map=self._settings["table_map"],
            reserved=DEAD_LETTERS,
            backend=BACKEND,
            is_lossy=False,
            checks_foreign_keys=False,
            defers_foreign_keys=False,
        )
        #: The folder, if it is one of the local file system, which tasks have to see.
        self.folder: Path | None = None
        #: Stored owners of tables; and those with changes before the fence.
        self._owners: Owners = {}
        self._had: Owners = {}
        self._found: dict[str, Held | None] = {}
        #: True after a commit has removed what earlier jobs of the pipeline have left.
        self._is_clean = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the pickled form for tasks."""
        return _make, (type(self), self.url, self._settings, self._catalog.owners)

    # Implemented by each file format.

    @abstractmethod
    def prepare(self) -> None:
        """Create what pipelines need, and remove remains of crashes."""

    @abstractmethod
    def _load(self, pipeline: str, spool: str) -> tuple[dict[int, int], Owners]:
        """Return the fence, and the source tables that a pipeline has written to tables."""

    @abstractmethod
    def _open(self, name: str) -> Held | None:
        """Return the current state of a table."""

    @abstractmethod
    def _exclusive(self) -> AbstractContextManager[object]:
        """Lock out concurrent commits, as far as files can be locked."""

    @abstractmethod
    def _ahead_of(self, held: Held, job: Job) -> Fence:
        """Return the positions in which a table is beyond the pipeline's fence."""

    @abstractmethod
    def _make_table(self, name: str, schema: pa.Schema, key: tuple[str, ...]) -> None:
        """Create an empty table."""

    @abstractmethod
    def _add_columns(self, held: Held, columns: Sequence[pa.Field]) -> None:
        """Add columns to a table."""

    @abstractmethod
    def _reset_table(self, held: Held, schema: pa.Schema) -> None:
        """Remove all rows of a table, and give it columns of other types."""

    @abstractmethod
    def _staged(self) -> StagedFiles:
        """Return the folder for the work of tasks."""

    @abstractmethod
    def _commit(
        self,
        job: Job,
        tables: Sequence[TableRewriting],
        letters: Sequence[dict[str, Any]],
        ends: Fence,
    ) -> bool:
        """Commit tables and dead letters, and move the fence; return False to restart the batch."""

    @abstractmethod
    def dead_letters(self, pipeline: str, spool: str) -> list[dict[str, Any]]:
        """Return the rows of the table of dead letters, in the order of the spool."""

    # Called by the driver.

    def fence(self, pipeline: str, spool: str) -> dict[int, int]:
        """Return the ordinal of the last applied message, by partition, without side effects."""
        self._found.clear()
        fence, self._owners = self._load(pipeline, spool)
        # Without a fence, all changes are applied again.
        self._had = self._owners if fence else {}
        self._catalog.restore(self._owners)
        return fence

    def evolve(self, lacking: Lacking) -> None:
        """Create tables and columns; raises SchemaError if that is not allowed."""
        self._found.clear()
        with self._exclusive():
            for source, columns in lacking.items():
                self._evolve(source, list(columns.values()))
        self._found.clear()

    def _evolve(self, source: Source, columns: Sequence[NewColumn]) -> None:
        name = ".".join(filter(None, source))
        held = self._held(*source)
        if held is None:
            folder = self._name(*source)
            if folder is not None:
                check_new(source, columns, (None, folder), self._had)
            if folder is None or not self._settings["create"]:
                raise missing_table(name)
            key = tuple(each.name for each in columns if each.key)
            self._make_table(folder, pa.schema([field_of(each) for each in columns]), key)
            return
        replaced = replaced_columns(held, [each for each in columns if each.is_replaced])
        if replaced:
            # All rows are sent again.
            self._reset_table(held, schema_with(held, replaced))
            self._found.clear()
            held = self._held(*source)
            assert held is not None
        new = new_columns(held, name, columns, can_add=self._settings["evolve"])
        if new:
            self._add_columns(held, [pa.field(each.name, arrow_type(each)) for each in new])

    def commit(self, parts: Sequence[Staged], job: Job) -> Committed | None:
        """Apply parts in order, and move the fence."""
        with self._exclusive():
            if self.fence(job.pipeline, job.spool) != job.fence:
                return None
            problems = [each for part in parts for each in part.problems]
            ends = job.moved(part.ranges for part in parts)
            try:
                done = self._write(self._groups(parts, job), problems, ends, job)
            except _AheadError:
                return None
            if done is not None:
                self.discard(parts)
                if not self._is_clean or any(part.stored for part in parts):
                    self._staged().drop_past(Epoch.of(job.pipeline, job.spool, ends))
                    self._is_clean = True
        return done

    def _groups(self, parts: Iterable[Staged], job: Job) -> Iterator[list[Op]]:
        """Yield the operations of tasks in groups that fit into memory."""
        ops: list[Op] = []
        size = 0
        staged = self._staged()
        for part in parts:
            work = staged.get(part.stored, part.size) if part.stored else part.work
            if not work:
                continue
            planned, ahead = pickle.loads(work)
            if ahead != self._ahead(ahead, job):
                raise _AheadError
            ops += planned
            size += len(work)
            if size >= MOST_BYTES:
                yield ops
                ops, size = [], 0
        yield ops

    def apply(self, batches: Iterable[pa.RecordBatch], job: Job) -> Committed | Lacking | None:
        """Apply changes one by one, and move the fence."""
        if not job.is_plain:
            raise ApplyError(
                "targets in files have rows as they are now, in the order of the spool: neither"
                " sequence_by nor stored_as_scd_type = 2 is for them. To go on, leave these out,"
                " or apply the changes to a database"
            )
        batches = list(batches)
        with self._exclusive():
            if self.fence(job.pipeline, job.spool) != job.fence:
                return None
            tally = Tally(job)
            new = [beyond(batch, job.fence) for batch in batches]
            ahead = self._ahead(sources_of(new), job)
            collapse = Collapse(job.choice, self._rules, alone=True)
            for batch in new:
                collapse.add(without(batch, ahead))
            planner = self._planner()
            steps = collapse.steps()
            lacking = planner.lacking(planner.plan(steps, collapse))
            if lacking:
                return lacking
            tally.refuse(collapse.problems)
            plans = [planner.plan([step], None) for step in steps]
            incomplete = Incomplete((op for plan in plans for op in plan.ops), self._held)
            ops: list[Op] = []
            for step, plan in zip(steps, plans, strict=True):
                problems = planner.problems(step, plan)
                if not problems and (reason := incomplete.reason(plan.ops)):
                    problems = problems_of(step, reason)
                tally.refuse(problems)
                ops += [] if problems else plan.ops
            ends = job.moved([ranges_of(batches)[0]])
            return self._write([ops], tally.problems, ends, job)

    def _write(
        self, groups: Iterable[Sequence[Op]], problems: Sequence[Problem], ends: Fence, job: Job
    ) -> Committed | None:
        tables: dict[str, TableRewriting] = {}
        applied: set[Source] = set()
        try:
            for ops in groups:
                applied.update(op.table for op in ops)
                for name, own in by_table(ops, self._held).items():
                    held = self._found[name]
                    assert held is not None
                    tables.setdefault(name, TableRewriting(held)).apply(own)
            letters = letters_of(job.pipeline, job.spool, problems, datetime.now(UTC))
            made = list(tables.values())
            self._catalog.restore({**self._owners, **self._catalog.owned(applied)})
            if not self._commit(job, made, letters, ends):
                return None
        finally:
            for each in tables.values():
                each.clean()
        written, deleted = sum(each.written for each in made), sum(each.deleted for each in made)
        return Committed(written, deleted, len(letters))

    def bury(self, problems: Iterable[Problem], *, pipeline: str, spool: str) -> int:
        """Store only those dead letters that are not stored yet; return their number."""
        self.prepare()
        with self._exclusive():
            job = Job(pipeline, spool, fence=self.fence(pipeline, spool))
            new = [each for each in problems if each.place[1] > job.fence.get(each.place[0], -1)]
            ends = moved(
                job.fence, [{each.place[0]: (each.place[1:], each.place[1:])} for each in new]
            )
            letters = letters_of(pipeline, spool, new, datetime.now(UTC))
            if new and not self._commit(job, [], letters, ends):
                raise ApplyError(f"somebody else writes the dead letters of {pipeline!r}")
            return len(new)

    def discard(self, parts: Iterable[Staged]) -> None:
        """Remove the work of tasks, and clear the cached tables."""
        self._found.clear()
        names = [part.stored for part in parts if part.stored]
        if names:
            self._staged().drop(names)

    def close(self) -> None:
        """Clear the cached tables."""
        self._found.clear()

    # Called by tasks.

    def stage(self, batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[Staged]:
        """Plan changes for a later commit."""
        self._found.clear()
        for chunk in chunks(batches, _MOST_CHANGES):
            yield self._stage(chunk, job)

    def _stage(self, batches: Sequence[pa.RecordBatch], job: Job) -> Staged:
        ranges, in_order = ranges_of(batches)
        new = [beyond(batch, job.fence) for batch in batches]
        rows = sum(batch.num_rows for batch in batches)
        staged = Staged(ranges, in_order, rows, rows - sum(batch.num_rows for batch in new))
        if not in_order or staged.fenced == rows:
            return staged
        ahead = self._ahead(sources_of(new), job)
        draft = Draft(self._planner(), job, self._rules)
        draft.add([without(batch, ahead) for batch in new])
        draft.fill(staged)
        if not draft.is_over:
            work = pickle.dumps((draft.ops, ahead), pickle.HIGHEST_PROTOCOL)
            if len(work) >= LEAST_BYTES:
                epoch = Epoch.of(job.pipeline, job.spool, job.fence)
                staged.stored, staged.size = self._staged().put(work, epoch), len(work)
            else:
                staged.work = work
        return staged

    # Used by both.

    def _planner(self) -> FilePlanner:
        return FilePlanner(
            self._held, create=self._settings["create"], evolve=self._settings["evolve"]
        )

    @staticmethod
    def _rules(_schema: str, _table: str) -> TableRules:
        return TableRules()

    def _ahead(self, sources: Iterable[Source], job: Job) -> dict[Source, dict[int, int]]:
        """Return for each source table the positions beyond the fence."""
        found = {source: self._look(*source) for source in sources}
        return {
            source: {} if held is None else dict(self._ahead_of(held, job))
            for source, held in found.items()
        }

    def _held(self, schema: str, table: str) -> Held | None:
        """Return the table of changes; raises TablesClashError if another source table has it."""
        held = self._look(schema, table)
        if held is not None:
            self._catalog.claim((schema, table), (None, held.name))
        return held

    def _look(self, schema: str, table: str) -> Held | None:
        name = self._name(schema, table)
        if name is not None and name not in self._found:
            self._found[name] = self._open(name)
        return None if name is None else self._found[name]

    def _name(self, schema: str, table: str) -> str | None:
        """Return the target's name of a source table; ``None`` if its changes are ignored."""
        name = ".".join(filter(None, self._catalog.wanted(schema, table) or ()))
        return None if name in ("", DEAD_LETTERS) else name


def _make(
    kind: type[FileTarget], url: str, settings: Mapping[str, Any], owners: Owners
) -> FileTarget:
    """Create a target in a task."""
    target = kind(url, **settings)
    target._catalog.restore(owners)
    return target
