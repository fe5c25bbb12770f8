"""Planning by tasks, and running what they have staged, in one transaction."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa
from sqlalchemy import Connection

from stompkit.replication.sinks import ApplyError
from stompkit.replication.sql import RejectedRowError
from stompkit.spark.fence import beyond
from stompkit.spark.states import Place, Problem, Step
from stompkit.spark.targets.base import Job, Lacking, RejectedChangeError, Staged
from stompkit.spark.targets.database import direct
from stompkit.spark.targets.database.session import Session
from stompkit.spark.targets.planning.collapse import Collapse
from stompkit.spark.targets.planning.draft import problems_of
from stompkit.spark.targets.planning.isolate import isolate
from stompkit.spark.targets.planning.plan import Op, Plan

__all__ = ["SqlPlanner", "StagedRun"]


class SqlPlanner:
    """Plans steps for a database."""

    def __init__(self, connection: Connection, session: Session) -> None:
        """Read the tables with a connection."""
        self._connection = connection
        self._session = session

    def plan(self, steps: Iterable[Step], collapse: Collapse | None) -> Plan:
        """Return the plan of steps; with ``collapse`` also the declared columns of tables."""
        if collapse is not None:
            return self._session.plan(self._connection, steps, collapse)
        (step,) = steps
        return self._session.plan_step(self._connection, step)

    def lacking(self, plan: Plan) -> Lacking:
        """Return the columns that the target lacks."""
        return self._session.lacking(plan)

    def suspects(self, plan: Plan) -> Collection[Place] | None:
        """Return the positions of rejected changes; None if there are none."""
        return {problem.place for problem in plan.problems} or None

    def problems(self, step: Step, plan: Plan) -> Sequence[Problem]:
        """Return the problems of a step with advice; raises MissingTableError."""
        if not plan.problems:
            return ()
        problems = problems_of(step, plan.problems[0].reason, plan.problems)
        return direct.unless_wider(self._connection, self._session, step, problems)


class StagedRun:
    """Runs the operations of tasks, and finds changes that the database rejects."""

    def __init__(self, connection: Connection, session: Session, job: Job) -> None:
        """Start within a transaction that has locked the fence."""
        self._connection = connection
        self._session = session
        self._job = job
        self.written = 0
        self.deleted = 0
        #: Number of dead letters stored already, and those that are to be stored.
        self.dead_letters = 0
        self.problems: list[Problem] = []

    def apply(self, part: Staged) -> None:
        """Run the operations of a part.

        If the database rejects one, the changes of the part are applied in smaller and smaller
        groups. Raises :class:`~stompkit.spark.targets.RejectedChangeError` for a change that is not
        to be a dead letter, and MissingTableError.
        """
        reread = self._job.reread
        try:
            if reread is None:
                self._run(self._ops(part))
            else:
                self._run_or_undo(self._ops(part))
        except RejectedRowError:
            if reread is None:
                raise
            batches = [beyond(batch, self._job.fence) for batch in reread(part)]
            isolate(batches, self._attempt, self._alone, failed=())
        else:
            self.problems += part.problems

    def _ops(self, part: Staged) -> Sequence[Op]:
        """Return the operations of a task."""
        octets = part.work
        if part.stored:
            octets = self._session.work.get(self._connection, part.stored, part.size)
        ops: Sequence[Op] = pickle.loads(octets) if octets else ()
        return ops

    def _run_or_undo(self, ops: Sequence[Op]) -> None:
        """Run operations, or none of them; raises RejectedRowError."""
        database = self._session.database
        before = self.written, self.deleted
        try:
            with database.errors(), database.savepoint(self._connection):
                self._run(ops)
        except RejectedRowError:
            self.written, self.deleted = before
            raise

    def _run(self, ops: Iterable[Op]) -> None:
        session = self._session
        for op in ops:
            session.find(self._connection, *op.table)
            count = session.do(self._connection, op)
            session.applied.add(op.table)
            if op.kind in ("delete", "delete_one"):
                self.deleted += count
            else:
                self.written += count

    def _attempt(self, batches: Sequence[pa.RecordBatch]) -> Collection[Place] | None:
        """Apply changes together; return the suspects if the database rejects some."""
        session = self._session
        collapse = Collapse(
            self._job.choice, session.rules(self._connection, batches, self._job.choice)
        )
        for batch in batches:
            collapse.add(batch)
        plan = session.plan(self._connection, collapse.steps(), collapse)
        if plan.problems or session.lacking(plan):
            return {problem.place for problem in plan.problems}
        try:
            self._run_or_undo(plan.ops)
        except RejectedRowError:
            return ()
        self.problems += collapse.problems
        return None

    def _alone(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Apply changes one by one."""
        session = self._session
        rules = session.rules(self._connection, batches, self._job.choice)
        try:
            done = direct.apply(self._connection, session, batches, self._job, rules)
        except ApplyError as error:
            raise RejectedChangeError(str(error)) from None
        self.written += done.written
        self.deleted += done.deleted
        self.dead_letters += done.dead_letters
