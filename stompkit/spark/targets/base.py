"""What every target can do, and what tasks and driver tell each other about it."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec
import pyarrow as pa

from stompkit.spark._states import Choice, Problem
from stompkit.spark.fence import Fence, Point, Ranges, Span, moved

__all__ = [
    "Committed",
    "Job",
    "Lacking",
    "NewColumn",
    "Staged",
    "StagingLost",
    "Target",
    "chunks",
    "letters_of",
]


class StagingLost(Exception):
    """The target does not have what tasks have staged there; nothing is applied.

    ``str()`` says what is lost. The batch is staged again.
    """


class NewColumn(msgspec.Struct, frozen=True):
    """A column that a target lacks, as changes tell of it."""

    name: str
    #: As changes with the operation ``schema`` have it: ``int``, ``text``, ``decimal``...
    type: str
    key: bool = False
    precision: int | None = None
    scale: int | None = None
    length: int | None = None
    #: Whether the source says so; else it is a guess, from values.
    is_told: bool = False
    #: Whether an interval is one of time only, such as MySQL's TIME.
    is_clock: bool = False
    #: What the target calls it, where the source has given it another name since.
    was: str = ""


#: The columns that tables lack, by schema and name of the source.
Lacking = Mapping[tuple[str, str], Mapping[str, NewColumn]]


@dataclass(frozen=True)
class Job:
    """What is done with the changes of one batch."""

    #: What the fence is kept under: 1 to 100 characters.
    pipeline: str
    #: The spool's id.
    spool: str = ""
    choice: Choice = field(default_factory=Choice)
    #: Whether changes that can't be applied are written down, and the others are applied.
    dead_letters: bool = False
    #: What changes of a row are in order by: ordinals, or a column of the changes or of the rows.
    sequence_by: str = "_ordinal"
    #: 1: rows are as they are now. 2: what they were is kept, too.
    scd_type: Literal[1, 2] = 1
    #: How long it is remembered that a row is gone, where older changes can come late; seconds.
    tombstones_s: float = 30 * 86_400.0
    #: Where the pipeline has been when the batch was begun.
    fence: Fence = field(default_factory=dict)
    #: Where the batch begins and ends in the spool, as far as that is known.
    span: Span = field(default_factory=Span)

    def moved(self, parts: Iterable[Ranges] = ()) -> dict[int, int]:
        """The fence when the batch is applied, of which these parts have rows."""
        return self.span.moved(moved(self.fence, parts))

    @property
    def is_plain(self) -> bool:
        """Whether tasks can do the work: rows are as they are now, in the order of ordinals."""
        return self.scd_type == 1 and self.sequence_by == "_ordinal"


@dataclass
class Staged:
    """What a task has made of some changes that follow each other."""

    #: The first and the last change of each partition.
    ranges: dict[int, tuple[Point, Point]]
    #: Whether the changes came in their order; nothing is made of others.
    in_order: bool = True
    rows: int = 0
    #: Rows that are applied already.
    fenced: int = 0
    changes: int = 0
    #: What the target understands.
    work: bytes = b""
    #: Tables of the target that hold some of it.
    tables: list[str] = field(default_factory=list)
    #: Changes that nobody can understand; nothing was made of them.
    problems: list[Problem] = field(default_factory=list)
    #: What is left of rows that the target can't hold; nothing was made of anything then.
    failures: list[Problem] = field(default_factory=list)
    #: Whether columns get other names in it: what comes before has to be read with what comes
    #: behind, so the driver does it. Nothing was made of anything then.
    is_renamed: bool = False
    #: Columns that the target lacks; nothing was made of anything then.
    lacking: dict[tuple[str, str], dict[str, NewColumn]] = field(default_factory=dict)

    def dump(self) -> bytes:
        """As octets, for :meth:`load` in another process of the same job."""
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def load(octets: bytes) -> Staged:
        """The reverse of :meth:`dump`."""
        staged = pickle.loads(octets)
        assert isinstance(staged, Staged)
        return staged


@dataclass(frozen=True)
class Committed:
    """What a commit has done."""

    #: Rows that were written, each counted once for each time that it had to be.
    written: int = 0
    deleted: int = 0
    dead_letters: int = 0
    #: Changes that came too late: the row was newer.
    conflicts: int = 0


class Target(Protocol):
    """A store that batches of changes are applied to.

    It is pickled to be used in tasks: connections are made when they are needed. ``prepare``,
    ``fence``, ``evolve``, ``commit``, ``apply`` and ``discard`` are called by the driver, ``stage``
    by tasks.
    """

    def prepare(self) -> None:
        """Make what the pipeline needs in the target, and sweep what crashes have left."""

    def fence(self, pipeline: str, spool: str) -> dict[int, int]:
        """The ordinal of the last message that is applied, by partition."""

    def stage(self, batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[Staged]:
        """Make of changes what is committed later; nobody sees any of it yet."""

    def evolve(self, lacking: Lacking) -> None:
        """Make tables and columns; raises SchemaProblem where that is not allowed."""

    def commit(self, parts: Sequence[Staged], job: Job) -> Committed | None:
        """Apply parts in their order, and move the fence, in one transaction.

        Returns ``None`` where the fence is not where ``job`` has it: somebody else was at work, and
        nothing is done. Raises :class:`StagingLost` where not all that tasks have staged is there,
        :class:`~stompkit.replication.sinks.ApplyProblem` where the target refuses something, and
        any other exception for what may pass.
        """

    def apply(self, batches: Iterable[pa.RecordBatch], job: Job) -> Committed | Lacking | None:
        """Apply changes one by one, and move the fence, in one transaction.

        The way for what tasks can't do, and to find out which change is refused. Returns what the
        target lacks, having done nothing, where that is something; else as :meth:`commit`.
        """

    def discard(self, parts: Iterable[Staged]) -> None:
        """Drop what was staged and is not going to be committed."""

    def close(self) -> None:
        """Let go of connections."""


def chunks(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches in groups of so many changes, about; each has some."""
    chunk: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            chunk.append(batch)
            rows += batch.num_rows
        if rows >= most:
            yield chunk
            chunk, rows = [], 0
    if chunk:
        yield chunk


def letters_of(
    pipeline: str, spool: str, problems: Iterable[Problem], at: datetime
) -> list[dict[str, Any]]:
    """The rows of a table of dead letters, one for each change."""
    rows = {
        each.place: {
            "pipeline": pipeline,
            "spool": spool,
            "partition_no": each.place[0],
            "ordinal": each.place[1],
            "change_no": each.place[2],
            "table_name": each.table,
            "operation": each.operation,
            "row_key": each.key,
            "problem": each.reason,
            "at": at,
        }
        for each in problems
    }
    return list(rows.values())
