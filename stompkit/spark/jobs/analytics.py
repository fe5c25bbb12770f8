"""The job *analytics*: numbers of changes, by table and operation, and their latency.

Spark keeps the counts in the checkpoint; a batch contains the current counts of minutes.
:mod:`stompkit.spark.jobs.results.counting` describes the counts, and the detection of late changes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from stompkit._common.files import write_atomically
from stompkit._common.text import text_of
from stompkit.spark.fence import Span
from stompkit.spark.jobs.contract import Done
from stompkit.spark.jobs.results.base import Mark, Results
from stompkit.spark.jobs.results.counting import Counted, counted, query
from stompkit.spark.jobs.results.report import made_report
from stompkit.spark.jobs.settings import PipelineSettings, seconds, unusable
from stompkit.spark.stream.offsets import initial
from stompkit.spark.stream.options import SourceOptions
from stompkit.spool import SpoolError

__all__ = ["Analytics", "report_of", "results_of"]

_log: Final = logging.getLogger(__name__)
#: Spark property with the id of the query's checkpoint.
_QUERY: Final = "sql.streaming.queryId"


class Analytics:
    """Counts batches into the results of a pipeline."""

    def __init__(self, settings: PipelineSettings) -> None:
        """Start without open resources; raises PipelineError."""
        given = settings.demanded_analytics()
        self._settings: Final = settings
        self._watermark_s: Final = seconds(given.watermark)
        self._top_keys: Final = given.top_keys
        self._report: Final = Path(given.report) if given.report else None
        #: True if the last report could not be written.
        self._is_unwritten = False
        self._results: Final = results_of(settings)
        self._setting: Final = "analytics.path" if given.path else "analytics.url"
        self._place: Final = given.path or "the database of [analytics]"
        #: Result of the current batch: Spark's state must not be queried twice.
        self._counted: tuple[tuple[int, dict[int, int]], Counted] | None = None
        #: Start of the stream without checkpoint, in JSON, as far as it is known before.
        self._begin = ""

    @property
    def target(self) -> str:
        """Name of the place of the results."""
        return self._place

    @property
    def setting(self) -> str:
        """Setting that names it."""
        return self._setting

    @property
    def passing(self) -> tuple[type[Exception], ...]:
        """Errors for which a retry may succeed: an unreachable database, and a full disk."""
        return (OSError, *self._results.passing)

    def folders(self) -> Mapping[str, Path]:
        """Return nothing: the driver writes the results."""
        return {}

    def query(self, changes: DataFrame) -> DataFrame:
        """Return the query over the stream."""
        with suppress(OSError, SpoolError):  # the stream creates the spool, or reports the error
            self._begin = self._initial()
        return query(changes, self._watermark_s, self._top_keys)

    def apply(self, df: DataFrame, batch_id: int, spool: str, span: Span) -> Done:
        """Write the result of a batch exactly once."""
        name = df.sparkSession.sparkContext.getLocalProperty(_QUERY)
        assert name is not None
        last = self._results.mark()
        Mark(name, spool).after(last, self._place)
        fence = last.ordinals if last is not None else {}
        span.check(fence)
        # A database may have committed without confirmation: then counting continues from there.
        if self._counted is None or self._counted[0] != (batch_id, fence):
            # A batch that is stored already is counted, too: the next one needs its state.
            ends = span.ends
            own = self._own(df.sparkSession, fence, span)
            reached = {
                number: max(end - 1, fence.get(number, -1)) for number, end in ends.items() if end
            }
            self._counted = (batch_id, fence), counted(df, own, fence | reached)
        found = self._counted[1]
        self._results.apply(found, Mark(name, spool, found.ordinals))
        if found.late:
            _log.info("batch %d: %d changes came late", batch_id, found.late.total())
        return Done(found.total, late=found.late.total())

    def finish(self, spool: str) -> None:
        """Update the report; counting continues if it cannot be written."""
        if self._report is None:
            return
        page = report_of(self._settings, self._results)
        try:
            write_atomically(self._report, page, mode=None, parents=True)
        except OSError as error:
            if not self._is_unwritten:
                _log.warning("the report cannot be written, and stays as it is: %s", error)
            self._is_unwritten = True
        else:
            self._is_unwritten = False

    def _options(self) -> SourceOptions:
        return SourceOptions.parse(self._settings.source_options("analytics"))

    def _initial(self) -> str:
        """Return the offset at which a stream without checkpoint begins."""
        options = self._options()
        return json.dumps(initial(self._settings.open_spool(), options))

    def _own(self, spark: SparkSession, fence: Mapping[int, int], span: Span) -> DataFrame | None:
        """Return the uncounted changes of a batch, read once more; ``None`` if there are none.

        The stream itself cannot provide them: Spark would treat it as two streams with separate
        ends. They are read as the stream reads them: in its order, and without what it leaves out.
        """
        if all(end - 1 <= fence.get(number, -1) for number, end in span.ends.items()):
            return None
        options = self._options()
        start, end = span.offsets
        if not start and (options.reader or not self._begin):
            # The reader is registered by now, and tells where the stream has begun.
            self._begin = self._initial()
        batch = (
            spark.read.format("stomp")
            .options(**options.spool_options())
            .option("payload", "changeset")
            .option("failOnDataLoss", str(options.fail_on_data_loss).lower())
            .option("startingOffsets", start or self._begin)
            .option("endingOffsets", end)
            .load()
        )
        is_counted = F.lit(False)
        for number, last in fence.items():
            is_counted |= (F.col("_partition") == number) & (F.col("_ordinal") <= last)
        return batch.where(~is_counted)

    def fence(self, spool: str) -> dict[int, int]:
        """Return the ordinal of the last counted message, by partition."""
        mark = self._results.mark()
        return mark.ordinals if mark is not None and mark.spool == spool else {}

    def explain(self, error: Exception) -> str:
        """Return the error text."""
        return text_of(error)

    def close(self) -> None:
        """Close the connections."""
        self._results.close()


def results_of(settings: PipelineSettings) -> Results:
    """Return the results of a pipeline, without opening them; raises PipelineError."""
    given = settings.demanded_analytics()
    if given.path:
        from stompkit.spark.jobs.results.parquet import ParquetResults

        return ParquetResults(Path(given.path).absolute())
    from stompkit.spark.jobs.results.sql import SqlResults

    try:
        return SqlResults(settings.analytics_url(), settings.name)
    except ValueError as error:
        raise unusable("analytics.url", error) from None


def report_of(settings: PipelineSettings, results: Results) -> bytes:
    """Return the report of the last hours with results, as an HTML page."""
    given = settings.demanded_analytics()
    return made_report(settings.name, results, int(seconds(given.report_span)), given.top_keys)
