"""Runs a job of a pipeline: session, stream, batches, and an end that leaves no batch half done."""

from __future__ import annotations

import json
import logging
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from stompkit._common.files import write_atomically
from stompkit._common.retry import Backoff
from stompkit.metrics import Address, MetricsProblem, new_registry, parse_address, serving
from stompkit.replication.sinks import SinkMisconfigured
from stompkit.spark._options import SourceOptions
from stompkit.spark.fence import Span, TargetBehind
from stompkit.spark.jobs._behind import Beginning, beginning
from stompkit.spark.jobs._checkpoint import Checkpoint, Offset
from stompkit.spark.jobs._job_lock import alone
from stompkit.spark.jobs._source import stream
from stompkit.spark.jobs.progress import Progress
from stompkit.spark.jobs.settings import JobName, PipelineProblem, PipelineSettings, seconds
from stompkit.spark.jobs.work import Aggregating, Work, work_of
from stompkit.spark.session import spark_session
from stompkit.spark.ship import ship
from stompkit.spool import SpoolProblem, SpoolReader

__all__ = ["Pipeline", "Progress"]

_log: Final = logging.getLogger(__name__)
_T = TypeVar("_T")

#: How often is looked whether the query goes on, and how far it is, in seconds.
_LOOK_S: Final = 0.1
_PROGRESS_S: Final = 0.5
#: The first and the longest pause before a batch is tried again.
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 15.0
#: Options that say where a query without checkpoint begins.
_STARTING: Final = ("startingoffsets", "startingtimestamp")
#: How long Spark may take to write down that a batch is done, before the query is stopped.
_NOTED_S: Final = 10.0
#: What processes of Spark's have failed with is in the middle of what Spark says.
_OURS: Final = re.compile(r"^stompkit\.[\w.]+: (.+)$", re.MULTILINE)
_LAST: Final = re.compile(r"^(?:[A-Za-z_][\w.]*(?:Error|Exception)): (.+)$", re.MULTILINE)


class _Stopping(Exception):
    """A batch was about to begin when the job was to end."""


