"""Resources of a process that works with a target in an SQL database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection

from stompkit.replication.sinks import ApplyError
from stompkit.replication.sql import (
    Batch,
    Catalog,
    Database,
    Statements,
    TargetTable,
    apply_batch,
    groups_of,
    ranks_of,
)
from stompkit.spark.states import Choice, Step, TableRules
from stompkit.spark.targets.base import Job, NewColumn
from stompkit.spark.targets.database.pipeline_tables import PipelineTables
from stompkit.spark.targets.database.staged_work import StagedWork
from stompkit.spark.targets.planning.collapse import Collapse
from stompkit.spark.targets.planning.evolve import marked, type_of, unfit
from stompkit.spark.targets.planning.plan import Op, Plan

__all__ = ["Session"]

_NAMES_SEPARATOR: Final = "\0"


class Session:
    """Resources of a process that works with a target."""

    def __init__(self, url: str, settings: Mapping[str, Any]) -> None:
        """Start unconnected."""
        self._settings = settings
        self.database = Database(url, settings["foreign_keys"])
        self.books = PipelineTables()
        self.work = StagedWork()
        backend = self.database.backend
        self.catalog = Catalog(
            schema_map=settings["schema_map"],
            table_map=settings["table_map"],
            reserved=self.books.fence.name,
            backend=backend,
            is_lossy=settings["lossy"],
            checks_foreign_keys=settings["foreign_keys"] != "off",
            defers_foreign_keys=settings["foreign_keys"] == "deferred",
        )
        dialect = self.database.engine.dialect
        #: Source tables whose changes are applied in this transaction.
        self.applied: set[tuple[str, str]] = set()
        self.statements = Statements(backend, dialect.paramstyle)
        #: The module for staging tables of this kind of database.
        self.copies: Any = None
        if backend == "postgresql" and dialect.driver == "psycopg":
            from stompkit.spark.targets.database import postgres

            self.copies = postgres
        elif backend == "mysql":
            from stompkit.spark.targets.database import mysql

            self.copies = mysql

    def find(self, connection: Connection, schema: str, table: str) -> TargetTable | None:
        """Return the target's table."""
        return self.catalog.find(connection, schema, table)

    def lock(self, connection: Connection, pipeline: str, spool: str) -> dict[int, int]:
        """Lock and return the fence; others may have stored owners of tables since."""
        fence = self.books.lock(connection, pipeline, spool)
        self.applied.clear()
        self.catalog.restore(self.books.owners(connection, pipeline))
        return fence

    def store(self, connection: Connection, job: Job, ends: Mapping[int, int]) -> None:
        """Move the locked fence, and store the owners of tables that are used first."""
        self.books.store(connection, job.pipeline, job.spool, job.fence, ends)
        known = self.books.owners(connection, job.pipeline)
        owners = {**known, **self.catalog.owned(self.applied)}
        if owners != known:
            self.books.store_owners(connection, job.pipeline, job.spool, owners)

    def rules(
        self, connection: Connection, batches: Iterable[pa.RecordBatch], choice: Choice
    ) -> Callable[[str, str], TableRules]:
        """Return the collapsing rules of the selected tables in the changes."""
        sources = [source for source in _sources(batches) if choice.has(*source)]
        found = {source: self.find(connection, *source) for source in sources}
        tables = {table.identity: table for table in found.values() if table is not None}
        groups = groups_of(list(tables.values()))
        ranks = ranks_of(tables.values())
        sizes: dict[int, int] = {}
        for group in groups.values():
            sizes[group] = sizes.get(group, 0) + 1
        made = {}
        for source, table in found.items():
            if table is None:
                made[source] = TableRules()
                continue
            group = groups[table.identity]
            is_linked = sizes[group] > 1 or table.identity in table.related
            rank = ranks[table.identity] if is_linked else 0
            made[source] = TableRules(group if is_linked else None, rank)
        return lambda schema, table: made.get((schema, table), TableRules())

    def plan_step(self, connection: Connection, step: Step) -> Plan:
        """Return the plan of one step for the target."""
        plan = Plan(lambda schema, table: self.find(connection, schema, table), self.backend)
        plan.add(step)
        return plan

    def plan(self, connection: Connection, steps: Iterable[Step], collapse: Collapse) -> Plan:
        """Return the plan of all steps for the target."""
        plan = Plan(lambda schema, table: self.find(connection, schema, table), self.backend)
        plan.resent.update(collapse.retyped)
        for step in steps:
            plan.add(step)
        for source, columns in collapse.schemas.items():
            table = self.find(connection, *source)
            if table is None:
                is_wanted = self._settings["create"] and bool(columns)
            else:
                is_new = any(table.column(name) is None for name in columns)
                is_wanted = self._settings["evolve"] and is_new
            if is_wanted:
                plan.schemas[source] = columns
        for source, again in collapse.retyped_columns() if self._settings["create"] else ():
            table = self.find(connection, *source)
            if table is not None and again:
                plan.replaced[source] = unfit(table, again, self.backend)
        for source, renamed in collapse.renamed.items():
            is_untold = source in collapse.untold
            plan.rename(source, renamed, collapse.schemas.get(source, ()), is_untold=is_untold)
        return plan

    @property
    def backend(self) -> str:
        """``sqlite``, ``postgresql`` or ``mysql``."""
        return self.database.backend

    @property
    def evolves(self) -> bool:
        """True if columns may be added or widened."""
        return bool(self._settings["evolve"])

    @staticmethod
    def lacking(plan: Plan) -> dict[tuple[str, str], dict[str, NewColumn]]:
        """Return the columns that the target lacks; declared types take precedence over values."""
        made: dict[tuple[str, str], dict[str, NewColumn]] = {}
        for source, columns in plan.lacking.items():
            key = plan.keys.get(source, ())
            made[source] = {
                name: NewColumn(name, type_of(values), name in key)
                for name, values in columns.items()
                if name in key or any(value is not None for value in values)
            }
        for source, told in plan.schemas.items():
            made[source] = {**made.get(source, {}), **told}
        for source, replaced in plan.replaced.items():
            made.setdefault(source, {}).update(
                {each.name: msgspec.structs.replace(each, is_replaced=True) for each in replaced}
            )
        for source, renamed in plan.renamed.items():
            own = made.setdefault(source, {})
            for new, was in renamed.items():
                column = own.get(new) or NewColumn(new, "text")
                own[new] = msgspec.structs.replace(column, was=was)
        return marked({source: columns for source, columns in made.items() if columns}, plan.resent)

    def do(self, connection: Connection, op: Op) -> int:
        """Run an operation; return the number of its rows."""
        table = self.catalog.known(*op.table)
        if table is None:
            raise ApplyError(f"the target has no table {'.'.join(filter(None, op.table))!r}")
        if any(name not in table.columns for name in (*op.key, *op.others)):
            raise ApplyError(f"the target's table {table.name!r} has lost a column")
        if op.stage:
            count: int = self.copies.apply_staged(connection, table, op)
            return count
        columns = [[table.columns[name] for name in names] for names in (op.key, op.others)]
        batch = Batch(op.kind, table, tuple(columns[0]), tuple(columns[1]), _NO_CAUSE, op.rows())
        apply_batch(connection, self.statements, batch)
        return op.count


#: The error context of a batch does not concern changes of rows.
_NO_CAUSE: Final[Any] = None


def _sources(batches: Iterable[pa.RecordBatch]) -> list[tuple[str, str]]:
    """Return the tables of the changes."""
    found: set[str] = set()
    for batch in batches:
        filled = [pc.fill_null(batch.column(name), "") for name in ("schema", "table")]
        names = pc.binary_join_element_wise(*filled, _NAMES_SEPARATOR)
        found.update(pc.unique(names).to_pylist())
    pairs = (name.partition(_NAMES_SEPARATOR) for name in sorted(found))
    return [(schema, table) for schema, _, table in pairs if table]
