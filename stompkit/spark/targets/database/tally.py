"""Counts of one batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from stompkit.replication.sinks import ApplyError
from stompkit.spark.states import Problem
from stompkit.spark.targets.base import Committed, Job
from stompkit.spark.targets.planning.plan import Plan

if TYPE_CHECKING:
    from stompkit.spark.targets.database.session import Session

__all__ = ["Tally"]


class Tally:
    """Counts operations, and collects changes that cannot be applied."""

    def __init__(self, job: Job) -> None:
        """Start with zero counts."""
        self._job = job
        self.written = 0
        self.deleted = 0
        self.conflicts = 0
        self.problems: list[Problem] = []

    def refuse(self, problems: Iterable[Problem]) -> None:
        """Store changes as dead letters, or stop with an error."""
        for problem in problems:
            if not self._job.dead_letters:
                raise ApplyError(str(problem))
            self.problems.append(problem)

    def count(self, plan: Plan) -> None:
        """Count the operations of a plan."""
        for op in plan.ops:
            if op.kind in ("delete", "delete_one"):
                self.deleted += op.count
            else:
                self.written += op.count

    def done(self, connection: Connection, session: Session) -> Committed:
        """Write the dead letters, and return the counts."""
        job = self._job
        letters = session.books.bury(connection, job.pipeline, job.spool, self.problems)
        return Committed(self.written, self.deleted, letters, self.conflicts)
