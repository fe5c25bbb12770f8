"""The Spark session of a job."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from stompkit.spark.jobs.settings import JobName, PipelineSettings
from stompkit.spark.session import spark_session
from stompkit.spark.ship import ship

__all__ = ["listening", "session"]


@contextmanager
def session(settings: PipelineSettings, job: JobName, *, log_level: str) -> Iterator[SparkSession]:
    """Start a session for a job; SIGINT keeps its handler."""
    how = settings.spark
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if is_main else None
    spark = spark_session(
        f"stompkit {settings.name} {job}",
        master=how.master,
        config={"spark.log.level": log_level, **how.config},
    )
    if is_main:
        # Spark installs its own handler, which would abort the current batch.
        signal.signal(signal.SIGINT, before)
    try:
        if how.ship:
            ship(spark)
        yield spark
    finally:
        spark.stop()


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
