"""Changes and messages in Apache Spark: from brokers and spools to rows, and back.

``spark_session()`` makes a session that finds its Java and its Python. With it, or with any other
in whose environment stompkit is installed, ``spark.readStream.format("stomp")`` reads messages:
see :mod:`stompkit.spark.source`. Needs the extra ``spark``.

Each name is imported when it is asked for: to describe and check a pipeline needs no PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompkit._common.lazy import imported

# Its module has the same name, which would be found in the place of the function.
from stompkit.spark.ship import ship

if TYPE_CHECKING:
    from stompkit.spark.session import SparkProblem, spark_session
    from stompkit.spark.source import StompDataSource

__all__ = ["SparkProblem", "StompDataSource", "ship", "spark_session"]

#: Where in this package each name is.
_MODULES = {
    "SparkProblem": "session",
    "StompDataSource": "source",
    "spark_session": "session",
}


def __getattr__(name: str) -> Any:
    return imported(__name__, _MODULES, name)
