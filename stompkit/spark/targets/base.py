"""The interface of targets, and the data exchanged by tasks and driver."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Protocol

import msgspec
import pyarrow as pa

from stompkit._common.moved import renamed
from stompkit.replication.sinks import ApplyError
from stompkit.spark.fence import Fence, Point, Ranges, Span, moved
from stompkit.spark.states import Choice, Problem

__all__ = [
    "MOST_BYTES",
    "Committed",
    "Job",
    "Lacking",
    "NewColumn",
    "RejectedChangeError",
    "Staged",
    "StagingLostError",
    "Target",
    "chunks",
    "letters_of",
]

#: Default maximum size in bytes of the changes that are collapsed at once.
MOST_BYTES: Final = 64 * 1024 * 1024


class StagingLostError(Exception):
    """Data staged by tasks is missing in the target; no change is applied.

    ``str()`` describes the lost data. The batch is staged again.
    """


class RejectedChangeError(ApplyError):
    """The target rejects a change, which ``str()`` names; the batch is not applied."""


class NewColumn(msgspec.Struct, frozen=True):
    """A column that a target lacks, as described by changes."""

    name: str
    #: Type name of changes with the operation ``schema``: ``int``, ``text``, ``decimal``...
    type: str
    key: bool = False
    precision: int | None = None
    scale: int | None = None
    length: int | None = None
    #: True if the source declares the column; otherwise its type is inferred from values.
    is_told: bool = False
    #: True for an interval of time only, such as MySQL's TIME.
    is_clock: bool = False
    #: Current name in the target, if the source has renamed the column.
    was: str = ""
    #: True if the target's column of this name cannot hold the values of this one. It is created
    #: again, since the source sends all rows again.
    is_replaced: bool = False
    #: True if the source sends all rows of the table again, so that a table that is gone misses
    #: none of them.
    is_resent: bool = False


#: Missing columns of tables, by schema and name of the source.
Lacking = Mapping[tuple[str, str], Mapping[str, NewColumn]]


@dataclass(frozen=True)
class Job:
    """Parameters for applying one batch."""

    #: Name of the fence: 1 to 100 characters.
    pipeline: str
    #: Id of the spool.
    spool: str = ""
    choice: Choice = field(default_factory=Choice)
    #: True if failing changes are stored as dead letters, and the others are applied.
    dead_letters: bool = False
    #: Order of the changes of a row: ordinals, or a column of the changes or of the rows.
    sequence_by: str = "_ordinal"
    #: 1: only current rows are kept. 2: their former versions are kept, too.
    scd_type: Literal[1, 2] = 1
    #: Time in seconds for which tombstones of deleted rows are kept, in case older changes arrive.
    tombstones_s: float = 30 * 86_400.0
    #: Fence of the pipeline at the start of the batch.
    fence: Fence = field(default_factory=dict)
    #: Bounds of the batch in the spool, if known.
    span: Span = field(default_factory=Span)
    #: Function that returns the changes of a part once more, for a commit. The target uses it to
    #: find the changes that it rejects.
    reread: Callable[[Staged], Sequence[pa.RecordBatch]] | None = None

    def moved(self, parts: Iterable[Ranges] = ()) -> dict[int, int]:
        """Return the fence after the batch is applied; *parts* are the ranges with rows."""
        return self.span.moved(moved(self.fence, parts))

    @property
    def is_plain(self) -> bool:
        """True if tasks can do the work: only current rows, ordered by ordinals."""
        return self.scd_type == 1 and self.sequence_by == "_ordinal"


@dataclass
class Staged:
    """The result of a task for consecutive changes."""

    #: Positions of the first and the last change of each partition.
    ranges: dict[int, tuple[Point, Point]]
    #: True if the changes were in order; unordered changes are not staged.
    in_order: bool = True
    rows: int = 0
    #: Number of rows applied before.
    fenced: int = 0
    changes: int = 0
    #: Work in the target's own format; empty if it is stored in the target.
    work: bytes = b""
    #: Name of stored work, and its size in bytes.
    stored: str = ""
    size: int = 0
    #: Staging tables in the target.
    tables: list[str] = field(default_factory=list)
    #: Changes that cannot be decoded, or that the target rejects. They are not staged. If they are
    #: not stored as dead letters, nothing is staged.
    problems: list[Problem] = field(default_factory=list)
    #: True if columns are renamed or replaced. Earlier changes then depend on later ones, so the
    #: driver applies the batch, and nothing is staged.
    is_reshaped: bool = False
    #: Missing columns of the target; in that case nothing is staged.
    lacking: dict[tuple[str, str], dict[str, NewColumn]] = field(default_factory=dict)
    #: Missing tables of which the source sends all rows again.
    resent: set[tuple[str, str]] = field(default_factory=set)

    def dump(self) -> bytes:
        """Return the pickled form, for :meth:`load` in another process of the same job."""
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def load(octets: bytes) -> Staged:
        """Return the unpickled result; the reverse of :meth:`dump`."""
        staged = pickle.loads(octets)
        assert isinstance(staged, Staged)
        return staged


@dataclass(frozen=True)
class Committed:
    """Result of a commit."""

    #: Number of row writes; a row written several times counts each time.
    written: int = 0
    deleted: int = 0
    dead_letters: int = 0
    #: Number of changes dropped because the row was newer.
    conflicts: int = 0


class Target(Protocol):
    """A store to which batches of changes are applied.

    It is pickled for use in tasks, and connects on demand. The driver calls ``prepare``, ``fence``,
    ``evolve``, ``commit``, ``apply`` and ``discard``; tasks call ``stage``.
    """

    def prepare(self) -> None:
        """Create what the pipeline needs in the target, and remove remains of crashes."""

    def fence(self, pipeline: str, spool: str) -> dict[int, int]:
        """Return the ordinal of the last applied message, by partition."""

    def stage(self, batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[Staged]:
        """Stage changes for a later commit, invisible to readers."""

    def evolve(self, lacking: Lacking) -> None:
        """Create tables and columns; raises SchemaError if that is not allowed."""

    def commit(self, parts: Sequence[Staged], job: Job) -> Committed | None:
        """Apply parts in order, and move the fence, in one transaction.

        Returns ``None`` without any change if the fence differs from that of ``job``: another
        process has moved it. Raises :class:`StagingLostError` if staged data is missing,
        :class:`~stompkit.replication.sinks.ApplyError` if the target rejects a change, or
        :class:`RejectedChangeError` if it is known which, and other exceptions for errors that may
        be temporary.
        """

    def apply(self, batches: Iterable[pa.RecordBatch], job: Job) -> Committed | Lacking | None:
        """Apply changes one by one, and move the fence, in one transaction.

        This is for work that tasks cannot do, and to identify a rejected change. Returns the
        missing columns of the target, without any change; otherwise as :meth:`commit`.
        """

    def discard(self, parts: Iterable[Staged]) -> None:
        """Discard staged data that will not be committed."""

    def close(self) -> None:
        """Close the connections."""


def chunks(
    batches: Iterable[pa.RecordBatch], most: int, most_bytes: int = MOST_BYTES
) -> Iterator[list[pa.RecordBatch]]:
    """Yield batches in non-empty groups of about *most* changes, or *most_bytes* if these are less.

    Both limit the memory that a group takes, which is a multiple of its size.
    """
    chunk: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            chunk.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
        if rows >= most or size >= most_bytes:
            yield chunk
            chunk, rows, size = [], 0, 0
    if chunk:
        yield chunk


def letters_of(
    pipeline: str, spool: str, problems: Iterable[Problem], at: datetime
) -> list[dict[str, Any]]:
    """Return the rows for a table of dead letters, one for each change."""
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


renamed(
    __name__,
    StagingLost="StagingLostError",
)
