"""The job *compact*: fewer and larger files in an event store, without expired data.

::

    from stompkit.spark.jobs import load
    from stompkit.spark.jobs.compact import compact

    print(compact(load("shop.toml")))

It does not require Spark.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from stompkit.spark.eventstore import BrokenStoreError, SparkEventStore, Stored
from stompkit.spark.jobs.settings import PipelineError, PipelineSettings, life

__all__ = ["Compaction", "compact"]


@dataclass(frozen=True)
class Compaction:
    """Result of a compaction."""

    #: Number and size in bytes of the listed files, before and after.
    before: Stored
    after: Stored
    #: Number of removed expired keys and changesets.
    expired: int
    #: Number of merged files, and number of new files.
    merged: int
    made: int


def compact(settings: PipelineSettings) -> Compaction:
    """Merge the files of a pipeline's event store where there are many, in bounded memory.

    Concurrent reads and additions are allowed; the job *events* may keep running. If the compaction
    is killed, the store is consistent and complete, in an intermediate state. Merged files stay for
    some minutes for their readers; the next run removes them.

    Raises PipelineError if there is no store, and if it is damaged.
    """
    events = settings.events
    if events is None:
        raise PipelineError("[events]: the job compact needs this table, with its path")
    path = Path(events.path).absolute()
    if not path.is_dir():
        raise PipelineError(
            f"there is no event store {path}: `stompkit pipeline run events` makes it"
        )
    store = SparkEventStore(
        path, events.namespace, life(events.ttl), history=events.history, strict=True
    )
    kept = life(events.keep_history)
    try:
        before = store.stored()
        if kept is not None:
            store.forget_history(time.time() - kept)
        expired = store.prune()
        merged, made = store.compact()
        return Compaction(before, store.stored(), expired, merged, made)
    except BrokenStoreError as problem:
        raise PipelineError(str(problem)) from None
