"""Targets in SQL databases: PostgreSQL, SQLite, MariaDB and MySQL. Needs the extra ``sql``."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from stompkit.replication.sinks import ApplyProblem
from stompkit.replication.sinks.sql import SinkUnavailable
from stompkit.replication.sinks.sql.parts import Database, ForeignKeys, Rejected
from stompkit.spark._collapse import Collapse
from stompkit.spark.fence import beyond, ranges_of
from stompkit.spark.targets import _direct
from stompkit.spark.targets._evolve import evolve
from stompkit.spark.targets._session import Session
from stompkit.spark.targets.base import Committed, Job, Lacking, Staged, chunks

__all__ = ["SqlTarget"]

#: How many changes are collapsed at once: what bounds a task's memory.
_MOST_CHANGES: Final = 200_000


class SqlTarget:
    """Tables of an SQL database.

    Values are stored as the columns of the target have them, exactly or not at all, and columns
    that no change tells stay as they are: as :class:`~stompkit.replication.sinks.sql.SqlSink` does
    it, whose arguments of the same names these are.
    """

    def __init__(
        self,
        url: str,
        *,
        create: bool = False,
        evolve: bool = True,
        foreign_keys: ForeignKeys = "deferred",
        lossy: bool = False,
        schema_map: Mapping[str, str] | None = None,
        table_map: Mapping[str, str] | None = None,
    ) -> None:
        """Describe a target; nothing is connected to yet.

        ``create``
            Whether tables are made that the target lacks, by what changes tell of them.
        ``evolve``
            Whether columns are added that the target lacks; none is ever dropped.

        Raises ``ValueError`` for a URL that can't be read, or another kind of database.
        """
        self.url = url
        self._settings: dict[str, Any] = {
            "create": create,
            "evolve": evolve,
            "foreign_keys": foreign_keys,
            "lossy": lossy,
            "schema_map": dict(schema_map or {}),
            "table_map": dict(table_map or {}),
        }
        self._used: Session | None = None
        #: What tasks know the target's tables by: a new one has them look again.
        self._look = uuid4().hex
        # To say at once what is wrong with the URL.
        Database(url, foreign_keys).close()

    def __reduce__(self) -> tuple[Any, ...]:
        """What a task needs of it: no connection."""
        return _make, (self.url, self._settings, self._look)

    # What the driver does.

    def prepare(self) -> None:
        """Make the tables that pipelines need, and sweep what crashes have left."""
        session = self._session
        with session.database.transaction() as connection:
            is_missing = session.books.missing(connection)
        if is_missing:
            try:
                with session.database.transaction() as connection:
                    session.books.create(connection)
            except (Rejected, SinkUnavailable):
                # Another pipeline may have made them in between.
                with session.database.transaction() as connection:
                    if session.books.missing(connection):
                        raise
        if session.copies is not None:
            with session.database.transaction() as connection:
                session.copies.sweep(connection)
                session.copies.server_of(connection)

    def fence(self, pipeline: str, spool: str) -> dict[int, int]:
        """The ordinal of the last message that is applied, by partition."""
        session = self._session
        with session.database.transaction() as connection:
            return session.books.load(connection, pipeline, spool)

    def evolve(self, lacking: Lacking) -> None:
        """Make tables and columns; raises SchemaProblem where that is not allowed."""
        session = self._session
        self._forget()
        try:
            with session.database.transaction() as connection:
                evolve(
                    connection,
                    session.catalog,
                    lacking,
                    create=self._settings["create"],
                    add_columns=self._settings["evolve"],
                )
        finally:
            self._forget()

    def commit(self, parts: Sequence[Staged], job: Job) -> Committed | None:
        """Apply parts in their order, and move the fence, in one transaction."""
        try:
            return self._commit(parts, job)
        except (ApplyProblem, SinkUnavailable):
            # The tables may have become others since they were looked at.
            self._forget()
            raise

    def _commit(self, parts: Sequence[Staged], job: Job) -> Committed | None:
        session = self._session
        written = deleted = 0
        with session.database.transaction() as connection:
            if session.books.lock(connection, job.pipeline, job.spool) != job.fence:
                return None
            session.database.defer(connection)
            for part in parts:
                for op in pickle.loads(part.work) if part.work else ():
                    session.find(connection, *op.table)
                    count = session.do(connection, op)
                    if op.kind in ("delete", "delete_one"):
                        deleted += count
                    else:
                        written += count
            problems = [each for part in parts for each in part.problems]
            letters = session.books.bury(connection, job.pipeline, job.spool, problems)
            ends = job.moved(part.ranges for part in parts)
            session.books.store(connection, job.pipeline, job.spool, job.fence, ends)
            if session.copies is not None:
                session.copies.drop(connection, _tables(parts))
        return Committed(written, deleted, letters)

    def apply(self, batches: Iterable[pa.RecordBatch], job: Job) -> Committed | Lacking | None:
        """Apply changes one by one, and move the fence, in one transaction."""
        batches = list(batches)
        session = self._session
        self._forget()
        try:
            with session.database.transaction() as connection:
                if session.books.lock(connection, job.pipeline, job.spool) != job.fence:
                    return None
                session.database.defer(connection)
                new = [beyond(batch, job.fence) for batch in batches]
                rules = session.rules(connection, new)
                done = _direct.apply(connection, session, new, job, rules)
                ends = job.moved([ranges_of(batches)[0]])
                session.books.store(connection, job.pipeline, job.spool, job.fence, ends)
                return done
        except _direct.Lacks as lacks:
            return lacks.lacking

    def discard(self, parts: Iterable[Staged]) -> None:
        """Drop what was staged and is not going to be committed."""
        tables = _tables(parts)
        if tables and self._session.copies is not None:
            with self._session.database.transaction() as connection:
                self._session.copies.drop(connection, tables)

    def close(self) -> None:
        """Let go of connections."""
        if self._used is not None:
            self._used.database.close()
            self._used = None

    # What tasks do.

    def stage(self, batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[Staged]:
        """Make of changes what is committed later; nobody sees any of it yet."""
        for chunk in chunks(batches, _MOST_CHANGES):
            yield self._stage(chunk, job)

    def _stage(self, batches: Sequence[pa.RecordBatch], job: Job) -> Staged:
        ranges, in_order = ranges_of(batches)
        rows = sum(batch.num_rows for batch in batches)
        # Together: what changes of a row come to in the end is read once then.
        table = pa.Table.from_batches(batches).combine_chunks()
        new = [beyond(batch, job.fence) for batch in table.to_batches()]
        staged = Staged(ranges, in_order, rows, rows - sum(batch.num_rows for batch in new))
        if in_order and staged.fenced < rows:
            with _without_gc():
                self._make(staged, new, job)
            if staged.failures or staged.lacking:
                # The tables may have become others since they were looked at.
                self._session.catalog.forget()
                self._make(staged, new, job)
        return staged

    def _make(self, staged: Staged, batches: Sequence[pa.RecordBatch], job: Job) -> None:
        session = self._session
        with session.database.transaction() as connection:
            rules = session.rules(connection, batches)
            collapse = Collapse(job.choice, rules)
            for batch in batches:
                collapse.add(batch)
            staged.is_renamed = bool(collapse.renamed)
            if staged.is_renamed:
                return
            plan = session.plan(connection, collapse.steps(), collapse)
            staged.changes = collapse.changes
            staged.problems = collapse.problems
            staged.failures = plan.problems
            staged.lacking = session.lacking(plan)
            if staged.failures or staged.lacking:
                return
            if session.copies is not None:
                for op in plan.ops:
                    table = session.find(connection, *op.table)
                    if table is not None and session.copies.stage(connection, table, op):
                        staged.tables.append(op.stage)
        staged.work = pickle.dumps(plan.ops, pickle.HIGHEST_PROTOCOL)

    def _forget(self) -> None:
        """Look at the tables again, here and in tasks."""
        self._session.catalog.forget()
        self._look = uuid4().hex

    @property
    def _session(self) -> Session:
        if self._used is None:
            self._used = Session(self.url, self._settings)
        return self._used


@contextmanager
def _without_gc() -> Iterator[None]:
    """Don't look for garbage among very many new objects: it takes longer than to make them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _tables(parts: Iterable[Staged]) -> list[str]:
    return [name for part in parts for name in part.tables]


#: Sessions of the tasks of this process, and what they know tables by: looking at tables takes
#: longer than a small batch.
_SESSIONS: Final[dict[str, tuple[Session, str]]] = {}


def _make(url: str, settings: Mapping[str, Any], look: str) -> SqlTarget:
    """A target in a task."""
    target = SqlTarget(url, **settings)
    name = repr((url, sorted(settings.items())))
    session, last = _SESSIONS.get(name) or (Session(url, settings), "")
    if last != look:
        session.catalog.forget()
    _SESSIONS[name] = session, look
    target._used = session
    target._look = look
    return target
