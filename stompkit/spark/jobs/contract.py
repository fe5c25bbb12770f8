"""The interface of jobs: processing of batches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from stompkit.spark.fence import Span
from stompkit.spark.names import Names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Aggregating", "Done", "Work"]


class Done(NamedTuple):
    """Result of a batch."""

    #: Number of new changes.
    changes: int
    #: Number of changes stored as dead letters.
    dead_letters: int = 0
    #: Number of changes too late for their minute, which were counted separately.
    late: int = 0
    #: Tables in the batch with their columns, selected or not; empty if the job selects none.
    names: Names = {}  # noqa: RUF012 (never changed)


class Work(Protocol):
    """A job."""

    @property
    def target(self) -> str:
        """Name of what the job writes to, without secrets."""

    @property
    def setting(self) -> str:
        """Setting of the file that names the target, such as ``target.url``."""

    @property
    def passing(self) -> tuple[type[Exception], ...]:
        """Errors of a batch for which a retry may succeed."""

    def folders(self) -> Mapping[str, Path]:
        """Return the local folders that tasks use besides the spool, by what is in them."""

    def apply(self, df: DataFrame, batch_id: int, spool: str, span: Span) -> Done:
        """Process one batch of the spool with this id; a repetition has no further effect.

        ``span`` contains the bounds of the batch. Raises
        :class:`~stompkit.spark.fence.TargetBehindError` if the target ends before the batch begins.
        """

    def finish(self, spool: str) -> None:
        """Finish a completed batch; remaining work is done after the next one."""

    def fence(self, spool: str) -> dict[int, int]:
        """Return the ordinal of the last processed message, by partition, without side effects."""

    def explain(self, error: Exception) -> str:
        """Return why a batch has failed permanently, and how to resolve it."""

    def close(self) -> None:
        """Close the connections."""


@runtime_checkable
class Aggregating(Protocol):
    """A job that processes the result of an aggregating query over changes."""

    def query(self, changes: DataFrame) -> DataFrame:
        """Return the query for the output mode ``update``."""
