"""Changes and messages in Apache Spark: from brokers and spools to rows, and back.

``spark_session()`` creates a session that finds its Java and its Python. Any other session also
works if stompkit is installed in its environment. ``spark.readStream.format("stomp")`` reads
messages: see :mod:`stompkit.spark.source`. Requires the extra ``spark``.

Names are imported lazily: describing and checking a pipeline does not require PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompkit._common.lazy import imported
from stompkit._common.moved import renamed

# Its module has the same name, which would shadow the function.
from stompkit.spark.ship import ship

if TYPE_CHECKING:
    from stompkit.spark.session import SparkError, spark_session
    from stompkit.spark.source import StompDataSource

__all__ = ["SparkError", "StompDataSource", "ship", "spark_session"]

#: Module of each public name.
_MODULES = {
    "SparkError": "session",
    "StompDataSource": "source",
    "spark_session": "session",
}


def __getattr__(name: str) -> Any:
    return imported(__name__, _MODULES, name)


renamed(
    __name__,
    SparkProblem="SparkError",
)
