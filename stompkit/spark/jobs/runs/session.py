"""The Spark session of a job."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import Popen, TimeoutExpired
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from stompkit.spark.jobs.settings import JobName, PipelineSettings
from stompkit.spark.session import spark_session
from stompkit.spark.ship import ship

__all__ = ["InterruptedStartError", "is_gone", "listening", "session"]

_log = logging.getLogger(__name__)
#: Options of the JVM, which is idle most of the time: it gives memory back.
_JAVA: Final = "-XX:G1PeriodicGCInterval=15000 -XX:MinHeapFreeRatio=5 -XX:MaxHeapFreeRatio=15"
#: For jobs whose rows are processed by Python: the second compiler of the JVM takes more time than
#: its code saves, even after some million rows.
_QUICK_JAVA: Final = f"-XX:TieredStopAtLevel=1 {_JAVA}"
#: Time in seconds for which an ending JVM is waited for.
_END_S: Final = 10.0


class InterruptedStartError(Exception):
    """SIGINT has ended the start of Spark, in place of its handler."""


@contextmanager
def session(settings: PipelineSettings, job: JobName, *, log_level: str) -> Iterator[SparkSession]:
    """Start a session for a job; SIGINT keeps its handler."""
    how = settings.spark
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if is_main else None
    try:
        spark = spark_session(
            f"stompkit {settings.name} {job}",
            master=how.master,
            config={
                "spark.log.level": log_level,
                "spark.driver.defaultJavaOptions": _JAVA if job == "analytics" else _QUICK_JAVA,
                **how.config,
            },
            archives_classes=True,
        )
    except KeyboardInterrupt:
        if before is signal.default_int_handler:
            raise
        raise InterruptedStartError from None
    finally:
        if is_main:
            # Spark installs its own handler, which would abort the current batch.
            signal.signal(signal.SIGINT, before)
    _quieten(spark)
    try:
        if how.ship:
            ship(spark)
        yield spark
    finally:
        spark.stop()


def _quieten(spark: SparkSession) -> None:
    """Log errors of Spark's accumulators, which print a traceback when the JVM ends first."""
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: _log.debug("an accumulator has failed", exc_info=True)


def is_gone() -> bool:
    """Return True if Spark's JVM has ended, or could not be started."""
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if not isinstance(process, Popen):
        return gateway is None
    try:
        process.wait(_END_S)
    except TimeoutExpired:
        return False
    return True


@contextmanager
def listening(spark: SparkSession, listener: StreamingQueryListener | None) -> Iterator[None]:
    """Register the listener for batches, if there is one."""
    if listener is None:
        yield
        return
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)
