"""The input stream of a job, from a data source used by no other job of the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from stompkit.spark.jobs.settings import JobName, PipelineError, PipelineSettings
from stompkit.spark.ship import is_remote
from stompkit.spark.stream.options import SourceOptions
from stompkit.spool import SpoolError, SpoolReader, SpoolUnavailableError

__all__ = ["former_reader", "opened", "stream"]

_NAME: Final = "stomp"
#: Held between registering a data source in the session and loading it by name.
_registering: Final = threading.Lock()


def opened(
    settings: PipelineSettings, job: JobName, open_: Callable[[], SpoolReader]
) -> SpoolReader | None:
    """Return the spool of a job, or ``None`` if its source creates it; raises PipelineError."""
    try:
        return open_()
    except SpoolError as error:
        options = SourceOptions.parse(settings.source_options(job))
        if options.broker is None or isinstance(error, SpoolUnavailableError):
            raise PipelineError(settings.without_secrets(str(error).rstrip("."))) from None
        return None


def former_reader(settings: PipelineSettings, spool: SpoolReader) -> str:
    """Return a warning if the spool still has the reader that all jobs of the file once shared."""
    name = settings.shared_reader()
    if not name or name not in spool.readers():
        return ""
    jobs = " and ".join(f"{name}.{job}" for job in settings.jobs())
    return (
        f"the spool keeps messages for the reader {name}, but the jobs of this file are the readers"
        f" {jobs}. If nothing else reads under that name, run: stompkit spool readers"
        f" {spool.place} --forget {name}"
    )


def stream(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the messages of a spool as a stream.

    Spark keeps one description of a Python data source for all streams of a JVM. Each stream writes
    the environment of its process into it when it starts, in its own thread. If two streams start
    at once, that map is corrupted, and later everything sent to workers fails: "Task not
    serializable", "Illegal size 5 of collection". Therefore each stream uses a copy.
    """
    if is_remote(spark):
        return _load(spark, options)
    with _registering:
        _register_copy(spark)
        return _load(spark, options)


def _load(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    return spark.readStream.format(_NAME).options(**options).load()


def _register_copy(spark: SparkSession) -> None:
    """Register a copy of the current data source in the session."""
    session: Any = spark._jsparkSession
    jvm: Any = spark._jvm
    given = session.sessionState().dataSourceManager().lookupDataSource(_NAME).dataSourceCls()
    function = jvm.org.apache.spark.api.python.SimplePythonFunction(
        given.command(),
        jvm.java.util.HashMap(given.envVars()),
        given.pythonIncludes(),
        given.pythonExec(),
        given.pythonVer(),
        given.broadcastVars(),
        given.accumulator(),
    )
    python = jvm.org.apache.spark.sql.execution.datasources.v2.python
    session.dataSource().registerPython(_NAME, python.UserDefinedPythonDataSource(function))
