"""Reasons to restart a batch, and the errors to raise when restarts do not help."""

from __future__ import annotations

from dataclasses import dataclass

from stompkit.replication.sinks import ApplyError
from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.spark.targets import Job, Lacking

__all__ = ["ColumnsMissing", "FenceMoved", "Restart", "Unsorted", "WorkLost"]


@dataclass(frozen=True)
class Restart:
    """Reason to restart a batch."""

    def final(self, job: Job, attempts: int) -> Exception:
        """Return the error to raise after so many attempts."""
        return ApplyError(
            f"the pipeline {job.pipeline!r} has begun a batch {attempts} times and cannot apply it:"
            f" {self}. {self._advice()}"
        )

    def _advice(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class FenceMoved(Restart):
    """Another process has moved the fence."""

    def __str__(self) -> str:
        return "each time its fence in the target was moved meanwhile"

    def _advice(self) -> str:
        return "Is it running more than once? Stop all but one, or give them different names"


@dataclass(frozen=True)
class Unsorted(Restart):
    """The changes were not in the order of the spool."""

    def __str__(self) -> str:
        return "its changes are not in the order of the spool, and sorting them did not help"

    def _advice(self) -> str:
        return "Does the query change _partition, _ordinal or change, or give rows twice?"


@dataclass(frozen=True)
class ColumnsMissing(Restart):
    """The target lacked tables or columns, or they were too narrow; the driver has changed that."""

    lacking: Lacking

    def __str__(self) -> str:
        what = ", ".join(
            f"{'.'.join(filter(None, table))} ({', '.join(sorted(columns))})"
            for table, columns in sorted(self.lacking.items())
        )
        return f"tasks do not find {what} in the target, where the driver has it"

    def _advice(self) -> str:
        return (
            "Do the executors see another file or another server under the target's URL?"
            " An SQLite file has to be on a disk that they share with the driver"
        )


@dataclass(frozen=True)
class WorkLost(Restart):
    """The data staged by tasks was lost."""

    what: str

    def __str__(self) -> str:
        return self.what

    def final(self, job: Job, attempts: int) -> Exception:
        """Return an error that allows a retry: a crashed server may recover."""
        return SinkUnavailableError(f"{attempts} times in a row: {self.what}")
