"""The job *replicate*: a database or files with the tables of the sources. Requires ``sql``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from sqlalchemy import and_, or_, select

from stompkit._common.text import text_of
from stompkit.replication.sinks import ApplyError
from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.replication.sql import Database, TablesClashError
from stompkit.spark.apply import apply_changes
from stompkit.spark.fence import Span
from stompkit.spark.jobs.contract import Done
from stompkit.spark.jobs.dead_letters import Letters, Marks, NotSentError, beyond
from stompkit.spark.jobs.settings import (
    LibraryMissingError,
    PipelineSettings,
    TargetSettings,
    advice,
    life,
    unusable,
)
from stompkit.spark.jobs.wording import in_words_of_the_file
from stompkit.spark.targets import open_target
from stompkit.spark.targets.database.pipeline_tables import PipelineTables
from stompkit.spark.targets.files.target import FileTarget
from stompkit.spark.targets.sql import SqlTarget

__all__ = ["Replicate"]


class Replicate:
    """Applies batches to the target of a pipeline."""

    def __init__(self, settings: PipelineSettings) -> None:
        """Start unconnected; raises PipelineError for a URL that is not one of a target."""
        given = settings.target
        url = settings.target_url()
        assert given is not None
        self._settings: Final = settings
        try:
            opened = open_target(url, **_options_of(given, url))
        except ValueError as error:
            raise unusable("target.url", error) from None
        except ModuleNotFoundError as error:
            raise LibraryMissingError(f"target.url: {advice(error)}") from None
        assert isinstance(opened, (SqlTarget, FileTarget))
        self._target: Final = opened
        self._letters: Letters | None = None
        if settings.dead_letter:
            mark = settings.folder() / "replicate" / "dead-letters.json"
            options = settings.dead_letter_options()
            self._letters = Letters(self._find_letters, settings.name, options, mark)

    @property
    def target(self) -> str:
        """Name of the database, or URL of the files."""
        return self._settings.without_secrets(self._target.name)

    @property
    def setting(self) -> str:
        """Setting that names it."""
        return "target.url"

    @property
    def passing(self) -> tuple[type[Exception], ...]:
        """Errors for which a retry may succeed: an unreachable database, or unsent dead letters."""
        return SinkUnavailableError, NotSentError

    def folders(self) -> Mapping[str, Path]:
        """Return the folder of a target in files, or of an SQLite file."""
        folder = self._target.folder
        return {} if folder is None else {"the target": folder}

    def apply(self, df: DataFrame, batch_id: int, spool: str, span: Span | None = None) -> Done:
        """Apply a batch in one transaction of the target."""
        how = self._settings.apply
        try:
            applied = apply_changes(
                df,
                self._target,
                pipeline=self._settings.name,
                spool=spool,
                keys=how.keys,
                sequence_by=how.sequence_by,
                apply_as_deletes=how.apply_as_deletes,
                column_list=how.column_list,
                except_column_list=how.except_column_list,
                stored_as_scd_type=how.stored_as_scd_type,
                ignore_null_updates=how.ignore_null_updates,
                tables=how.tables,
                on_problem=how.on_problem,
                span=span,
            )
        except BaseException:
            if self._letters is not None:
                self._letters.look_again()
            raise
        if self._letters is not None and applied.dead_letters:
            self._letters.look_again()
        return Done(applied.changes, applied.dead_letters, names=applied.names)

    def finish(self, spool: str) -> None:
        """Send the dead letters."""
        if self._letters is not None:
            self._letters.send(spool)

    def fence(self, spool: str) -> dict[int, int]:
        """Return the ordinal of the last applied message, by partition."""
        if not isinstance(self._target, SqlTarget):
            return self._target.fence(self._settings.name, spool)
        with closing(Database(self._target.url, "deferred")) as database:
            file = database.engine.url.database or ""
            if database.backend == "sqlite" and not Path(file).exists():
                return {}
            books = PipelineTables()
            with database.transaction() as connection:
                if books.missing(connection):
                    return {}
                return books.load(connection, self._settings.name, spool)

    def explain(self, error: Exception) -> str:
        """Return the error text, with advice for the pipeline file."""
        # Tasks raise errors of the same texts in classes of Spark.
        text = in_words_of_the_file(text_of(error))
        is_of_change = isinstance(error, ApplyError) and not isinstance(error, TablesClashError)
        if is_of_change and self._settings.apply.on_problem == "stop":
            text += (
                '. With on-problem = "dead-letter" in [apply] such a change is written down in the'
                " table stompkit_pipeline_dead_letters of the target, and the others are applied"
            )
        return text

    def close(self) -> None:
        """Close the connections."""
        self._target.close()

    def _find_letters(
        self, pipeline: str, spool: str, after: Marks, most: int
    ) -> Sequence[Mapping[str, Any]]:
        """Return dead letters stored in the target."""
        if isinstance(self._target, FileTarget):
            return beyond(self._target.dead_letters(pipeline, spool), after, most)
        table = PipelineTables().dead_letters
        column = table.c
        are_new = [
            and_(
                column.partition_no == number,
                or_(
                    column.ordinal > ordinal,
                    and_(column.ordinal == ordinal, column.change_no > change),
                ),
            )
            for number, (ordinal, change) in after.items()
        ]
        found = (
            select(table)
            .where(column.pipeline == pipeline, column.spool == spool)
            .where(or_(column.partition_no.not_in(list(after)), *are_new))
            .order_by(column.partition_no, column.ordinal, column.change_no)
            .limit(most)
        )
        with (
            closing(Database(self._target.url, "deferred")) as database,
            database.transaction() as connection,
        ):
            return [dict(row) for row in connection.execute(found).mappings()]


def _options_of(given: TargetSettings, url: str) -> dict[str, Any]:
    """Return the options with which a target of that URL is opened."""
    options: dict[str, Any] = {
        "create": given.create,
        "evolve": given.evolve,
        "schema_map": given.schema_map,
        "table_map": given.table_map,
    }
    kind = url.partition("://")[0].partition("+")[0]
    if kind == "delta":
        return {**options, "storage_options": given.looked_up_storage_options()}
    if kind == "parquet":
        return {**options, "keep_s": life(given.keep) or float("inf")}
    return {**options, "foreign_keys": given.foreign_keys, "lossy": given.lossy}
