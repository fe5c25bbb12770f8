"""Where the job *analytics* keeps what it has counted: which tables there are, and how they change.

A batch says what minutes are now, not what is to be added to them, so the same once more changes
nothing; except for what came late. So with the results it is kept up to which message they go, and
what is before is not counted as late again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol

from stompkit.spark.jobs._counting import Counted, Lag
from stompkit.spark.jobs.settings import PipelineProblem

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

#: A row: the minute, in seconds since 1970, and the other columns.
Row = tuple[Any, ...]


class Spec(NamedTuple):
    """A table of results; all have ``minute`` as their first column."""

    name: str
    #: Names and types of the others; the first ``keys`` of them identify a row of a minute.
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
    """Up to where results go."""

    #: Spark's name for the checkpoint that counting goes on from.
    query: str
    spool: str
    #: The ordinal of the last message, by partition.
    ordinals: dict[int, int] = field(default_factory=dict)

    def after(self, last: Mark | None, place: str) -> Mark:
        """The mark of a batch that comes after ``last``.

        Raises PipelineProblem where counting can't go on from there.
        """
        if last is None:
            return self
        if (last.query, last.spool) != (self.query, self.spool):
            what = "checkpoint" if last.spool == self.spool else "spool"
            raise PipelineProblem(
                f"{place} has what was counted with another {what}, and counts can't go on without"
                " it: bring it back, or begin anew under another name of the pipeline, with other"
                " results in [analytics]"
            )
        return replace(self, ordinals={**last.ordinals, **self.ordinals})


class Results(Protocol):
    """Tables of results of a pipeline."""

    def apply(self, counted: Counted, mark: Mark) -> None:
        """Write what a batch says, durably, all of it or nothing.

        Raises PipelineProblem where it does not fit to what is there, and what :attr:`passing`
        has.
        """

    def mark(self) -> Mark | None:
        """Up to where results go; nothing is made."""

    def rows(self, spec: Spec, since: int) -> list[Row]:
        """What a table has from a minute on, in its order; nothing is made."""

    def latest(self) -> int | None:
        """The last minute that has changes."""

    @property
    def passing(self) -> tuple[type[Exception], ...]:
        """What may go better when it is tried again."""

    def close(self) -> None:
        """Let go of connections."""


def merged(spec: Spec, there: Iterable[Row], counted: Counted, minutes: set[int]) -> list[Row]:
    """What ``minutes`` are with a batch, in order; ``there`` is all that these have had."""
    rows = {row[: spec.keys + 1]: row for row in there}
    if spec is CHANGES:
        return _merged_changes(rows, counted, minutes)
    new: dict[Row, Row] = {}
    if spec is LAG:
        new = {(minute,): (minute, *lag) for minute, lag in counted.lag.items()}
    else:
        # A key that others have overtaken is not to stay.
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
    """Rows in the order of a table."""

    def place(row: Row) -> Any:
        return row[: spec.keys + 1]

    return sorted(rows, key=place)
