"""Targets in SQL databases: PostgreSQL, SQLite, MariaDB and MySQL. Requires the extra ``sql``."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
from sqlalchemy import Connection

from stompkit._common.collector import without_collection
from stompkit.replication.sinks import ApplyError
from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.replication.sql import Database, ForeignKeys, Owners, RejectedRowError
from stompkit.spark.fence import beyond, ranges_of
from stompkit.spark.targets.base import Committed, Job, Lacking, Staged, chunks
from stompkit.spark.targets.database import direct
from stompkit.spark.targets.database.session import Session
from stompkit.spark.targets.database.staged_run import SqlPlanner, StagedRun
from stompkit.spark.targets.database.staged_work import LEAST_BYTES
from stompkit.spark.targets.database.staging_tables import of_owner, owner_of
from stompkit.spark.targets.planning.draft import Draft, MissingTableError
from stompkit.spark.targets.planning.evolve import evolve

__all__ = ["SqlTarget"]

#: Maximum number of changes collapsed at once, which limits a task's memory.
_MOST_CHANGES: Final = 200_000
#: Errors of the database after which remains are dropped later.
_FAILURES: Final = (RejectedRowError, SinkUnavailableError)


class _Left(NamedTuple):
    """Staging tables, and names of stored work."""

    tables: set[str]
    stored: set[str]


class SqlTarget:
    """Tables of an SQL database.

    Values are stored exactly as the target's columns represent them, or rejected. Columns that a
    change does not contain are kept. This is the behaviour of
    :class:`~stompkit.replication.sinks.sql.SqlSink`, whose arguments have the same names.
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
        """Describe a target without connecting to it.

        ``create``
            Create missing tables, from the columns in changes. Create a column again if its type
            has changed in the source, and the source sends all rows again.
        ``evolve``
            Add missing columns; no other column is dropped.

        Raises ``ValueError`` for an invalid URL, or an unsupported kind of database.
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
        #: Tables that the pipeline has written to, as far as its fence goes.
        self._had: Owners = {}
        self._is_prepared = False
        #: True after a commit has dropped what earlier jobs of the pipeline have left.
        self._is_swept = False
        #: Token of the cached tables in tasks: after a change they read the tables again.
        self._look = uuid4().hex
        # Report an invalid URL immediately.
        database = Database(url, foreign_keys)
        database.close()
        #: URL without its secrets.
        self.name = database.name
        file = database.engine.url.database or ""
        is_file = database.backend == "sqlite" and not file.startswith(("file:", ":memory:"))
        #: The folder of an SQLite file, which tasks have to see.
        self.folder = Path(file).absolute().parent if is_file and file else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the pickled form for tasks, without connection."""
        owners = {} if self._used is None else self._used.catalog.owners
        return _make, (self.url, self._settings, self._look, owners)

    # Called by the driver.

    def prepare(self) -> None:
        """Create the tables that pipelines need, and remove remains of crashes."""
        session = self._session
        with session.database.transaction() as connection:
            session.books.create(connection)
        if session.copies is not None:
            with session.database.transaction() as connection:
                session.copies.prepare(connection)
        if not self._is_prepared:
            with suppress(*_FAILURES), session.database.transaction() as connection:
                # Otherwise owners are known only while the process runs.
                session.books.create_owners(connection)
            self._prepare_work()
            self._is_prepared = True

    def _prepare_work(self) -> None:
        """Create the table for the work of tasks, or empty it of the remains of crashes."""
        session = self._session
        try:
            with session.database.transaction() as connection:
                if session.work.is_there(connection):
                    session.work.sweep(connection)
                else:
                    session.work.create(connection)
        except (RejectedRowError, SinkUnavailableError):
            # The user may not create tables, or another pipeline did so meanwhile. Without this
            # table the work of tasks passes through Spark.
            return

    def fence(self, pipeline: str, spool: str) -> dict[int, int]:
        """Return the ordinal of the last applied message, by partition."""
        session = self._session
        with session.database.transaction() as connection:
            session.catalog.restore(session.books.owners(connection, pipeline))
            fence = session.books.load(connection, pipeline, spool)
            # Without a fence, all changes are applied again.
            self._had = session.catalog.owners if fence else {}
            return fence

    def evolve(self, lacking: Lacking) -> None:
        """Create tables and columns; raises SchemaError if that is not allowed."""
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
                    written=self._had,
                )
        finally:
            self._forget()

    def commit(self, parts: Sequence[Staged], job: Job) -> Committed | None:
        """Apply parts in order, and move the fence, in one transaction."""
        try:
            return self._commit(parts, job)
        except (ApplyError, SinkUnavailableError):
            # The tables may have changed since they were read.
            self._forget()
            raise

    def _commit(self, parts: Sequence[Staged], job: Job) -> Committed | None:
        session = self._session
        with session.database.transaction() as connection:
            if session.lock(connection, job.pipeline, job.spool) != job.fence:
                return None
            session.database.defer(connection)
            run = StagedRun(connection, session, job)
            for part in parts:
                run.apply(part)
            letters = session.books.bury(connection, job.pipeline, job.spool, run.problems)
            session.store(connection, job, job.moved(part.ranges for part in parts))
            tables = _tables(parts)
            if session.copies is not None and session.copies.DROPS_IN_TRANSACTION:
                session.copies.drop(connection, tables)
                tables = []
            stored = _stored(parts)
            session.work.drop(connection, stored)
            left = self._left(connection, job) if _tables(parts) or not self._is_swept else None
        if tables:
            self._drop_after_commit(tables)
        if left is not None:
            self._drop_left(left.tables - set(tables), left.stored - set(stored))
            self._is_swept = True
        return Committed(run.written, run.deleted, letters + run.dead_letters)

    def _drop_after_commit(self, tables: Sequence[str]) -> None:
        """Drop staging tables; remaining ones are dropped by :meth:`prepare` later."""
        session = self._session
        with (
            suppress(*_FAILURES),
            session.database.transaction() as connection,
        ):
            session.copies.drop(connection, tables)

    def _left(self, connection: Connection, job: Job) -> _Left:
        """Return what a job's pipeline has staged, by all of its drivers.

        It is called where the fence is locked and has been moved. After the commit, no driver can
        apply what was staged before.
        """
        session = self._session
        owner = owner_of(job.pipeline, job.spool)
        tables = (
            of_owner(session.copies.table_names(connection), owner) if session.copies else set()
        )
        is_there = session.work.is_there(connection)
        return _Left(tables, session.work.of_owner(connection, owner) if is_there else set())

    def _drop_left(self, left: Iterable[str], stored: Iterable[str]) -> None:
        """Drop what other drivers have left; what is in use is left to :meth:`prepare`."""
        session = self._session
        for table in sorted(left):
            with suppress(*_FAILURES), session.database.transaction() as connection:
                session.copies.drop_unused(connection, table)
        if names := sorted(stored):
            with suppress(*_FAILURES), session.database.transaction() as connection:
                session.work.drop(connection, names)

    def apply(self, batches: Iterable[pa.RecordBatch], job: Job) -> Committed | Lacking | None:
        """Apply changes one by one, and move the fence, in one transaction."""
        batches = list(batches)
        session = self._session
        self._forget()
        try:
            with session.database.transaction() as connection:
                if session.lock(connection, job.pipeline, job.spool) != job.fence:
                    return None
                session.database.defer(connection)
                new = [beyond(batch, job.fence) for batch in batches]
                rules = session.rules(connection, new, job.choice)
                done = direct.apply(connection, session, new, job, rules)
                session.store(connection, job, job.moved([ranges_of(batches)[0]]))
                return done
        except MissingTableError as lacks:
            return lacks.lacking

    def discard(self, parts: Iterable[Staged]) -> None:
        """Discard staged data that will not be committed."""
        tables: list[str] = []
        stored: list[str] = []
        for part in parts:
            tables += part.tables
            stored += [part.stored] if part.stored else []
        session = self._session
        if tables or stored:
            with session.database.transaction() as connection:
                if session.copies is not None:
                    session.copies.drop(connection, tables)
                session.work.drop(connection, stored)

    def close(self) -> None:
        """Close the connections."""
        if self._used is not None:
            self._used.database.close()
            self._used = None

    # Called by tasks.

    def stage(self, batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[Staged]:
        """Stage changes for a later commit, invisible to readers."""
        for chunk in chunks(batches, _MOST_CHANGES):
            yield self._stage(chunk, job)

    def _stage(self, batches: Sequence[pa.RecordBatch], job: Job) -> Staged:
        ranges, in_order = ranges_of(batches)
        rows = sum(batch.num_rows for batch in batches)
        # Together, so that the final states of rows are read once.
        table = pa.Table.from_batches(batches).combine_chunks()
        new = [beyond(batch, job.fence) for batch in table.to_batches()]
        staged = Staged(ranges, in_order, rows, rows - sum(batch.num_rows for batch in new))
        if in_order and staged.fenced < rows:
            with without_collection():
                self._make(staged, new, job)
        return staged

    def _make(self, staged: Staged, batches: Sequence[pa.RecordBatch], job: Job) -> None:
        session = self._session
        owner = owner_of(job.pipeline, job.spool)
        with session.database.transaction() as connection:
            planner = SqlPlanner(connection, session)
            draft = Draft(planner, job, session.rules(connection, batches, job.choice))
            suspects = draft.attempt(batches)
            if suspects is not None or draft.lacking:
                # The tables may have changed since they were read.
                session.catalog.forget()
                draft = Draft(planner, job, session.rules(connection, batches, job.choice))
                draft.add(batches)
            draft.fill(staged)
            if draft.is_over:
                return
            if session.copies is not None:
                for op in draft.ops:
                    table = session.find(connection, *op.table)
                    if table is not None and session.copies.stage(connection, table, op, owner):
                        staged.tables.append(op.stage)
            work = pickle.dumps(draft.ops, pickle.HIGHEST_PROTOCOL)
            if len(work) >= LEAST_BYTES and session.work.is_there(connection):
                staged.stored, staged.size = session.work.put(connection, work, owner), len(work)
            else:
                staged.work = work

    def _forget(self) -> None:
        """Read the tables again, here and in tasks."""
        self._session.catalog.forget()
        self._look = uuid4().hex

    @property
    def _session(self) -> Session:
        if self._used is None:
            self._used = Session(self.url, self._settings)
        return self._used


def _tables(parts: Iterable[Staged]) -> list[str]:
    return [name for part in parts for name in part.tables]


def _stored(parts: Iterable[Staged]) -> list[str]:
    return [part.stored for part in parts if part.stored]


#: Sessions of tasks in this process, with their tokens of cached tables: reading the tables takes
#: longer than a small batch.
_SESSIONS: Final[dict[str, tuple[Session, str]]] = {}


def _make(url: str, settings: Mapping[str, Any], look: str, owners: Owners) -> SqlTarget:
    """Create a target in a task."""
    target = SqlTarget(url, **settings)
    name = repr((url, sorted(settings.items())))
    session, last = _SESSIONS.get(name) or (Session(url, settings), "")
    if last != look:
        session.catalog.forget()
    session.catalog.restore(owners)
    _SESSIONS[name] = session, look
    target._used = session
    target._look = look
    return target
