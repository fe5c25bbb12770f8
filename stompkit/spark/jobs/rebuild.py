"""The job *rebuild*: a replica as of a time, without the broker. Requires the extra ``sql``.

::

    from stompkit.spark.jobs import load
    from stompkit.spark.jobs.rebuild import rebuild

    rebuild(load("shop.toml"), at=datetime(2026, 11, 20, 10, tzinfo=UTC), url="sqlite:///then.db")
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import delete

from stompkit.replication.sinks import ApplyError, SinkMisconfiguredError
from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.replication.sql import SchemaError, ranks_of
from stompkit.spark.jobs.history import SCHEMA, Past, open_past
from stompkit.spark.jobs.past_staging import PastStaging
from stompkit.spark.jobs.runs.known_names import KnownNames
from stompkit.spark.jobs.runs.left_out import LeftOut
from stompkit.spark.jobs.runs.resume import check_gap, forget_checkpoint, going_on
from stompkit.spark.jobs.settings import (
    PipelineError,
    PipelineSettings,
    TargetSettings,
    seconds,
)
from stompkit.spark.jobs.spill import Spill
from stompkit.spark.jobs.tables import Tables
from stompkit.spark.jobs.wording import in_words_of_the_file
from stompkit.spark.names import NamesFound
from stompkit.spark.states import Choice
from stompkit.spark.targets.base import Job, StagingLostError, chunks
from stompkit.spark.targets.sql import SqlTarget

__all__ = ["Rebuilt", "rebuild"]

_log: Final = logging.getLogger(__name__)

#: Back-off in seconds before a rebuild is restarted: initial and maximum.
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 15.0
#: Number of changes collapsed at a time, which limits memory.
_MOST_CHANGES: Final = 100_000
#: Maximum number of attempts of the rebuild, if the server has lost staged data.
_MOST_ATTEMPTS: Final = 10


@dataclass(frozen=True)
class Rebuilt:
    """Result of a rebuild."""

    #: Name of the source, for users.
    source: str
    changes: int = 0
    #: Number of changes stored as dead letters.
    dead_letters: int = 0
    #: Number of rows in the target's tables, by the names of the source.
    rows: dict[str, int] = field(default_factory=dict)
    #: True if this is the target of the job *replicate*, which resumes from here. Otherwise the
    #: job, if it uses this target, starts with the spool's first message.
    goes_on: bool = False


def rebuild(
    settings: PipelineSettings,
    *,
    at: datetime | None = None,
    until_ordinal: int | None = None,
    url: str | None = None,
    create: bool = False,
    replace: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> Rebuilt:
    """Rebuild tables as of the time when everything committed by ``at`` was applied, or as of now.

    Changes come from the history of the event store, in the order in which they were stored.
    Without a history, or with ``until_ordinal``, the last ordinal to include, they come from the
    spool. They are applied in one transaction, so no reader sees a partial state. If the rebuild is
    killed, only missing tables and columns may have been created.

    ``url`` is another target than that of the settings. ``create`` creates missing tables.
    ``replace`` first empties the tables that have changes, including later ones. ``on_progress`` is
    called with the number of changes read.

    The job *replicate* must not run while its target is rebuilt, and loses its checkpoint.

    If the server crashes meanwhile, everything is read and staged again, for as long as a batch
    would be retried.

    Raises PipelineError, with a remedy, if the past is incomplete, if a table has rows, or if the
    target lacks an object or rejects a value. Raises it also if the target is that of a job that is
    running, or could not resume. Raises SinkUnavailableError if the target is unreachable.
    """
    given = _target_settings(settings, url, create=create)
    if at is not None and at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    is_own = settings.target is not None and (url is None or url == settings.target_url())
    with ExitStack() as stack:
        tables = Tables(given.url, given, "target.url" if url is None else "--target")
        stack.callback(tables.close)
        if is_own:
            stack.enter_context(going_on(settings))
        past = open_past(settings, at, until_ordinal)
        if is_own:
            check_gap(settings, past.fence)
        try:
            work = _Rebuild(
                settings, given, tables, past, at, stack, replaces=replace, is_own=is_own
            )
            return work.run(on_progress or (lambda _: None))
        except (ApplyError, SchemaError) as problem:
            text = in_words_of_the_file(str(problem), create="give --create")
            raise PipelineError(settings.without_secrets(text)) from problem


def _target_settings(
    settings: PipelineSettings, url: str | None, *, create: bool
) -> TargetSettings:
    how = settings.apply
    if how.stored_as_scd_type != 1 or how.sequence_by != "_ordinal":
        raise PipelineError(
            "apply: versions of rows, and an order by sequence-by, are made by the job replicate"
            " only: run it with another name and an empty target"
        )
    if how.apply_as_deletes.replace(" ", "").replace('"', "'") != "operation='delete'":
        raise PipelineError(
            "apply.apply-as-deletes: this is known to the job replicate only: run it with another"
            " name and an empty target"
        )
    if settings.target is None and url is None:
        raise PipelineError("[target]: the job rebuild needs this table, or --target URL")
    base = settings.target or TargetSettings(url="")
    return msgspec.structs.replace(
        base,
        url=settings.target_url() if url is None else url,
        create=create or base.create,
    )


class _Rebuild:
    """One rebuild."""

    def __init__(
        self,
        settings: PipelineSettings,
        given: TargetSettings,
        tables: Tables,
        past: Past,
        at: datetime | None,
        stack: ExitStack,
        *,
        replaces: bool,
        is_own: bool,
    ) -> None:
        how = settings.apply
        self._settings: Final = settings
        self._past: Final = past
        self._at: Final = at
        self._replaces: Final = replaces
        self._is_own: Final = is_own
        self._tables: Final = tables
        self._target: Final = SqlTarget(
            given.url,
            create=given.create,
            evolve=given.evolve,
            foreign_keys=given.foreign_keys,
            lossy=given.lossy,
            schema_map=given.schema_map,
            table_map=given.table_map,
        )
        stack.callback(self._target.close)
        self._job: Final = Job(
            pipeline=settings.name,
            # Its ordinals belong to no spool, and to no other rebuild.
            spool=f"rebuild-{uuid4().hex}",
            choice=Choice.of(
                keys=how.keys,
                tables=how.tables,
                column_list=how.column_list,
                except_column_list=how.except_column_list,
                ignores_null_updates=how.ignore_null_updates,
                # Data staged before has the former names.
                follows_names=False,
            ),
            dead_letters=how.on_problem == "dead-letter",
        )
        self._staging: Final = PastStaging(self._target, self._job)
        self._sources: set[tuple[str, str]] = set()
        #: Also those of tables that the settings leave out.
        self._names: Final = NamesFound()
        #: True if the target was reachable.
        self._is_begun = False
        #: Numbers of changes that the last attempt has read, and could not apply.
        self._changes = self._letters = 0

    def run(self, tell: Callable[[int], None]) -> Rebuilt:
        """Run the rebuild, and restart it if the target's server crashes meanwhile."""
        losses = 0
        pause = _FIRST_PAUSE_S
        deadline: float | None = None
        while True:
            try:
                self._make(tell, is_first=deadline is None)
                break
            except (StagingLostError, SinkUnavailableError) as error:
                if not self._is_begun or isinstance(error, SinkMisconfiguredError):
                    raise
                now = time.monotonic()
                deadline = deadline or now + seconds(self._settings.retry_for)
                losses += isinstance(error, StagingLostError)
                if losses >= _MOST_ATTEMPTS:
                    raise SinkUnavailableError(f"{losses} times in a row: {error}") from error
                if now + pause > deadline:
                    raise SinkUnavailableError(str(error)) from error
                reason = self._settings.without_secrets(str(error))
            _log.warning("the rebuild starts over: %s", reason)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        goes_on = self._is_own and self._past.fence is not None
        if goes_on:
            # Before the job can go on from here; it forgets them if it starts over.
            self._note_names()
        self._set_fence()
        return Rebuilt(self._past.name, self._changes, self._letters, self._counts(), goes_on)

    def _make(self, tell: Callable[[int], None], *, is_first: bool) -> None:
        """Stage all changes and commit them, unless an earlier attempt has done so."""
        self._target.prepare()
        self._is_begun = True
        if not is_first and self._target.fence(self._job.pipeline, self._job.spool):
            # The connection was lost after the server had committed.
            return
        with ExitStack() as stack:
            self._stage_and_commit(Spill(stack), tell)

    def _stage_and_commit(self, spill: Spill, tell: Callable[[int], None]) -> None:
        is_done = False
        try:
            changes = letters = 0
            for chunk in chunks(self._past.batches(), _MOST_CHANGES):
                # Also tables whose changes are later: they were empty at that time.
                self._admit(chunk)
                past = self._up_to_time(chunk)
                changes += sum(batch.num_rows for batch in past)
                for part in self._staging.staged(past):
                    letters += len(part.problems)
                    spill.add(part)
                tell(changes)
            if self._replaces and self._sources:
                spill.put_first(self._staging.staged([self._truncates()]))
            self._changes, self._letters = changes, letters
            if self._is_own:
                forget_checkpoint(self._settings)
            self._forget_fence()
            done = self._target.commit(spill, self._job)
            assert done is not None, "nobody else knows the name of this rebuild's fence"
            self._letters = done.dead_letters
            is_done = True
        finally:
            if not is_done:
                self._staging.discard(spill)

    def _admit(self, chunk: Sequence[pa.RecordBatch]) -> None:
        """Reject tables with rows, unless they are to be replaced."""
        for batch in chunk:
            self._names.add(batch)
        chosen = {each for each in self._names.names if self._job.choice.has(*each)}
        new = chosen - self._sources
        self._sources |= new
        if self._replaces or not new:
            return
        with self._tables.transaction() as connection:
            for source in sorted(new):
                table = self._tables.find(connection, *source)
                if table is not None and self._tables.has_rows(connection, table):
                    raise PipelineError(
                        f"the table {table.name} of {self._tables.name} has rows: give another"
                        " --target, or --replace to have tables emptied that are rebuilt"
                    )

    def _up_to_time(self, chunk: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
        """Return the changes that were committed by the given time."""
        if self._at is None:
            return chunk
        at = pa.scalar(self._at, SCHEMA.field("committed").type)
        is_past = [pc.less_equal(batch.column("committed"), at) for batch in chunk]
        # Unreadable changes have no time.
        return [
            batch.filter(pc.fill_null(chosen, True))
            for batch, chosen in zip(chunk, is_past, strict=True)
        ]

    def _truncates(self) -> pa.RecordBatch:
        """Return changes that empty all tables, before all others."""
        rows = [
            {
                **dict.fromkeys(SCHEMA.names),
                "_partition": 0,
                "_ordinal": -1,
                "change": number,
                "operation": "truncate",
                "schema": schema,
                "table": table,
                "key": "{}",
            }
            for number, (schema, table) in enumerate(self._children_first())
        ]
        return pa.RecordBatch.from_pylist(rows, SCHEMA)

    def _children_first(self) -> list[tuple[str, str]]:
        """Return the tables in the order in which foreign keys allow emptying them."""
        self._tables.forget()
        with self._tables.transaction() as connection:
            found = {each: self._tables.find(connection, *each) for each in self._sources}
        ranks = ranks_of(table for table in found.values() if table is not None)
        by_source = {
            each: 0 if table is None else ranks[table.identity] for each, table in found.items()
        }
        return sorted(by_source, key=lambda each: (-by_source[each], each))

    def _forget_fence(self) -> None:
        """Remove the fence, so that the job replicate starts over if the rebuild ends here."""
        column = self._tables.books.fence.c
        statement = delete(self._tables.books.fence).where(column.pipeline == self._settings.name)
        with self._tables.transaction() as connection:
            connection.execute(statement)

    def _note_names(self) -> None:
        """Note the tables of the past as if the job replicate had read their changes."""
        KnownNames(self._settings, "replicate").add(self._names.names)
        left_out = LeftOut(self._settings, "replicate")
        left_out.forget_selected()
        left_out.add(self._names.names)

    def _set_fence(self) -> None:
        """Set the fence, so that the job replicate resumes from here if the data is complete."""
        if self._past.fence is None:
            return
        spool, ordinals = self._past.fence
        books, name = self._tables.books, self._settings.name
        with self._tables.transaction() as connection:
            before = books.lock(connection, name, spool)
            books.store(connection, name, spool, before, ordinals)

    def _counts(self) -> dict[str, int]:
        counts = {}
        self._tables.forget()
        with self._tables.transaction() as connection:
            for schema, name in sorted(self._sources):
                table = self._tables.find(connection, schema, name)
                if table is not None:
                    full = f"{schema}.{name}" if schema else name
                    counts[full] = self._tables.count(connection, table)
        return counts
