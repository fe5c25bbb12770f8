"""Changes and messages in Apache Spark: from brokers and spools to rows, and back.

``spark_session()`` makes a session that finds its Java and its Python. With it, or with any other
in whose environment stompkit is installed, ``spark.readStream.format("stomp")`` reads messages:
see :mod:`stompkit.spark.source`. Needs the extra ``spark``.

Each name is imported when it is asked for: to describe and check a pipeline needs no PySpark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stompkit.spark.session import SparkProblem, spark_session
    from stompkit.spark.ship import ship
    from stompkit.spark.source import StompDataSource

__all__ = ["SparkProblem", "StompDataSource", "ship", "spark_session"]

#: Where in this package each name is.
_MODULES = {
    "SparkProblem": "session",
    "StompDataSource": "source",
    "ship": "ship",
    "spark_session": "session",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
