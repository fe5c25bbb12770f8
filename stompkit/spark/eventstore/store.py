"""An event store in a folder of Parquet files, on one machine or with Spark.

Queries and additions do not use Spark; only the methods with a session or a data frame do.
Processes may share the folder, on any machines with a consistent view of its files and locks.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from stompkit.replication.eventstore.store import DEFAULT_TTL_S, EventStore, Namespace
from stompkit.spark.eventstore.changes import COLUMNS, HISTORY_COLUMNS
from stompkit.spark.eventstore.files import BrokenStoreError, Covered, Entry, Folder, Listing, Move
from stompkit.spark.eventstore.frames import changesets_frame, times_frame
from stompkit.spark.eventstore.index import Index
from stompkit.spark.eventstore.maintenance import Compacted, Stored, Upkeep
from stompkit.spark.eventstore.merge import partitions
from stompkit.spark.eventstore.replay import Replay
from stompkit.spark.eventstore.rows import EVENTS, HISTORY, Files, digest_of, write
from stompkit.spark.eventstore.staging import Job, Staged, received, stage, stage_all, written
from stompkit.spark.fence import Span, moved_elsewhere
from stompkit.spark.names import Names

__all__ = ["SparkEventStore"]

_log: Final = logging.getLogger(__name__)
_T = TypeVar("_T")
#: Number of changesets read at a time.
_CHUNK: Final = 200
#: Maximum number of attempts, after other processes have merged files or moved a fence.
_MOST_ATTEMPTS: Final = 10


class SparkEventStore(EventStore):
    """An event store in a folder; additions are durable and atomic.

    Of several unexpired times of a key the latest is returned. If a later one expires first, the
    earlier one is returned again after that. Similarly, of several changesets with one id the first
    one added is returned. The clock is that of this machine. Expired data is never returned, but
    remains on disk until :meth:`prune` is called. Additions merge small files from time to time;
    :meth:`compact` merges all of them.
    """

    _problems = (OSError, BrokenStoreError, pa.ArrowException)

    def __init__(
        self,
        path: str | os.PathLike[str],
        namespace: Namespace | None = None,
        ttl: float | None = DEFAULT_TTL_S,
        *,
        strict: bool = False,
        history: bool = False,
        keep_s: float = 600,
        sync: bool = True,
    ) -> None:
        """Describe a store, by default with the namespace ``stompkit``; the folder need not exist.

        Merged files stay for ``keep_s`` seconds for their readers, and unlisted files of an
        addition may be as old when it completes. This must be longer than any query or batch of
        Spark. Without ``sync`` no write waits for the disk, and a power failure may damage the
        store. See :class:`~stompkit.replication.eventstore.store.EventStore` for the other
        arguments.
        """
        super().__init__(
            "stompkit" if namespace is None else namespace, ttl, strict=strict, history=history
        )
        self._folder = Folder(Path(path).absolute(), keep_s, sync=sync)
        self._files = Files(self._folder.path)
        self._upkeep = Upkeep(self._folder, self._files, self._problems)

    def clear(self, event: str, ts: float | None = None) -> int:
        """Remove all keys of an event, or with ``ts`` those in the namespace of that time."""
        return self._upkeep.clear(lambda: self._own(self._folder.listing(), event, ts))

    def prune(self) -> int:
        """Remove expired data of all stores in this folder; return the number of removed items."""
        return self._upkeep.prune()

    def compact(self) -> Compacted:
        """Merge files where there are many, for all stores in this folder, in bounded memory.

        Concurrent reads and additions are allowed. Obsolete files are removed.
        """
        return self._upkeep.compact()

    def forget_history(self, before: float) -> None:
        """Remove changesets before a time, regardless of their expiry."""
        self._upkeep.forget_history(before, lambda: self._own(self._folder.listing(), None))

    def stored(self) -> Stored:
        """Return the number and size of the listed files of all stores in this folder."""
        return self._consistent(lambda listing: Stored.of(self._folder.path, listing.files))

    def changesets(self, until: float | None = None, end: int | None = None) -> Iterator[bytes]:
        """Yield the changesets as JSON, in the order in which they were added, each once.

        With ``until`` only those up to that time; with ``end`` only those that existed when
        :meth:`reached` returned it. Few are in memory at a time. Raises ``RuntimeError`` for a
        store without history.
        """
        self._demand_history()
        after = -1
        while True:
            listing = self._folder.listing()
            try:
                replay = Replay(self._files, self._own(listing, None), time.time())
                for number, body in replay.beyond(after, until):
                    if end is not None and number >= end:
                        return
                    yield body
                    after = number
            except FileNotFoundError as error:
                # Merging does not change the numbers, so reading continues from here.
                if self._folder.listing() is listing:
                    raise BrokenStoreError(f"a file is missing: {error}") from None
            else:
                return

    def has_lost_changesets(self) -> bool:
        """Return True if the history has contained changesets that have expired by now."""
        listing = self._folder.listing()
        is_any = callable(self._namespace) and bool(listing.incomplete)
        if is_any or self._namespace in listing.incomplete:
            return True
        now = time.time()
        return any(entry.has_expired(now) for entry in self._own(listing, None))

    def covered(self, pipeline: str = "") -> Covered:
        """Return which changes of a pipeline the history has without gaps."""
        return self._folder.listing().covered_of(self._fence_name("", pipeline))

    # Spark.

    def frame(self, spark: SparkSession, event: str | None = None) -> DataFrame:
        """Return the current latest times of the keys of an event, or of all events.

        Columns: ``namespace``, ``event``, ``key`` (as JSON), ``ts`` in seconds since 1970. Merged
        files stay for ``keep_s`` seconds: create a new data frame before that.
        """
        files = self._folder.listing().files
        wanted = [each for each in files if each.event is not None and event in (None, each.event)]
        return times_frame(spark, self._folder.path, self._of_names(wanted))

    def history_frame(self, spark: SparkSession) -> DataFrame:
        """Return the current changesets; see :meth:`frame`.

        Columns: ``namespace``, ``id``, ``number`` (the order in which they were added), ``ts``,
        ``body`` (the changeset as JSON). Raises ``RuntimeError`` for a store without history.
        """
        self._demand_history()
        entries = self._own(self._folder.listing(), None)
        return changesets_frame(spark, self._folder.path, entries)

    def write_changes(
        self,
        batch_df: DataFrame,
        batch_id: int,
        *,
        spool: str = "",
        pipeline: str = "",
        tables: Iterable[str] | None = None,
        span: Span | None = None,
        is_from_first: bool = True,
        through_driver: bool = False,
        on_names: Callable[[Names], object] | None = None,
    ) -> int:
        """Store a batch of changes, for ``foreachBatch``; return the number of new rows.

        ``batch_df`` has the columns of the source with the option ``payload`` set to ``changeset``.
        Each change sets the time of its key to ``committed``, for events such as ``orders_update``.
        With a history, whole changesets are stored, except for content without a column:
        ``parents``, ``revision``, and the server and the time of the source. ``tables`` are the
        selected ones, with or without their schema, and determine the names of events. Without
        ``tables`` all tables are stored, by name without schema.

        Changes that are not beyond the stored ordinals of ``spool``, the id of the spool, are
        skipped, regardless of ``batch_id``. So a batch may be repeated or resized. ``pipeline`` is
        a name for stores of other parts of the same spool in the same namespace. Tasks write the
        history, so they must share the folder, unless ``through_driver`` is true. ``span`` contains
        the bounds of the batch in the spool: a store that ends before the batch begins raises
        :class:`~stompkit.spark.fence.TargetBehindError`. ``is_from_first`` is false if a first
        batch does not begin with the first message of the spool. ``on_names`` gets the columns of
        tables.

        Raises the errors of a strict store, even if the store is not strict, and errors of Spark.
        Raises ``RuntimeError`` if other processes store the same data continuously.
        """
        df = batch_df.select(*self._columns())
        is_ordered = False
        for _ in range(_MOST_ATTEMPTS):
            job = self._job(spool, pipeline, tables, span or Span())
            job = job._replace(through_driver=through_driver, is_from_first=is_from_first)
            job.span.check(job.fence)
            rows = df.mapInArrow(partial(stage_all, job), "staged binary").collect()
            parts = received(rows, on_names)
            if not is_ordered and not all(part.is_whole for part in parts):
                # A query has split changesets, or removed changes from them.
                # By ranges: the numbers of changesets follow the order of tasks.
                df = df.repartitionByRange("_partition", "_ordinal")
                df = df.sortWithinPartitions("_partition", "_ordinal", "change")
                is_ordered = True
            elif self._commit(parts, job):
                _log.debug("batch %d of the spool %r is stored", batch_id, spool)
                return sum(part.rows for part in parts)
        raise moved_elsewhere(spool)

    def write_batches(
        self,
        batches: Iterable[pa.RecordBatch],
        *,
        spool: str = "",
        pipeline: str = "",
        tables: Iterable[str] | None = None,
    ) -> int:
        """Store Arrow batches in this process; see :meth:`write_changes`."""
        table = pa.Table.from_batches(batches).select(self._columns())
        is_ordered = False
        for _ in range(_MOST_ATTEMPTS):
            job = self._job(spool, pipeline, tables, Span())
            staged = stage(table.to_batches(), job)
            if not is_ordered and not staged.is_whole:
                order = [(name, "ascending") for name in ("_partition", "_ordinal", "change")]
                table = table.sort_by(order)
                is_ordered = True
            elif self._commit([staged], job):
                return staged.rows
        raise moved_elsewhere(spool)

    def fence(self, *, spool: str = "", pipeline: str = "") -> dict[int, int]:
        """Return the ordinal of the last stored message, by partition of the spool."""
        return dict(self._folder.listing().fences.get(self._fence_name(spool, pipeline), {}))

    def reached(self, *, spool: str = "", pipeline: str = "") -> tuple[dict[int, int], int]:
        """Return the fence, and the matching end of the history for :meth:`changesets`."""
        listing = self._folder.listing()
        fence = listing.fences.get(self._fence_name(spool, pipeline), {})
        return dict(fence), listing.end

    def _columns(self) -> list[str]:
        return list(HISTORY_COLUMNS if self._history else COLUMNS)

    def _job(self, spool: str, pipeline: str, tables: Iterable[str] | None, span: Span) -> Job:
        name = self._fence_name(spool, pipeline)
        return Job(
            self._folder.path,
            self._folder.keep_s,
            self._folder.sync,
            self._namespace,
            self._history,
            None if tables is None else frozenset(tables),
            time.time() + self._ttl,
            name,
            self.fence(spool=spool, pipeline=pipeline),
            span,
        )

    def _fence_name(self, spool: str, pipeline: str) -> str:
        namespace = self._namespace if isinstance(self._namespace, str) else None
        return msgspec.json.encode([namespace, pipeline, spool]).decode()

    def _commit(self, parts: Sequence[Staged], job: Job) -> bool:
        """List the staged files of tasks; return False after a concurrent commit."""
        reached = dict(job.fence)
        for part in parts:
            for partition, ordinal in part.reached.items():
                reached[partition] = max(ordinal, reached.get(partition, -1))
        reached = job.span.moved(reached)
        if reached == job.fence:
            return True
        added = written(parts, self._folder)
        move = Move(job.name, job.fence, reached, job.covered)
        if not self._folder.commit(added, move=move):
            return False
        self._upkeep.tidy(added)
        return True

    # The interface of event stores.

    def _disconnect(self) -> None:
        """Do nothing: no resource is open between calls."""

    def _add(self, events: dict[str, list[str]], ts: float | None, ttl: float) -> None:
        now = time.time()
        at = now if ts is None else ts
        namespace = self._name(at)
        added = []
        for event, texts in events.items():
            # Sort by bytes, which is the order of the characters.
            keys = sorted(set(texts))
            columns = {
                "namespace": pa.repeat(namespace, len(keys)),
                "event": pa.repeat(event, len(keys)),
                "key": keys,
                "ts": np.full(len(keys), at),
                "expires": np.full(len(keys), now + ttl),
            }
            added.append(write(self._folder, pa.Table.from_pydict(columns, EVENTS)))
        self._folder.commit(added)
        self._upkeep.tidy(added)

    def _read(self, event: str, ts: float, end_ts: float) -> Iterable[tuple[str, float]]:
        def work(listing: Listing) -> list[pa.Table]:
            columns = ["key", "ts", "expires"]
            return [
                pa.concat_tables([self._files.read(entry, columns) for entry in entries])
                for entries in partitions(self._own(listing, event)).values()
            ]

        now = time.time()
        for rows in self._consistent(work):
            alive = rows.filter(pc.greater(rows.column("expires"), now))
            times = alive.group_by("key").aggregate([("ts", "max")])
            last = times.column("ts_max")
            times = times.filter(pc.and_(pc.greater_equal(last, ts), pc.less_equal(last, end_ts)))
            yield from zip(
                times.column("key").to_pylist(), times.column("ts_max").to_pylist(), strict=True
            )

    def _query(self, event: str, text: str, ts: float | None) -> float | None:
        def work(listing: Listing) -> list[pa.Table]:
            return [self._files.find(entry, text) for entry in self._own(listing, event, ts)]

        now = time.time()
        found: list[float] = []
        for rows in self._consistent(work):
            alive = pc.greater(rows.column("expires"), now)
            found += rows.column("ts").filter(alive).to_pylist()
        return max(found, default=None)

    def _append(self, id: str, body: bytes, ts: float | None) -> None:
        now = time.time()
        at = now if ts is None else ts
        row = {
            "namespace": self._name(at),
            "id": id,
            "digest": digest_of(id),
            "number": 0,
            "ts": at,
            "expires": now + self._ttl,
            "body": body,
        }
        added = [write(self._folder, pa.Table.from_pylist([row], HISTORY))]
        self._folder.commit(added)
        self._upkeep.tidy(added)

    def _bodies(self, since: float, until: float) -> Iterator[tuple[float, bytes]]:
        last = (since, -1)
        while True:
            listing = self._folder.listing()
            entries = self._own(listing, None)
            try:
                index = Index(self._files, entries, time.time()).between(last, until)
                for chunk in index.chunks(_CHUNK):
                    for ts, number, body in chunk:
                        yield ts, body
                        last = (ts, number)
            except FileNotFoundError as error:
                # Merging does not change the numbers, so reading continues from here.
                if self._folder.listing() is listing:
                    raise BrokenStoreError(f"a file is missing: {error}") from None
            else:
                return

    def _consistent(self, work: Callable[[Listing], _T]) -> _T:
        """Return the result of *work* on one consistent state; raises :class:`BrokenStoreError`."""
        while True:
            listing = self._folder.listing()
            try:
                return work(listing)
            except FileNotFoundError as error:
                if self._folder.listing() is listing:
                    raise BrokenStoreError(f"a file is missing: {error}") from None

    def _own(self, listing: Listing, event: str | None, ts: float | None = None) -> list[Entry]:
        """Return the files of this store's namespaces, or of one, with an event or changesets."""
        return self._of_names([each for each in listing.files if each.event == event], ts)

    def _of_names(self, entries: Iterable[Entry], ts: float | None = None) -> list[Entry]:
        found = list(entries)
        if ts is not None:
            names = {self._name(ts)}
        else:
            times = {entry.namespace: entry.last for entry in found}
            names = {name for name, last in times.items() if self._name(last) == name}
        return [entry for entry in found if entry.namespace in names]
