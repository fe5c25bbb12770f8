"""Changes and messages in Apache Spark: from brokers and spools to rows, and back.

``spark_session()`` creates a session that finds its Java and its Python. Any other session also
works if stompkit is installed in its environment. ``spark.readStream.format("stomp")`` reads
messages: see :mod:`stompkit.spark.source`. Requires the extra ``spark``.

Names are imported lazily: describing and checking a pipeline does not require PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompkit._common.lazy import imported

# Its module has the same name, which would shadow the function.
from stompkit.spark.ship import ship

if TYPE_CHECKING:
    from stompkit.spark.session import SparkProblem, spark_session
    from stompkit.spark.source import StompDataSource

__all__ = ["SparkProblem", "StompDataSource", "ship", "spark_session"]

#: Module of each public name.
_MODULES = {
    "SparkProblem": "session",
    "StompDataSource": "source",
    "spark_session": "session",
}


def __getattr__(name: str) -> Any:
    return imported(__name__, _MODULES, name)
