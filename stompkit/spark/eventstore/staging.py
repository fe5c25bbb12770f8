"""Staging of an event store batch in tasks, so that one commit can list the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from stompkit.replication.eventstore.store import Namespace
from stompkit.spark.eventstore.changes import Intake
from stompkit.spark.eventstore.files import Covered, Entry, Folder
from stompkit.spark.eventstore.rows import EVENTS, write
from stompkit.spark.fence import Fence, Span
from stompkit.spark.names import Names, NamesFound, dump, load, merged

__all__ = ["Job", "Staged", "by_event", "received", "stage", "stage_all", "written"]


class Job(NamedTuple):
    """The parameters of a task."""

    path: Path
    keep_s: float
    sync: bool
    namespace: Namespace
    has_history: bool
    tables: frozenset[str] | None
    expires: float
    #: Name of the fence.
    name: str
    fence: Fence
    span: Span = Span()
    #: True if tasks return the history instead of writing it.
    through_driver: bool = False
    #: False if the spool has lost messages before the first batch, or that begins later.
    is_from_first: bool = True

    @property
    def covered(self) -> Covered:
        """Content of the history after this batch, as far as the batch decides it."""
        tables = None if self.tables is None else sorted(self.tables)
        return Covered(self.has_history and (bool(self.fence) or self.is_from_first), tables)

    def name_of(self, ts: float) -> str:
        """Return the namespace of a time."""
        return self.namespace if isinstance(self.namespace, str) else self.namespace(ts)


class Staged(msgspec.Struct):
    """The result of a task for its part of a batch."""

    rows: int
    is_whole: bool
    reached: dict[int, int]
    history: list[Entry]
    #: Times of keys, as an Arrow stream.
    events: bytes
    #: History that is not written yet, as Arrow streams.
    unwritten: list[bytes] = []
    #: The names in the batch, as :func:`stompkit.spark.names.dump` returns them.
    names: bytes = b"[]"


def stage_all(job: Job, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run :func:`stage` with the interface of Spark."""
    staged = msgspec.msgpack.encode(stage(batches, job))
    yield pa.RecordBatch.from_pydict({"staged": [staged]})


def received(
    rows: Iterable[Sequence[Any]], on_names: Callable[[Names], object] | None
) -> list[Staged]:
    """Return the results of :func:`stage_all`, and report the names in the batch."""
    parts = [msgspec.msgpack.decode(bytes(row[0]), type=Staged) for row in rows]
    if on_names is not None:
        on_names(merged(load(part.names) for part in parts))
    return parts


def stage(batches: Iterable[pa.RecordBatch], job: Job) -> Staged:
    """Write the changesets of some batches to files that are not listed yet, or return them."""
    intake = Intake(job.fence, job.name_of, job.has_history, job.tables, job.expires)
    found = NamesFound()
    intake.take(found.watch(batches))
    history: list[Entry] = []
    unwritten: list[bytes] = []
    if job.through_driver:
        unwritten += map(_packed, intake.history())
    else:
        folder = Folder(job.path, job.keep_s, sync=job.sync)
        history += [write(folder, table) for table in intake.history()]
    return Staged(
        intake.rows,
        intake.is_whole,
        dict(intake.reached),
        history,
        _packed(intake.events()),
        unwritten,
        dump(found.names),
    )


def written(parts: Sequence[Staged], folder: Folder) -> list[Entry]:
    """Write what tasks have returned; return the files of the batch, which are not listed yet."""
    added: list[Entry] = []
    for part in parts:
        added += part.history
        added += [write(folder, _unpacked(octets)) for octets in part.unwritten]
    times = pa.concat_tables([_unpacked(part.events) for part in parts])
    return added + [write(folder, table) for table in by_event(times)]


def _packed(table: pa.Table) -> bytes:
    octets = pa.BufferOutputStream()
    with pa.ipc.new_stream(octets, table.schema) as stream:
        stream.write_table(table)
    packed: bytes = octets.getvalue().to_pybytes()
    return packed


def _unpacked(octets: bytes) -> pa.Table:
    return pa.ipc.open_stream(octets).read_all()


def by_event(times: pa.Table) -> Iterator[pa.Table]:
    """Yield the latest time of each key, sorted by key, by namespace and event."""
    names = ["namespace", "event"]
    latest = times.group_by([*names, "key", "expires"]).aggregate([("ts", "max")])
    latest = latest.rename_columns({"ts_max": "ts"}).select(EVENTS.names).cast(EVENTS)
    latest = latest.sort_by([(name, "ascending") for name in (*names, "key")])
    groups = latest.group_by(names, use_threads=False).aggregate([([], "count_all")])
    start = 0
    for count in groups.column("count_all").to_pylist():
        yield latest.slice(start, count).combine_chunks()
        start += count
