"""What a job does with each batch, whichever job it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from stompkit.spark.fence import Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Aggregating", "Done", "Work"]


class Done(NamedTuple):
    """What has become of a batch."""

    #: Changes that were new.
    changes: int
    #: Changes that can't be applied, and were written down.
    dead_letters: int = 0
    #: Changes that came too late to be counted with their minute, and were counted apart.
    late: int = 0


class Work(Protocol):
    """A job."""

    @property
    def passing(self) -> tuple[type[Exception], ...]:
        """What a batch fails with that may pass, so that it is tried again."""

    def apply(self, df: DataFrame, batch_id: int, spool: str, span: Span) -> Done:
        """Do it for one batch of the spool that has this id; again, it has no further effect.

        ``span`` is where the batch begins and ends. Raises
        :class:`~stompkit.spark.fence.TargetBehind` where the target ends before it begins.
        """

    def finish(self, spool: str) -> None:
        """Do what comes after a batch that is done and counted; at the next one, what is left."""

    def fence(self, spool: str) -> dict[int, int]:
        """The ordinal of the last message that is done, by partition; it makes nothing."""

    def explain(self, error: Exception) -> str:
        """Why a batch has failed for good, and what to do about it."""

    def close(self) -> None:
        """Let go of connections."""


@runtime_checkable
class Aggregating(Protocol):
    """A job whose batches are what a query with a state of its own says of changes."""

    def query(self, changes: DataFrame) -> DataFrame:
        """The query, for the output mode ``update``."""
