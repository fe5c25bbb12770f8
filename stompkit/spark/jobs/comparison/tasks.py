"""Spark for the comparison of large tables, where it is installed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from stompkit.spark.java import SparkError, find_java_home
from stompkit.spark.jobs.settings import PipelineSettings, advice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["can_start", "session"]

_log: Final = logging.getLogger(__name__)


def can_start() -> bool:
    """Return True if this machine has PySpark and a Java; otherwise log what is missing."""
    try:
        # Imported on demand: most tables are compared without Spark.
        import stompkit.spark.session  # noqa: F401 (whether it is there)

        find_java_home()
    except ModuleNotFoundError as error:
        reason = advice(error)
    except SparkError as error:
        reason = str(error)
    else:
        return True
    _log.warning("large tables are read by this process alone: %s", reason)
    return False


@contextmanager
def session(settings: PipelineSettings, spark: SparkSession | None) -> Iterator[SparkSession]:
    """Yield the given session, or one that ends afterwards."""
    if spark is not None:
        yield spark
        return
    from stompkit.spark.session import spark_session
    from stompkit.spark.ship import ship

    how = settings.spark
    made = spark_session(
        f"stompkit {settings.name} verify",
        master=how.master,
        config={"spark.log.level": "OFF", **how.config},
    )
    try:
        if how.ship:
            ship(made)
        yield made
    finally:
        made.stop()
