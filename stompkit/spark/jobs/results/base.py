"""Storage of the results of the job *analytics*: its tables, and their updates.

A batch contains the current counts of minutes, not increments, so applying it again has no effect.
Late changes are the exception. Therefore the results include the position up to which they go, and
late changes before that are not counted again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol

from stompkit.spark.jobs.results.counting import Counted, Lag
from stompkit.spark.jobs.settings import PipelineError

__all__ = [
    "CHANGES",
    "KEYS",
    "LAG",
    "TABLES",
    "Mark",
    "Results",
    "Row",
    "Spec",
    "merged",
    "ordered",
]

#: A row: the minute in seconds since 1970, and the other columns.
Row = tuple[Any, ...]


class Spec(NamedTuple):
    """A table of results; the first column is always ``minute``."""

    name: str
    #: Names and types of the other columns; the first ``keys`` of them identify a row of a minute.
    columns: dict[str, type[str] | type[int] | type[float]]
    keys: int


CHANGES: Final = Spec(
    "changes", {"table_name": str, "operation": str, "changes": int, "late": int}, 2
)
KEYS: Final = Spec("top_keys", {"table_name": str, "place": int, "row_key": str, "changes": int}, 2)
LAG: Final = Spec(
    "lag",
    {"changes": int, **{name: float for name in Lag._fields if name != "changes"}},
    0,
)
TABLES: Final = (CHANGES, KEYS, LAG)


@dataclass(frozen=True)
class Mark:
    """Position up to which results go."""

    #: Spark's id of the checkpoint from which counting continues.
    query: str
    spool: str
    #: Ordinal of the last message, by partition.
    ordinals: dict[int, int] = field(default_factory=dict)

    def after(self, last: Mark | None, place: str) -> Mark:
        """Return the mark of a batch that follows ``last``.

        Raises PipelineError if counting cannot continue from there.
        """
        if last is None:
            return self
        if (last.query, last.spool) != (self.query, self.spool):
            what = "checkpoint" if last.spool == self.spool else "spool"
            raise PipelineError(
                f"{place} has what was counted with another {what}, and counts cannot go on without"
                " it: bring it back, or start over under another name of the pipeline, with other"
                " results in [analytics]"
            )
        return replace(self, ordinals={**last.ordinals, **self.ordinals})


class Results(Protocol):
    """Tables of results of a pipeline."""

    def apply(self, counted: Counted, mark: Mark) -> None:
        """Write the result of a batch durably and atomically.

        Raises PipelineError if it does not match the stored results, and the errors in
        :attr:`passing`.
        """

    def mark(self) -> Mark | None:
        """Return the mark of the results, without creating storage."""

    def rows(self, spec: Spec, since: int) -> list[Row]:
        """Return the rows of a table from a minute on, in order, without creating storage."""

    def latest(self) -> int | None:
        """Return the last minute with changes."""

    @property
    def passing(self) -> tuple[type[Exception], ...]:
        """Errors for which a retry may succeed."""

    def close(self) -> None:
        """Close the connections."""


def merged(spec: Spec, there: Iterable[Row], counted: Counted, minutes: set[int]) -> list[Row]:
    """Return the rows of ``minutes`` after a batch, in order; ``there`` are their former rows."""
    rows = {row[: spec.keys + 1]: row for row in there}
    if spec is CHANGES:
        return _merged_changes(rows, counted, minutes)
    new: dict[Row, Row] = {}
    if spec is LAG:
        new = {(minute,): (minute, *lag) for minute, lag in counted.lag.items()}
    else:
        # A key that is no longer among the most frequent ones is removed.
        gone = [key for key in rows if (key[0], key[1]) in counted.keys]
        for key in gone:
            del rows[key]
        for (minute, table), keys in counted.keys.items():
            for place, (row_key, changes) in enumerate(keys, 1):
                new[minute, table, place] = (minute, table, place, row_key, changes)
    rows.update({key: row for key, row in new.items() if row[0] in minutes})
    return ordered(spec, rows.values())


def _merged_changes(rows: dict[Row, Row], counted: Counted, minutes: set[int]) -> list[Row]:
    counts: dict[tuple[int, str, str], tuple[int, int]] = {}
    for minute, table, operation, changes, late in rows.values():
        counts[minute, table, operation] = changes, late
    for (minute, table), by_operation in counted.changes.items():
        for operation, changes in by_operation.items():
            _, late = counts.get((minute, table, operation), (0, 0))
            counts[minute, table, operation] = changes, late
    for place, more in counted.late.items():
        changes, late = counts.get(place, (0, 0))
        counts[place] = changes, late + more
    found: list[Row] = [(*place, *both) for place, both in counts.items() if place[0] in minutes]
    return ordered(CHANGES, found)


def ordered(spec: Spec, rows: Iterable[Row]) -> list[Row]:
    """Return rows in the order of a table."""

    def place(row: Row) -> Any:
        return row[: spec.keys + 1]

    return sorted(rows, key=place)
