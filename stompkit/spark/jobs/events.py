"""The job *events*: an event store of changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from stompkit._common.text import text_of
from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.spark.eventstore import SparkEventStore
from stompkit.spark.eventstore.files import DEAD_LETTERS
from stompkit.spark.executors import EVENT_STORE
from stompkit.spark.fence import Span
from stompkit.spark.jobs.contract import Done
from stompkit.spark.jobs.dead_letters import Letters, Marks, NotSentError, beyond
from stompkit.spark.jobs.settings import PipelineError, PipelineSettings, life
from stompkit.spark.names import Names, merged
from stompkit.spark.states import Problem
from stompkit.spark.stream.changes import UNREADABLE
from stompkit.spark.stream.options import SourceOptions
from stompkit.spark.targets.parquet import ParquetTarget
from stompkit.spool import SpoolError, SpoolUnavailableError

__all__ = ["Events"]

_STOPPED: Final = "is no changeset"


class Events:
    """Stores batches in the event store of a pipeline."""

    def __init__(self, settings: PipelineSettings) -> None:
        """Start without open resources."""
        given = settings.events
        if given is None:
            raise PipelineError("[events]: the job events needs this table, with its path")
        self._path: Final = Path(given.path).absolute()
        self._through_driver: Final = given.through_driver
        #: True if tasks write to the store.
        self._is_shared: Final = given.history and not given.through_driver
        self._tables: Final = given.tables
        self._pipeline: Final = settings.name
        self._settings: Final = settings
        self._store: Final = SparkEventStore(
            self._path, given.namespace, life(given.ttl), history=given.history
        )
        self._on_problem: Final = given.on_problem
        self._dead: Final = ParquetTarget(f"parquet://{self._path / DEAD_LETTERS}")
        self._letters: Letters | None = None
        if settings.dead_letter and given.on_problem == "dead-letter":
            mark = settings.folder() / "events" / "dead-letters.json"
            options = settings.dead_letter_options()
            self._letters = Letters(self._find_letters, settings.name, options, mark)

    @property
    def target(self) -> str:
        """Name of the event store."""
        return f"the event store {self._path}"

    @property
    def setting(self) -> str:
        """Setting that names it."""
        return "events.path"

    @property
    def passing(self) -> tuple[type[Exception], ...]:
        """Errors for which a retry may succeed: a full disk, or rejected dead letters."""
        return OSError, SinkUnavailableError, NotSentError

    def folders(self) -> Mapping[str, Path]:
        """Return the event store, if tasks write its history."""
        return {EVENT_STORE: self._path} if self._is_shared else {}

    def apply(self, df: DataFrame, batch_id: int, spool: str, span: Span | None = None) -> Done:
        """Store a batch atomically."""
        is_poison = F.col("operation") == UNREADABLE
        counted = Observation()
        watched = df
        if self._on_problem == "stop":
            watched = self._guarded(df, is_poison, spool)
        elif self._on_problem == "dead-letter":
            watched = df.observe(counted, F.count_if(is_poison).alias("poison"))
        found: list[Names] = []
        rows = self._store.write_changes(
            watched,
            batch_id,
            spool=spool,
            pipeline=self._pipeline,
            tables=self._tables,
            span=span,
            is_from_first=self._is_from_first,
            through_driver=self._through_driver,
            on_names=found.append,
        )
        letters = 0
        if self._on_problem == "dead-letter" and counted.get["poison"]:
            # After a crash before this the batch is repeated, and counted again.
            try:
                letters = self._bury(df.where(is_poison), spool)
            except BaseException:
                if self._letters is not None:
                    self._letters.look_again()
                raise
            if letters and self._letters is not None:
                self._letters.look_again()
        return Done(rows, letters, names=merged(found))

    @cached_property
    def _is_from_first(self) -> bool:
        """False if a first batch does not begin with the first message of the spool."""
        options = SourceOptions.parse(self._settings.source_options("events"))
        try:
            floor = self._settings.open_spool(timeout_s=0).floor()
        except SpoolUnavailableError:
            raise  # the batch is repeated
        except SpoolError:
            # The changes come from somewhere else.
            return True
        return options.starting == "earliest" and not any(floor)

    def finish(self, spool: str) -> None:
        """Send the dead letters."""
        if self._letters is not None:
            self._letters.send(spool)

    def _guarded(self, df: DataFrame, is_poison: Column, spool: str) -> DataFrame:
        """Make a task fail that reads a message without changeset, unless it was passed before."""
        is_new = F.lit(True)
        for number, last in self.fence(spool).items():
            is_new &= (F.col("_partition") != number) | (F.col("_ordinal") > last)
        told = F.format_string(
            f"message %d in partition %d of the spool {_STOPPED}: %s",
            F.col("_ordinal"),
            F.col("_partition"),
            F.coalesce(F.col("problem"), F.lit("?")),
        )
        operation = F.when(is_poison & is_new, F.raise_error(told)).otherwise(F.col("operation"))
        return df.withColumn("operation", operation)

    def _bury(self, df: DataFrame, spool: str) -> int:
        """Store dead letters that are not stored yet; return their number."""
        rows = df.select("_partition", "_ordinal", "change", "problem").collect()
        problems = [
            Problem((row[0], row[1], row[2] or 0), UNREADABLE, "", "", row[3] or "?")
            for row in rows
        ]
        return self._dead.bury(problems, pipeline=self._pipeline, spool=spool)

    def fence(self, spool: str) -> dict[int, int]:
        """Return the ordinal of the last stored message, by partition."""
        if not self._path.exists():
            return {}
        return self._store.fence(spool=spool, pipeline=self._pipeline)

    def explain(self, error: Exception) -> str:
        """Return the error text, with advice."""
        text = text_of(error)
        if _STOPPED in text and self._on_problem == "stop":
            text += (
                '. With on-problem = "dead-letter" in [events] such a message is written down in'
                f" {self._path / DEAD_LETTERS}, and the others are stored"
            )
        return text

    def close(self) -> None:
        """Do nothing: no resource is open between batches."""

    def _find_letters(
        self, pipeline: str, spool: str, after: Marks, most: int
    ) -> Sequence[Mapping[str, Any]]:
        return beyond(self._dead.dead_letters(pipeline, spool), after, most)

    def dead_letters(self, spool: str) -> list[dict[str, Any]]:
        """Return stored dead letters of messages without changeset, in the order of the spool."""
        return self._dead.dead_letters(self._pipeline, spool)