class Pipeline:
    """One job of a pipeline, to be run once."""

    def __init__(
        self,
        settings: PipelineSettings,
        job: JobName,
        *,
        once: bool = False,
        trigger_s: float | None = None,
        spark: SparkSession | None = None,
        log_level: str = "OFF",
    ) -> None:
        """Describe a run; nothing is opened yet.

        With ``once`` it ends when it has what the spool has at the start; else a batch begins every
        ``trigger_s`` seconds, by default those of the settings. ``spark`` is a session to use,
        which stays; without it one is made, whose log has the level ``log_level``.

        Raises PipelineProblem where what the job needs is not in the settings.
        """
        self.settings: Final = settings
        self.job: Final = job
        self._once = once
        self._trigger_s = seconds(settings.trigger) if trigger_s is None else trigger_s
        self._retry_s = seconds(settings.retry_for)
        self._spark = spark
        self._log_level = log_level
        self._work: Final[Work] = work_of(settings, job)
        self._is_stopping = False
        self._is_busy = False
        self._failure: BaseException | None = None
        self._checkpoint: Checkpoint | None = None
        self._reader: SpoolReader | None = None
        self._lock = threading.Lock()
        self._progress = Progress()
        self._metrics: StreamingQueryListener | None = None
        #: Where metrics are served, as long as it runs.
        self.metrics_address: Address | None = None

    def stop(self) -> None:
        """Have :meth:`run` return when the batch under way is done; also for signal handlers."""
        self._is_stopping = True

    def progress(self) -> Progress:
        """How far it is, from any thread."""
        return self._progress

    def run(self) -> None:
        """Run until it is stopped, or with ``once`` has what there is.

        Raises PipelineProblem, with what to do, when it can't go on. Whatever has ended it, it can
        be run again: it goes on where the target is.
        """
        try:
            other = "another pipeline has another name"
            with alone(self.settings, self.job, other), ExitStack() as stack:
                self._metrics = stack.enter_context(self._served())
                self._run()
        except BaseException:
            self._update(phase="failed")
            raise
        finally:
            self._work.close()
        self._update(phase="ended", problem="")

    def _run(self) -> None:
        with self._session() as spark:
            if self._is_stopping:
                return
            self._checkpoint = Checkpoint(spark, self.settings.checkpoint_of(self.job))
            with self._heard(spark):
                while self._goes_on_after_query(spark):
                    pass

    def _goes_on_after_query(self, spark: SparkSession) -> bool:
        """Run one query to its end; true where another one has to read the spool again."""
        self._failure = None
        try:
            query = self._begin(spark)
        except _Stopping:
            return False
        try:
            self._follow(query)
        finally:
            if query.isActive:
                query.stop()
        self._note_progress(query)
        return isinstance(self._failure, TargetBehind)

    def _beginning(self) -> Beginning:
        """Where the query begins, by the target; raises PipelineProblem."""
        try:
            reader = self._open()
        except SpoolProblem:
            return "checkpoint"  # the source makes the spool, or says what is wrong with it
        assert self._checkpoint is not None
        batch_id = self._checkpoint.last()
        last = None
        if batch_id is not None:
            last = self._checkpoint.offset(batch_id)
            if last is None or not _is_of(last, reader):
                return "checkpoint"  # Spark or the source says what is wrong
        try:
            fence = self._patiently("the start", lambda: self._work.fence(reader.id))
        except _Stopping:
            raise
        except Exception as error:
            raise PipelineProblem(self._told(error)) from error
        place = self._checkpoint.place
        if not isinstance(self._work, Aggregating):
            options = SourceOptions.parse(self.settings.source_options(self.job))
            return beginning(fence, last, options, reader.floor(), checkpoint=place)
        if last is not None:
            try:
                Span(last.ends).check(fence)
            except TargetBehind as behind:
                raise PipelineProblem(self._behind(behind)) from None
        return "checkpoint"

    def _behind(self, behind: TargetBehind) -> str:
        """Why counting can't go on, and what to do."""
        return (
            f"{behind}. Bring the results back, or begin anew under another name of the pipeline,"
            " with other results in [analytics]: then the job counts what the spool has"
        )

    def _begin(self, spark: SparkSession) -> StreamingQuery:
        """Start; raises PipelineProblem for what Spark finds wrong with its checkpoint."""
        try:
            return self._start(spark)
        except (PySparkException, Py4JJavaError) as error:
            # Not everything that Java raises becomes an exception of PySpark.
            text = str(getattr(error, "java_exception", error))
            reason = _quoted(text).rstrip(".") + self._advice(text)
            raise PipelineProblem(self.settings.without_secrets(reason)) from error

    def _start(self, spark: SparkSession) -> StreamingQuery:
        settings = self.settings
        options = settings.source_options(self.job)
        if self._beginning() == "spool":
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
        if self._once:
            return writer.trigger(availableNow=True).start()
        pause = f"{round(self._trigger_s * 1000)} milliseconds"
        return writer.trigger(processingTime=pause).start()

    def _follow(self, query: StreamingQuery) -> None:
        """Return when the query has ended, or was stopped between two batches."""
        looked = 0.0
        quiet_since: float | None = None
        while query.isActive:
            now = time.monotonic()
            if now - looked >= _PROGRESS_S:
                looked = now
                self._note_progress(query)
            if self._is_stopping and not self._is_busy:
                # No batch begins any more; the last one is to be in the checkpoint, though. Where
                # it is not, it comes again after the next start, and is left out.
                quiet_since = quiet_since or now
                if not query.status["isTriggerActive"] or now - quiet_since > _NOTED_S:
                    query.stop()
                    return
            time.sleep(_LOOK_S)
        error = query.exception()
        if error is None or isinstance(self._failure, _Stopping):
            return
        if isinstance(self._failure, TargetBehind) and not isinstance(self._work, Aggregating):
            return
        raise PipelineProblem(self._reason(error)) from (self._failure or error)

    def _take(self, df: DataFrame, batch_id: int) -> None:
        """One batch, called by Spark in a thread of its own."""
        self._is_busy = True
        try:
            if self._is_stopping:
                raise _Stopping
            begun = time.monotonic()
            spool = self._open().id
            assert self._checkpoint is not None
            span = self._checkpoint.span(batch_id)
            what = f"batch {batch_id}"
            done = self._patiently(what, lambda: self._work.apply(df, batch_id, spool, span))
            took = time.monotonic() - begun
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
        """Try until it works, as long as there is hope."""
        deadline = time.monotonic() + self._retry_s
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            pause = backoff.fail()
            try:
                return do()
            except Exception as error:
                if not self._may_pass(error) or time.monotonic() + pause > deadline:
                    raise
                reason = self._told(error)
            if not self._progress.problem:
                _log.warning("%s is tried again: %s", what, reason)
            self._update(problem=reason, retries=self._progress.retries + 1)
            self._pause(pause)

    def _pause(self, pause_s: float) -> None:
        until = time.monotonic() + pause_s
        while time.monotonic() < until:
            if self._is_stopping:
                raise _Stopping
            time.sleep(_LOOK_S)

    def _may_pass(self, error: Exception) -> bool:
        if isinstance(error, SinkMisconfigured):
            return False
        passing = self._work.passing
        # What has happened in a task comes as an error of Spark's that quotes it.
        return isinstance(error, passing) or any(
            f".{kind.__name__}: " in str(error) for kind in passing if kind is not OSError
        )

    def _open(self) -> SpoolReader:
        """The spool; it is there when a batch is."""
        if self._reader is None:
            self._reader = SpoolReader(self.settings.spool())
        return self._reader

    def _note_progress(self, query: StreamingQuery) -> None:
        """Find out how much is still to be read."""
        told = query.lastProgress
        if told is None or not told.sources:
            return
        end = told.sources[0].endOffset
        offset = json.loads(end) if isinstance(end, str) else end
        if not isinstance(offset, dict):
            return
        try:
            head = self._open().head()
        except (OSError, SpoolProblem):
            return  # the source tells it, if it matters
        read = offset.get("p", {})
        lag = sum(max(last - read.get(str(number), 0), 0) for number, last in enumerate(head))
        self._update(phase="running", lag=lag)

    def _update(self, **changes: Any) -> None:
        with self._lock:
            self._progress = replace(self._progress, **changes)

    # What it was.

    def _reason(self, error: StreamingQueryException) -> str:
        failure = self._failure
        if isinstance(failure, Exception):
            if isinstance(failure, TargetBehind):
                return self.settings.without_secrets(self._behind(failure))
            return self.settings.without_secrets(self._told(failure))
        return self.settings.without_secrets(
            _quoted(str(error)).rstrip(".") + self._advice(str(error))
        )

    def _advice(self, told: str) -> str:
        """What to do where Spark can't go on from its checkpoint."""
        if self._progress.batches or _OURS.search(told) or "Python worker" in told:
            # It has gone on, the source says itself what is the matter, or a process is missing.
            return ""
        where = self.settings.checkpoint_of(self.job)
        if isinstance(self._work, Aggregating):
            return (
                f". If the checkpoint {where} is damaged, bring back a copy of it: it has what was"
                " counted. Or remove it and the results, and the job counts again what the spool"
                " has"
            )
        return (
            f". If the checkpoint {where} is damaged, remove it. How far the job is stands in the"
            " target: it reads the spool from the start and leaves out what is applied. Nothing is"
            " lost or applied twice"
        )

    def _told(self, error: Exception) -> str:
        if type(error).__module__.startswith("pyspark."):
            return self.settings.without_secrets(_quoted(str(error)))
        return self.settings.without_secrets(self._work.explain(error))

    # What it needs.

    @contextmanager
    def _session(self) -> Iterator[SparkSession]:
        if self._spark is not None:
            yield self._spark
            return
        how = self.settings.spark
        is_main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGINT) if is_main else None
        spark = spark_session(
            f"stompkit {self.settings.name} {self.job}",
            master=how.master,
            config={"spark.log.level": self._log_level, **how.config},
        )
        if is_main:
            # Spark has one of its own, which would end the batch under way.
            signal.signal(signal.SIGINT, before)
        try:
            if how.ship:
                ship(spark)
            yield spark
        finally:
            spark.stop()

    def _query_name(self) -> str:
        return f"{self.settings.name}-{self.job}"

    @contextmanager
    def _served(self) -> Iterator[StreamingQueryListener | None]:
        """Serve metrics, where that is wanted; gives what Spark is to tell of batches."""
        given = self.settings.metrics
        if given is None:
            yield None
            return
        restarts = self._count_start()
        try:
            registry = new_registry()
            from stompkit.spark.metrics import JobMetrics, QueryMetrics

            own = (self.settings.name, self.job)
            JobMetrics(*own, self, restarts, registry)
            listener = QueryMetrics(*own, registry, query=self._query_name())
            with serving(parse_address(given.listen), registry) as address:
                self.metrics_address = address
                yield listener
        except MetricsProblem as problem:
            raise PipelineProblem(f"[metrics]: {problem}") from None

    def _count_start(self) -> int:
        """How often the job was started before."""
        path = self.settings.folder() / self.job / "starts"
        try:
            count = int(path.read_text())
        except (FileNotFoundError, ValueError):
            count = 0
        write_atomically(path, f"{count + 1}\n".encode(), mode=None)
        return count

    @contextmanager
    def _heard(self, spark: SparkSession) -> Iterator[None]:
        """Have Spark tell of batches, where somebody wants to know."""
        if self._metrics is None:
            yield
            return
        spark.streams.addListener(self._metrics)
        try:
            yield
        finally:
            spark.streams.removeListener(self._metrics)


def _is_of(offset: Offset, reader: SpoolReader) -> bool:
    """Whether an offset is one of a spool, and not of another one, or of a newer copy."""
    heads = dict(enumerate(reader.head()))
    is_there = all(end <= heads.get(number, -1) for number, end in offset.ends.items())
    return offset.spool == reader.id and is_there


def _quoted(text: str) -> str:
    """What has happened, out of the traces of several languages that are around it."""
    for pattern in (_OURS, _LAST):
        found = pattern.findall(text)
        if found:
            return str(found[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "Spark has ended the query"
