"""The job *compact*: fewer and larger files in an event store, without what is past its life.

::

    from stompkit.spark.jobs import load
    from stompkit.spark.jobs.compact import compact

    print(compact(load("shop.toml")))

Spark is not needed for it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from stompkit.spark.eventstore import BrokenStore, SparkEventStore, Stored
from stompkit.spark.jobs.settings import PipelineProblem, PipelineSettings, life

__all__ = ["Compaction", "compact"]


@dataclass(frozen=True)
class Compaction:
    """What has become of an event store."""

    #: Files and octets that others read.
    before: Stored
    after: Stored
    #: Keys and changesets that were past their life, and are gone.
    expired: int
    #: Files that were merged, and those that have taken their place.
    merged: int
    made: int


def compact(settings: PipelineSettings) -> Compaction:
    """Merge the files of a pipeline's event store where there are many, in bounded memory.

    Others may read the store and add to it meanwhile; the job *events* does not have to end. What
    is killed leaves the store as it was after one step or another, with all that is in it. Files
    that were merged stay for some minutes, for their readers: the next run removes them.

    Raises PipelineProblem where there is no store, and where it is broken.
    """
    events = settings.events
    if events is None:
        raise PipelineProblem("[events]: the job compact needs this table, with its path")
    path = Path(events.path).absolute()
    if not path.is_dir():
        raise PipelineProblem(
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
    except BrokenStore as problem:
        raise PipelineProblem(str(problem)) from None
