"""What targets in files have in common: tasks plan, and the driver rewrites files."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs as pa_fs

from stompkit.replication.sinks import ApplyProblem
from stompkit.replication.sinks.sql import SinkUnavailable
from stompkit.replication.sinks.sql.parts import Catalog, SchemaProblem, TargetTable
from stompkit.spark._collapse import Collapse
from stompkit.spark._states import Problem, Step, TableRules
from stompkit.spark.fence import Fence, beyond, moved, ranges_of
from stompkit.spark.targets._arrow import BACKEND, arrow_type, described, field_of
from stompkit.spark.targets._direct import problems_of
from stompkit.spark.targets._plan import Op, Plan
from stompkit.spark.targets._rewrite import File, Rewrite
from stompkit.spark.targets._row_changeset import RowChangeset, moved_keys
from stompkit.spark.targets._session import Session
from stompkit.spark.targets._tally import Tally
from stompkit.spark.targets._widen import made_anew, other_kinds
from stompkit.spark.targets.base import (
    Committed,
    Job,
    Lacking,
    NewColumn,
    Staged,
    chunks,
    letters_of,
)

__all__ = ["DEAD_LETTERS", "LETTERS", "FileTarget", "Held", "in_order"]

DEAD_LETTERS: Final = "stompkit_pipeline_dead_letters"
#: The columns of the table of dead letters.
LETTERS: Final = pa.schema(
    [
        ("pipeline", pa.string()),
        ("spool", pa.string()),
        ("partition_no", pa.int32()),
        ("ordinal", pa.int64()),
        ("change_no", pa.int32()),
        ("table_name", pa.string()),
        ("operation", pa.string()),
        ("row_key", pa.string()),
        ("problem", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
#: How many changes are collapsed at once: what bounds a task's memory.
_MOST_CHANGES: Final = 200_000

Source = tuple[str, str]
#: Where tables are whose commits are ahead of the pipeline's: a crash was between two of them.
Ahead = Mapping[Source, Fence]


@dataclass(frozen=True)
class Held:
    """A table as it is at the moment."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...]
    files: Sequence[File]
    folder: pa_fs.FileSystem
    #: What else whoever has it needs to know.
    more: Any = None
    table: TargetTable = field(init=False)

    def __post_init__(self) -> None:
        """Describe it for those who plan."""
        object.__setattr__(self, "table", described(self.name, self.schema, self.key))


