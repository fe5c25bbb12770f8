"""Plans of changes for tables in files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from stompkit.replication.sql import TargetTable
from stompkit.spark.states import Place, Problem, Step
from stompkit.spark.targets.base import Lacking, NewColumn
from stompkit.spark.targets.database.session import Session
from stompkit.spark.targets.files.arrow import BACKEND
from stompkit.spark.targets.files.held import Held, check_renames, replaced_columns
from stompkit.spark.targets.files.row_changeset import refused
from stompkit.spark.targets.planning.collapse import Collapse
from stompkit.spark.targets.planning.draft import problems_of
from stompkit.spark.targets.planning.plan import Plan
from stompkit.spark.targets.planning.widen import made_anew, other_kinds

__all__ = ["FilePlanner"]


class FilePlanner:
    """Plans steps for tables in files."""

    def __init__(
        self, held: Callable[[str, str], Held | None], *, create: bool, evolve: bool
    ) -> None:
        """Use a function that returns the current state of a table by schema and name."""
        self._held = held
        self._create = create
        self._evolve = evolve

    def plan(self, steps: Iterable[Step], collapse: Collapse | None) -> Plan:
        """Return the plan of steps; with ``collapse`` also the declared columns of tables."""
        plan = Plan(self._table, BACKEND)
        if collapse is not None:
            plan.resent.update(collapse.retyped, collapse.renamed.keys() - collapse.untold)
        for step in steps:
            plan.add(step)
        if collapse is not None:
            for source, columns in collapse.schemas.items():
                if self._is_wanted(self._table(*source), columns):
                    plan.schemas[source] = columns
            check_renames(collapse, self._held)
            for source, again in collapse.retyped_columns() if self._create else ():
                held = self._held(*source)
                if held is not None:
                    plan.replaced[source] = replaced_columns(held, again)
        return plan

    def lacking(self, plan: Plan) -> Lacking:
        """Return the columns that the target lacks."""
        return Session.lacking(plan)

    def suspects(self, plan: Plan) -> Collection[Place] | None:
        """Return the positions of rejected changes, as far as known; None if there are none."""
        if plan.problems:
            return {problem.place for problem in plan.problems}
        return () if any(refused(plan.ops)) else None

    def problems(self, step: Step, plan: Plan) -> Sequence[Problem]:
        """Return the problems of a step, with advice about columns that reject values."""
        reasons = [problem.reason for problem in plan.problems]
        reasons = reasons or [str(problem) for problem in refused(plan.ops)]
        if not reasons:
            return ()
        problems = problems_of(step, reasons[0], plan.problems)
        held = self._held(*step.table)
        columns = [] if held is None else other_kinds(held.table, step.states, BACKEND)
        if not columns:
            return problems
        hint = f". To go on, {made_anew(columns)}; or name it in `except_column_list`"
        return [each._replace(reason=each.reason + hint) for each in problems]

    def _table(self, schema: str, table: str) -> TargetTable | None:
        held = self._held(schema, table)
        return None if held is None else held.table

    def _is_wanted(self, table: TargetTable | None, columns: Mapping[str, NewColumn]) -> bool:
        if table is None:
            return self._create and bool(columns)
        return self._evolve and any(table.column(name) is None for name in columns)
