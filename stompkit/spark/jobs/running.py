"""Running a job of a pipeline: session, stream, batches, and a stop between batches."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from stompkit._common.metrics import Address
from stompkit._common.retry import Backoff
from stompkit.spark.executors import check_folders
from stompkit.spark.fence import Span, TargetBehindError
from stompkit.spark.java import SparkError
from stompkit.spark.jobs.progress import Progress
from stompkit.spark.jobs.runs.behind import Beginning, beginning
from stompkit.spark.jobs.runs.checkpoint import Checkpoint
from stompkit.spark.jobs.runs.failures import Failures
from stompkit.spark.jobs.runs.job_lock import alone
from stompkit.spark.jobs.runs.known_names import KnownNames
from stompkit.spark.jobs.runs.left_out import LeftOut
from stompkit.spark.jobs.runs.serving import serving
from stompkit.spark.jobs.runs.session import InterruptedStartError, is_gone, listening, session
from stompkit.spark.jobs.runs.source import former_reader, opened, stream
from stompkit.spark.jobs.settings import JobName, PipelineError, PipelineSettings, seconds
from stompkit.spark.jobs.work import Aggregating, Work, work_of
from stompkit.spark.stream.options import SourceOptions
from stompkit.spool import SpoolError, SpoolReader

__all__ = ["Pipeline", "Progress"]

_log: Final = logging.getLogger(__name__)
_T = TypeVar("_T")

#: Time in seconds between two checks of the query and its progress.
_LOOK_S: Final = 0.1
_PROGRESS_S: Final = 0.5
#: Back-off in seconds before a batch is retried: initial and maximum.
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 15.0
#: Options with the start position of a query without checkpoint.
_STARTING: Final = ("startingoffsets", "startingtimestamp")
#: Maximum time in seconds to wait for Spark's commit of a batch before the query is stopped.
_NOTED_S: Final = 10.0


class _StoppingError(Exception):
    """A batch was about to begin during the stop of the job."""


class Pipeline:
    """One run of a pipeline's job."""

    def __init__(
        self,
        settings: PipelineSettings,
        job: JobName,
        *,
        once: bool = False,
        trigger_s: float | None = None,
        spark: SparkSession | None = None,
        log_level: str = "OFF",
        on_step: Callable[[str], object] | None = None,
    ) -> None:
        """Describe a run without opening resources.

        With ``once`` the run ends when it has processed the messages present at its start.
        Otherwise a batch begins every ``trigger_s`` seconds; the default is that of the settings.
        ``spark`` is an existing session, which stays open. Without it a session is created, with
        the log level ``log_level``. ``on_step`` is called with each step of the start, in words.

        Raises PipelineError if the settings lack something that the job requires.
        """
        self.settings: Final = settings
        self.job: Final = job
        self._once = once
        self._trigger_s = seconds(settings.trigger) if trigger_s is None else trigger_s
        self._retry_s = seconds(settings.retry_for)
        self._spark = spark
        self._log_level = log_level
        self._on_step = on_step or (lambda step: None)
        self._work: Final[Work] = work_of(settings, job)
        self._failures: Final = Failures(settings, self._work, settings.checkpoint_of(job))
        self._is_stopping = False
        self._is_busy = False
        self._failure: BaseException | None = None
        self._checkpoint: Checkpoint | None = None
        self._reader: SpoolReader | None = None
        self._has_checked_folders = False
        self._lock = threading.Lock()
        self._progress = Progress()
        self._metrics: StreamingQueryListener | None = None
        self._names: Final = KnownNames(settings, job)
        self._has_checked_names = False
        self._left_out: Final = LeftOut(settings, job)
        #: Ends of the partitions of the spool at the start.
        self._heads: Sequence[int] = ()
        #: Address of the metrics server while it runs.
        self.metrics_address: Address | None = None

    def stop(self) -> None:
        """Make :meth:`run` return after the current batch; safe in signal handlers."""
        self._is_stopping = True

    def progress(self) -> Progress:
        """Return the progress; from any thread."""
        return self._progress

    def run(self) -> None:
        """Run until stopped, or with ``once`` until all present messages are processed.

        Raises PipelineError, with a remedy, if the job cannot continue. A stopped or failed job
        can be run again: it resumes from the position of the target.
        """
        try:
            other = "another pipeline has another name"
            with alone(self.settings, self.job, other), ExitStack() as stack:
                served = serving(self.settings, self.job, self, query=self._query_name())
                self.metrics_address, self._metrics = stack.enter_context(served)
                self._run()
        except BaseException as error:
            if not self._is_stopped_with_spark(error):
                self._update(phase="failed")
                raise
            # A stop that is a signal to all processes ends the JVM, too.
            _log.debug("Spark has ended", exc_info=True)
        finally:
            self._work.close()
        self._update(phase="ended", problem="")

    def _is_stopped_with_spark(self, error: BaseException) -> bool:
        """Return True for errors of a stop that has ended Spark before the job."""
        if isinstance(error, InterruptedStartError):
            return True
        return self._is_stopping and isinstance(error, Exception) and is_gone()

    def _run(self) -> None:
        try:
            # Before Spark, whose start takes seconds.
            if (reader := self._spool()) is not None:
                self._fence(reader)
        except _StoppingError:
            return
        begun: AbstractContextManager[SparkSession]
        if self._spark is None:
            self._on_step("starting Spark")
            begun = session(self.settings, self.job, log_level=self._log_level)
        else:
            begun = nullcontext(self._spark)
        with begun as spark:
            if self._is_stopping:
                return
            self._checkpoint = Checkpoint(spark, self.settings.checkpoint_of(self.job))
            with listening(spark, self._metrics):
                while self._goes_on_after_query(spark):
                    pass

    def _goes_on_after_query(self, spark: SparkSession) -> bool:
        """Run one query to its end; return True if another one must read the spool again."""
        self._failure = None
        try:
            query = self._begin(spark)
        except _StoppingError:
            return False
        try:
            self._follow(query)
        finally:
            if query.isActive:
                query.stop()
        self._note_progress(query)
        return isinstance(self._failure, TargetBehindError)

    def _beginning(self) -> Beginning:
        """Return the start of the query, according to the target; raises PipelineError."""
        reader = self._spool()
        if reader is None:
            return "checkpoint"
        self._heads = self._patiently("the start", reader.head)
        if warning := self._patiently("the start", lambda: former_reader(self.settings, reader)):
            _log.warning("%s", warning)
        assert self._checkpoint is not None
        batch_id = self._checkpoint.last()
        last = None
        if batch_id is not None:
            last = self._checkpoint.offset(batch_id)
            if last is None or not last.is_of(reader):
                return "checkpoint"  # Spark or the source reports the error
        fence = self._fence(reader)
        if fence:
            self._left_out.check()
        else:
            self._left_out.forget()
        self._on_step(f"connected to {self._work.target}")
        place = self._checkpoint.place
        if not isinstance(self._work, Aggregating):
            options = SourceOptions.parse(self.settings.source_options(self.job))
            floor = self._patiently("the start", reader.floor)
            return beginning(fence, last, options, floor, checkpoint=place)
        if last is not None:
            try:
                Span(last.ends).check(fence)
            except TargetBehindError as behind:
                raise PipelineError(self._failures.behind(behind)) from None
        return "checkpoint"

    def _spool(self) -> SpoolReader | None:
        """Return the spool, or ``None`` if the source creates it; raises PipelineError."""
        return opened(self.settings, self.job, lambda: self._patiently("the start", self._open))

    def _fence(self, reader: SpoolReader) -> dict[int, int]:
        """Return how far the target is; raises PipelineError."""
        try:
            return self._patiently("the start", lambda: self._work.fence(reader.id))
        except _StoppingError:
            raise
        except Exception as error:
            raise PipelineError(self._failures.reason_of(error)) from error

    def _begin(self, spark: SparkSession) -> StreamingQuery:
        """Start the query; raises PipelineError if Spark rejects its checkpoint."""
        try:
            return self._start(spark)
        except (PySparkException, Py4JJavaError) as error:
            # Not every Java exception is converted to a PySpark exception.
            text = str(getattr(error, "java_exception", error))
            raise PipelineError(self._failures.of_spark(text)) from error

    def _start(self, spark: SparkSession) -> StreamingQuery:
        settings = self.settings
        options = settings.source_options(self.job)
        begin = self._beginning()
        if self._reader is not None:
            try:
                self._check_folders(spark)
            except SparkError as error:
                raise PipelineError(str(error)) from None
        if begin == "spool":
            assert self._checkpoint is not None
            self._checkpoint.put_aside()
            options = {
                name: value for name, value in options.items() if name.lower() not in _STARTING
            }
        frame = stream(spark, options)
        mode = "append"
        if isinstance(self._work, Aggregating):
            frame = self._work.query(frame)
            mode = "update"
        writer = (
            frame.writeStream.foreachBatch(self._take)
            .outputMode(mode)
            .queryName(self._query_name())
            .option("checkpointLocation", settings.checkpoint_of(self.job))
        )
        self._on_step(f"reading the spool {settings.spool()}, waiting for the first change")
        if self._once:
            return writer.trigger(availableNow=True).start()
        pause = f"{round(self._trigger_s * 1000)} milliseconds"
        return writer.trigger(processingTime=pause).start()

    def _follow(self, query: StreamingQuery) -> None:
        """Wait until the query has ended, or was stopped between two batches."""
        looked = 0.0
        quiet_since: float | None = None
        while query.isActive:
            now = time.monotonic()
            if now - looked >= _PROGRESS_S:
                looked = now
                self._note_progress(query)
            if self._is_stopping and not self._is_busy:
                # No further batch begins, but the last one should be in the checkpoint. Otherwise
                # it is repeated after the next start, and skipped.
                quiet_since = quiet_since or now
                if not query.status["isTriggerActive"] or now - quiet_since > _NOTED_S:
                    query.stop()
                    return
            time.sleep(_LOOK_S)
        error = query.exception()
        if error is None or isinstance(self._failure, _StoppingError):
            return
        if isinstance(self._failure, TargetBehindError) and not isinstance(self._work, Aggregating):
            return
        raise PipelineError(self._failures.final(self._failure, str(error))) from (
            self._failure or error
        )

    def _take(self, df: DataFrame, batch_id: int) -> None:
        """Process one batch; called by Spark in a separate thread."""
        self._is_busy = True
        try:
            if self._is_stopping:
                raise _StoppingError
            begun = time.monotonic()
            what = f"batch {batch_id}"
            spool = self._patiently(what, self._open).id
            assert self._checkpoint is not None
            span = self._checkpoint.span(batch_id)
            # A spool that the source has created was not there at the start.
            self._check_folders(df.sparkSession)
            done = self._patiently(what, lambda: self._work.apply(df, batch_id, spool, span))
            took = time.monotonic() - begun
            self._names.add(done.names)
            self._left_out.add(done.names)
            with self._lock:
                progress = self._progress
                self._progress = replace(
                    progress,
                    phase="running",
                    batch=batch_id,
                    batches=progress.batches + 1,
                    changes=progress.changes + done.changes,
                    dead_letters=progress.dead_letters + done.dead_letters,
                    late=progress.late + done.late,
                    rate=done.changes / took if took else 0.0,
                    problem="",
                )
            self._failures.has_progress = True
            if done.dead_letters:
                _log.warning("batch %d: %d dead letters", batch_id, done.dead_letters)
            self._patiently(what, lambda: self._work.finish(spool))
            self._update(problem="")
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._is_busy = False

    def _patiently(self, what: str, do: Callable[[], _T]) -> _T:
        """Retry an operation while its errors may be temporary, until a deadline."""
        deadline = time.monotonic() + self._retry_s
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            pause = backoff.fail()
            try:
                return do()
            except Exception as error:
                if not self._failures.may_pass(error) or time.monotonic() + pause > deadline:
                    raise
                reason = self._failures.reason_of(error)
            if not self._progress.problem:
                _log.warning("%s is tried again: %s", what, reason)
            self._update(problem=reason, retries=self._progress.retries + 1)
            self._pause(pause)

    def _pause(self, pause_s: float) -> None:
        until = time.monotonic() + pause_s
        while time.monotonic() < until:
            if self._is_stopping:
                raise _StoppingError
            time.sleep(_LOOK_S)

    def _check_folders(self, spark: SparkSession) -> None:
        """Check once that executors see all folders; raises SparkError."""
        if not self._has_checked_folders:
            check_folders(spark, self._open(), self._work.folders())
            self._has_checked_folders = True

    def _open(self) -> SpoolReader:
        """Return the spool, which exists when there is a batch; a server is not waited for."""
        if self._reader is None:
            self._reader = self.settings.open_spool(timeout_s=0)
        return self._reader

    def _note_progress(self, query: StreamingQuery) -> None:
        """Update the lag of the query."""
        told = query.lastProgress
        if told is None or not told.sources:
            return
        end = told.sources[0].endOffset
        offset = json.loads(end) if isinstance(end, str) else end
        if not isinstance(offset, dict):
            return
        try:
            head = self._open().head()
        except (OSError, SpoolError):
            return  # the source reports it, if it matters
        read = offset.get("p", {})
        lag = sum(max(last - read.get(str(number), 0), 0) for number, last in enumerate(head))
        self._update(phase="running", lag=lag)
        is_read = all(read.get(str(number), 0) >= end for number, end in enumerate(self._heads))
        if is_read and self._names.names and not self._has_checked_names:
            self._has_checked_names = True
            for warning in self._names.unmatched():
                _log.warning("%s", warning)

    def _update(self, **changes: Any) -> None:
        with self._lock:
            self._progress = replace(self._progress, **changes)

    def _query_name(self) -> str:
        return f"{self.settings.name}-{self.job}"
