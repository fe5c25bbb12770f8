"""Applying changes in the driver: one by one, or in another order than that of the spool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlalchemy import Connection

from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.replication.sql import RejectedRowError, StaleRowError
from stompkit.spark.states import Problem, Step, TableRules
from stompkit.spark.targets.base import Committed, Job
from stompkit.spark.targets.database.ages import Ages
from stompkit.spark.targets.database.history import HISTORY_COLUMNS, History
from stompkit.spark.targets.database.tally import Tally
from stompkit.spark.targets.planning.collapse import Collapse
from stompkit.spark.targets.planning.draft import MissingTableError, problems_of
from stompkit.spark.targets.planning.plan import Plan
from stompkit.spark.targets.planning.widen import made_anew, narrow, other_kinds, statement_of, told

if TYPE_CHECKING:
    from stompkit.spark.targets.database.session import Session

__all__ = ["apply", "unless_wider"]

Rules = Callable[[str, str], TableRules]


def apply(
    connection: Connection,
    session: Session,
    batches: Sequence[pa.RecordBatch],
    job: Job,
    rules: Rules,
) -> Committed:
    """Apply new changes one by one, in the order of the job."""
    tally = Tally(job)
    admit = None
    ages: Ages | None = None
    if job.sequence_by != "_ordinal":
        ages = Ages(job)
        batches = ages.sort(batches, tally)
        admit = ages.look_up(connection, session.books, batches, rules)
    collapse = Collapse(job.choice, rules, alone=True, admit=admit)
    for batch in batches:
        collapse.add(batch)
    tally.refuse(collapse.problems)
    history = History(batches) if job.scd_type == 2 else None
    for step, plan in plan_all(connection, session, collapse, job):
        if plan.problems:
            problems = problems_of(step, plan.problems[0].reason, plan.problems)
            tally.refuse(unless_wider(connection, session, step, problems))
            continue
        try:
            alone = session.database.savepoint(connection) if job.dead_letters else nullcontext()
            with session.database.errors(), alone:
                if history is not None:
                    history.do(connection, session, step, plan)
                else:
                    for op in plan.ops:
                        session.do(connection, op)
        except StaleRowError as stale:
            # The tables are read again when the batch is retried.
            raise SinkUnavailableError(f"the tables have become others: {stale}") from None
        except RejectedRowError as rejected:
            problems = problems_of(step, str(rejected))
            tally.refuse(unless_wider(connection, session, step, problems))
        else:
            session.applied.add(step.table)
            tally.count(plan)
    if ages is not None:
        tally.conflicts = ages.conflicts
        ages.store(connection, session.books)
    return tally.done(connection, session)


def unless_wider(
    connection: Connection, session: Session, step: Step, problems: Sequence[Problem]
) -> Sequence[Problem]:
    """Return the remaining problems with advice; raises MissingTableError for narrow columns."""
    table = session.find(connection, *step.table)
    if table is None:
        return problems
    columns = narrow(table, step.states, session.backend)
    if (
        columns
        and session.evolves
        and all(statement_of(connection, table, each) for each in columns.values())
    ):
        raise MissingTableError({step.table: columns})
    others = other_kinds(table, step.states, session.backend)
    if session.backend == "sqlite":
        way = made_anew(others)
    else:
        way = told(connection, table, columns.values() or others)
    can_evolve = columns and not session.evolves
    then = "open the target with evolve=True" if can_evolve else "name it in `except_column_list`"
    hint = f". To go on, {way}; or {then}" if way else ""
    return [problem._replace(reason=problem.reason + hint) for problem in problems]


def plan_all(
    connection: Connection, session: Session, collapse: Collapse, job: Job
) -> list[tuple[Step, Plan]]:
    """Return each step with its plan; raises :class:`MissingTableError`."""
    # All steps together first, which finds everything that is missing.
    steps = collapse.steps()
    lacking = session.lacking(session.plan(connection, steps, collapse))
    if lacking:
        if job.scd_type == 2:
            for source, columns in lacking.items():
                if session.find(connection, *source) is None:
                    columns.update(HISTORY_COLUMNS)
        raise MissingTableError(lacking)
    return [(step, session.plan_step(connection, step)) for step in steps]