class FileTarget(ABC):
    """Tables in files below one place, each of which is a table of the source."""

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
        """Describe a target; nothing is looked at yet.

        ``create``
            Whether tables are made that the target lacks, by what changes tell of them.
        ``evolve``
            Whether columns are added that the target lacks; none is ever dropped.
        """
        self.url = url
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
        self._found: dict[str, Held | None] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """What a task needs of it."""
        return _make, (type(self), self.url, self._settings)

    # What each kind of files does in its own way.

    @abstractmethod
    def prepare(self) -> None:
        """Make what pipelines need, and sweep what crashes have left."""

    @abstractmethod
    def _load(self, pipeline: str, spool: str) -> dict[int, int]:
        """The fence; empty where nothing is there yet."""

    @abstractmethod
    def _open(self, name: str) -> Held | None:
        """A table as it is now."""

    @abstractmethod
    def _exclusive(self) -> AbstractContextManager[object]:
        """Keep others out who would commit at the same time, as far as files can be locked."""

    @abstractmethod
    def _ahead_of(self, held: Held, job: Job) -> Fence:
        """Where a table is beyond the pipeline's fence."""

    @abstractmethod
    def _make_table(self, name: str, schema: pa.Schema, key: tuple[str, ...]) -> None:
        """Make a table without rows."""

    @abstractmethod
    def _add_columns(self, held: Held, columns: Sequence[pa.Field]) -> None:
        """Add columns to a table."""

    @abstractmethod
    def _commit(
        self,
        job: Job,
        overlays: Mapping[str, RowChangeset],
        letters: Sequence[dict[str, Any]],
        ends: Fence,
    ) -> bool:
        """Write rows and dead letters, and move the fence; ``False`` to begin anew."""

    @abstractmethod
    def dead_letters(self, pipeline: str, spool: str) -> list[dict[str, Any]]:
        """The rows of the table of dead letters, in the order of the spool."""

    # What the driver does.

    def fence(self, pipeline: str, spool: str) -> dict[int, int]:
        """The ordinal of the last message that is applied, by partition; it makes nothing."""
        self._found.clear()
        return self._load(pipeline, spool)

    def evolve(self, lacking: Lacking) -> None:
        """Make tables and columns; raises SchemaProblem where that is not allowed."""
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
            if folder is None or not self._settings["create"]:
                raise SchemaProblem(
                    f"the target has no table {name!r}. To go on, open the target with create=True,"
                    " or name in `tables` those that are to be applied"
                )
            key = tuple(each.name for each in columns if each.key)
            self._make_table(folder, pa.schema([field_of(each) for each in columns]), key)
            return
        new = [each for each in columns if held.table.column(each.name) is None]
        if not new:
            return
        names = ", ".join(f"{each.name} ({each.type})" for each in new)
        if any(each.key for each in new):
            raise SchemaProblem(
                f"the target's table {name!r} lacks a column of the key: {names}."
                " To go on, name the key in `keys`"
            )
        if not self._settings["evolve"]:
            raise SchemaProblem(
                f"the target's table {name!r} lacks {names}. To go on, open the target with"
                " evolve=True, or name them in `except_column_list`"
            )
        self._add_columns(held, [pa.field(each.name, arrow_type(each)) for each in new])

    def commit(self, parts: Sequence[Staged], job: Job) -> Committed | None:
        """Apply parts in their order, and move the fence."""
        with self._exclusive():
            if self.fence(job.pipeline, job.spool) != job.fence:
                return None
            ops: list[Op] = []
            for part in parts:
                if not part.work:
                    continue
                planned, ahead = pickle.loads(part.work)
                if ahead != self._ahead(ahead, job):
                    return None
                ops += planned
            problems = [each for part in parts for each in part.problems]
            return self._write(ops, problems, job.moved(part.ranges for part in parts), job)

    def apply(self, batches: Iterable[pa.RecordBatch], job: Job) -> Committed | Lacking | None:
        """Apply changes one by one, and move the fence."""
        if not job.is_plain:
            raise ApplyProblem(
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
            ahead = self._ahead(_sources(new), job)
            collapse = Collapse(job.choice, self._rules, alone=True)
            for batch in new:
                collapse.add(_without(batch, ahead))
            steps = collapse.steps()
            lacking = Session.lacking(self._plan(steps, collapse))
            if lacking:
                return lacking
            tally.refuse(collapse.problems)
            ops: list[Op] = []
            for step in steps:
                plan = self._plan([step])
                reasons = [problem.reason for problem in plan.problems]
                reasons = reasons or [str(problem) for problem in _refused(plan.ops)]
                if reasons:
                    tally.refuse(self._with_advice(step, reasons[0], plan.problems))
                else:
                    ops += plan.ops
            ends = job.moved([ranges_of(batches)[0]])
            return self._write(ops, tally.problems, ends, job)

    def _with_advice(self, step: Step, reason: str, own: Sequence[Problem]) -> list[Problem]:
        """Problems of a step, with what to do where columns can't hold values."""
        problems = problems_of(step, reason, own)
        held = self._held(*step.table)
        columns = [] if held is None else other_kinds(held.table, step.states, BACKEND)
        if not columns:
            return problems
        hint = f". To go on, {made_anew(columns)}; or name it in `except_column_list`"
        return [each._replace(reason=each.reason + hint) for each in problems]

    def _write(
        self, ops: Sequence[Op], problems: Sequence[Problem], ends: Fence, job: Job
    ) -> Committed | None:
        by_table: dict[str, list[Op]] = defaultdict(list)
        for op in ops:
            held = self._held(*op.table)
            if held is None:
                raise ApplyProblem(f"the target has no table {'.'.join(filter(None, op.table))!r}")
            if any(name not in held.table.columns for name in (*op.key, *op.others)):
                raise ApplyProblem(f"the target's table {held.name!r} has lost a column")
            by_table[held.name].append(op)
        overlays = {name: self._overlay(name, own) for name, own in by_table.items()}
        letters = letters_of(job.pipeline, job.spool, problems, datetime.now(UTC))
        if not self._commit(job, overlays, letters, ends):
            return None
        written, deleted = (
            sum(getattr(each, count) for each in overlays.values())
            for count in ("written", "deleted")
        )
        return Committed(written, deleted, len(letters))

    def bury(self, problems: Iterable[Problem], *, pipeline: str, spool: str) -> int:
        """Write down dead letters that are not there yet, and nothing else; gives how many."""
        self.prepare()
        with self._exclusive():
            job = Job(pipeline, spool, fence=self.fence(pipeline, spool))
            new = [each for each in problems if each.place[1] > job.fence.get(each.place[0], -1)]
            ends = moved(
                job.fence, [{each.place[0]: (each.place[1:], each.place[1:])} for each in new]
            )
            letters = letters_of(pipeline, spool, new, datetime.now(UTC))
            if new and not self._commit(job, {}, letters, ends):
                raise ApplyProblem(f"somebody else writes the dead letters of {pipeline!r}")
            return len(new)

    def _overlay(self, name: str, ops: Sequence[Op]) -> RowChangeset:
        overlay = RowChangeset(name)
        held = self._found[name]
        assert held is not None
        for names, keys in moved_keys(ops).items():
            try:
                found = Rewrite(held.folder, held.schema).find(held.files, names, keys)
            except OSError as error:
                raise SinkUnavailable(str(error)) from error
            overlay.know(names, found)
        for op in ops:
            overlay.do(op)
        return overlay

    def discard(self, parts: Iterable[Staged]) -> None:
        """Forget the tables: that is all that tasks leave, who write no files."""
        self._found.clear()

    def close(self) -> None:
        """Forget the tables."""
        self._found.clear()

    # What tasks do.

    def stage(self, batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[Staged]:
        """Plan what is committed later."""
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
        ahead = self._ahead(_sources(new), job)
        collapse = Collapse(job.choice, self._rules)
        for batch in new:
            collapse.add(_without(batch, ahead))
        staged.is_renamed = bool(collapse.renamed)
        if staged.is_renamed:
            return staged
        plan = self._plan(collapse.steps(), collapse)
        staged.changes = collapse.changes
        staged.problems = collapse.problems
        staged.failures = plan.problems
        staged.lacking = Session.lacking(plan)
        if not staged.failures and not staged.lacking:
            staged.work = pickle.dumps((plan.ops, ahead), pickle.HIGHEST_PROTOCOL)
        return staged

    # What both need.

    def _plan(self, steps: Iterable[Step], collapse: Collapse | None = None) -> Plan:
        """What is done; with ``collapse`` also what tables are to have by its changes."""
        plan = Plan(self._table, BACKEND)
        for step in steps:
            plan.add(step)
        for source, columns in (collapse.schemas if collapse is not None else {}).items():
            if self._is_wanted(self._table(*source), columns):
                plan.schemas[source] = columns
        if collapse is not None:
            self._rename(collapse)
        return plan

    def _rename(self, collapse: Collapse) -> None:
        """See that the new names of columns can be followed, which files have no place for.

        Where rows are told again a column of the new name is as good.
        """
        for source, renamed in collapse.renamed.items():
            held = self._held(*source)
            is_untold = source in collapse.untold
            for new, names in renamed.items() if held is not None else ():
                assert held is not None
                there = [name for name in names if held.table.column(name) is not None]
                if not there or held.table.column(new) is not None:
                    continue
                if not is_untold and not any(name in held.key for name in there):
                    continue
                way = (
                    f"write the table anew with a column {new!r} in its place"
                    if is_untold
                    else "remove the table from the target, and open that with create=True: all"
                    " rows are told again behind this change"
                )
                raise SchemaProblem(
                    f"the source calls the column {there[0]!r} of the table"
                    f" {'.'.join(filter(None, source))!r} {new!r} now, and columns of files keep"
                    f" their names. To go on, {way}"
                )

    def _is_wanted(self, table: TargetTable | None, columns: Mapping[str, NewColumn]) -> bool:
        if table is None:
            return self._settings["create"] and bool(columns)
        return self._settings["evolve"] and any(table.column(name) is None for name in columns)

    @staticmethod
    def _rules(_schema: str, _table: str) -> TableRules:
        return TableRules()

    def _ahead(self, sources: Iterable[Source], job: Job) -> dict[Source, dict[int, int]]:
        """Where the tables of sources are, those that are beyond the fence, and the others."""
        made = {}
        for source in sources:
            held = self._held(*source)
            made[source] = dict(self._ahead_of(held, job)) if held is not None else {}
        return made

    def _table(self, schema: str, table: str) -> TargetTable | None:
        held = self._held(schema, table)
        return None if held is None else held.table

    def _held(self, schema: str, table: str) -> Held | None:
        name = self._name(schema, table)
        if name is None:
            return None
        if name not in self._found:
            self._found[name] = self._open(name)
        return self._found[name]

    def _name(self, schema: str, table: str) -> str | None:
        """What the target calls a source's table; ``None`` where its changes go nowhere."""
        wanted = self._catalog.wanted(schema, table)
        name = ".".join(filter(None, wanted or ()))
        return None if name in ("", DEAD_LETTERS) else name


def in_order(rows: Iterable[dict[str, Any]], pipeline: str, spool: str) -> list[dict[str, Any]]:
    """The dead letters of one pipeline and spool, in the order of the spool."""
    own = [row for row in rows if (row["pipeline"], row["spool"]) == (pipeline, spool)]
    return sorted(own, key=lambda row: (row["partition_no"], row["ordinal"], row["change_no"]))


def _make(kind: type[FileTarget], url: str, settings: Mapping[str, Any]) -> FileTarget:
    """A target in a task."""
    return kind(url, **settings)


def _refused(ops: Iterable[Op]) -> Iterator[ApplyProblem]:
    """What files are no good for."""
    for op in ops:
        try:
            RowChangeset(".".join(filter(None, op.table))).do(op)
        except ApplyProblem as problem:
            yield problem


def _sources(batches: Iterable[pa.RecordBatch]) -> list[Source]:
    """The tables that changes are about."""
    found: dict[Source, None] = {}
    for batch in batches:
        names = [batch.column(name).dictionary_encode().to_pylist() for name in ("schema", "table")]
        found.update(dict.fromkeys(zip(*names, strict=True)))
    made = dict.fromkeys((schema or "", table or "") for schema, table in found)
    return [source for source in made if source[1]]


def _without(batch: pa.RecordBatch, ahead: Ahead) -> pa.RecordBatch:
    """The rows that the tables do not have yet."""
    if not any(ahead.values()):
        return batch
    names = ("schema", "table", "_partition", "_ordinal")
    rows = zip(*[batch.column(name).to_pylist() for name in names], strict=True)
    nowhere: Fence = {}
    is_new = [
        ordinal > ahead.get((schema or "", table or ""), nowhere).get(partition, -1)
        for schema, table, partition, ordinal in rows
    ]
    return batch.filter(pa.array(is_new, pa.bool_()))
