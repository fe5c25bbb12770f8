"""Planning of changes by a task, without those that the target rejects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from stompkit.spark.states import Place, Problem, Step, TableRules
from stompkit.spark.targets.base import Job, Lacking, NewColumn, Staged
from stompkit.spark.targets.planning.collapse import Collapse
from stompkit.spark.targets.planning.evolve import merged
from stompkit.spark.targets.planning.isolate import isolate
from stompkit.spark.targets.planning.plan import Op, Plan

__all__ = ["Draft", "MissingTableError", "Planner", "problems_of"]

Rules = Callable[[str, str], TableRules]


class MissingTableError(Exception):
    """The target lacks columns or tables; no change is applied."""

    def __init__(self, lacking: Lacking) -> None:
        """Store the missing columns."""
        super().__init__(lacking)
        self.lacking = lacking


class Planner(Protocol):
    """Plans steps for one kind of target."""

    def plan(self, steps: Iterable[Step], collapse: Collapse | None) -> Plan:
        """Return the plan of steps; with ``collapse`` also the declared columns of tables."""

    def lacking(self, plan: Plan) -> Lacking:
        """Return the columns that the target lacks."""

    def suspects(self, plan: Plan) -> Collection[Place] | None:
        """Return the positions of rejected changes, as far as known; None if there are none."""

    def problems(self, step: Step, plan: Plan) -> Sequence[Problem]:
        """Return the problems of a step with advice; raises :class:`MissingTableError`."""


class Draft:
    """The operations that a task plans for some changes."""

    def __init__(self, planner: Planner, job: Job, rules: Rules) -> None:
        """Start without operations."""
        self._planner = planner
        self._job = job
        self._rules = rules
        self.ops: list[Op] = []
        self.problems: list[Problem] = []
        self.lacking: dict[tuple[str, str], dict[str, NewColumn]] = {}
        #: Missing tables of which the source sends all rows again.
        self.resent: set[tuple[str, str]] = set()
        #: Number of changes of selected tables.
        self.changes = 0
        self.is_reshaped = False

    @property
    def is_over(self) -> bool:
        """True if the operations cannot be committed."""
        return bool(self.lacking) or self._has_failed

    @property
    def _has_failed(self) -> bool:
        """True if no other missing column is of interest."""
        return self.is_reshaped or (bool(self.problems) and not self._job.dead_letters)

    def attempt(self, batches: Sequence[pa.RecordBatch]) -> Collection[Place] | None:
        """Plan changes together; return the suspects if the target rejects some."""
        if self.is_over:
            return None
        collapse = Collapse(self._job.choice, self._rules)
        for batch in batches:
            collapse.add(batch)
        if collapse.renamed or collapse.retyped:
            self.is_reshaped = True
            return None
        plan = self._planner.plan(collapse.steps(), collapse)
        self.lacking = merged([self.lacking, self._planner.lacking(plan)])
        self.resent |= plan.resent
        if self.lacking:
            return None
        suspects = self._planner.suspects(plan)
        if suspects is None:
            self.ops += plan.ops
            self.problems += collapse.problems
            self.changes += collapse.changes
        return suspects

    def add(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Plan changes, without those that the target rejects."""
        isolate(batches, self.attempt, self._alone)

    def _alone(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Plan changes one by one, or only find what the target lacks for them, too."""
        if self._has_failed:
            return
        collapse = Collapse(self._job.choice, self._rules, alone=True)
        for batch in batches:
            collapse.add(batch)
        self.problems += collapse.problems
        self.changes += collapse.changes
        for step in collapse.steps():
            plan = self._planner.plan([step], None)
            lacking = self._planner.lacking(plan)
            if not lacking:
                try:
                    problems = self._planner.problems(step, plan)
                except MissingTableError as error:
                    lacking = error.lacking
                else:
                    self.problems += problems
                    self.ops += [] if problems else plan.ops
            self.lacking = merged([self.lacking, lacking])

    def fill(self, staged: Staged) -> None:
        """Store the result, except for the operations."""
        staged.is_reshaped = self.is_reshaped
        staged.changes = self.changes
        staged.problems = sorted(self.problems, key=lambda problem: problem.place)
        staged.lacking = self.lacking
        staged.resent = self.resent


def problems_of(step: Step, reason: str, own: Iterable[Problem] = ()) -> list[Problem]:
    """Return a problem for each row of a rejected step; ``own`` are the known problems."""
    known = {problem.place: problem for problem in own}
    return [known.get(state.place) or step.problem(state, reason) for state in step.states]
