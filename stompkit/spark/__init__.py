"""Changes and messages in Apache Spark: from brokers and spools to rows, and back.

``spark_session()`` makes a session that finds its Java and its Python. With it, or with any other
in whose environment stompkit is installed, ``spark.readStream.format("stomp")`` reads messages:
see :mod:`stompkit.spark.source`. Needs the extra ``spark``.
"""

from __future__ import annotations

from stompkit.spark.session import SparkProblem, spark_session
from stompkit.spark.ship import ship
from stompkit.spark.source import StompDataSource

__all__ = ["SparkProblem", "StompDataSource", "ship", "spark_session"]
