"""The stream that a job reads, by a data source that no other job of this process uses."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from stompkit.spark.ship import is_remote

__all__ = ["stream"]

_NAME: Final = "stomp"
#: Between having a session know a data source and asking for it by its name.
_registering: Final = threading.Lock()


def stream(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The messages of a spool, as a stream.

    Spark keeps one description of a Python data source for all streams of a JVM, and each stream
    writes the environment of its process into that when it begins, in its own thread. Where two
    begin at once that map breaks, and with it all that is to be sent to workers later: "Task not
    serializable", "Illegal size 5 of collection". So each stream has a copy.
    """
    if is_remote(spark):
        return _load(spark, options)
    with _registering:
        _register_copy(spark)
        return _load(spark, options)


def _load(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    return spark.readStream.format(_NAME).options(**options).load()


def _register_copy(spark: SparkSession) -> None:
    """Have the session know a copy of the data source that it knows now."""
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
